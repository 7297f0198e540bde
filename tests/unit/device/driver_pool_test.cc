// SPDX-License-Identifier: Apache-2.0
// The strategy that uses the driver's stream-ordered pool: what is charged to the quota, when memory goes back, the
// order of streams, captures, and how it ends. tests/contract tests what all strategies have in common.
#include "device/memory/driver_pool.h"

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/abi/handles.h"
#include "device/share/virtual_device.h"
#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;

class DriverPoolTest : public StreamTest {
 protected:
  std::string config() const override { return DeviceTest::config() + ",pool_granule=32MiB"; }
  Allocator MakePool(const VirtualDevice& device, AllocatorOptions options = {}) {
    options.strategy = AllocationStrategy::kPool;
    return Must(Allocator::Create(device, std::move(options)));
  }
  static AllocatorOptions Waits(absl::Duration timeout = absl::InfiniteDuration()) {
    return {.over_quota = OverQuota::kWait, .timeout = timeout};
  }
  static Bytes Charged(const VirtualDevice& device) { return Must(device.stats()).memory.used; }
  // The duration of `call` in milliseconds.
  template <typename Call>
  double Takes(const Call& call) {
    const absl::Duration began = runtime_->Now();
    call();
    return absl::ToDoubleMilliseconds(runtime_->Now() - began);
  }
};

// ---- The quota ----

TEST_F(DriverPoolTest, TheQuotaIsChargedWithWhatThePoolGrowsBy) {
  const VirtualDevice device = MakeDevice("a", "memory=256MiB");
  const Allocator pool = MakePool(device);
  const uint64_t before = UsedOnDevice();
  const Stream stream = Must(Stream::Create(device));
  {
    const Allocation one = Must(pool.Allocate(MiB(3), stream)),
                     two = Must(pool.Allocate(MiB(20), stream));
    EXPECT_EQ(Charged(device), MiB(32));
    EXPECT_EQ(UsedOnDevice() - before, MiB(32).count());
    const Allocation three = Must(pool.Allocate(MiB(40), stream));
    EXPECT_EQ(Charged(device), Bytes(UsedOnDevice() - before));
    EXPECT_EQ(Must(pool.stats()).live, MiB(63));
    EXPECT_EQ(Must(pool.stats()).allocations, 3u);
    EXPECT_EQ(Must(device.stats()).memory.allocations, 3u);
  }
  ASSERT_OK(stream.Synchronize());
  EXPECT_EQ(Charged(device), Bytes(UsedOnDevice() - before));
  EXPECT_GT(Charged(device), Bytes(0));  // the pool keeps the memory for the next allocation
  EXPECT_OK(pool.Trim());
  EXPECT_EQ(Charged(device), Bytes(0));
  EXPECT_EQ(UsedOnDevice(), before);
}

TEST_F(DriverPoolTest, GrowthThatIsMoreThanIsLeftIsTakenBackAtOnce) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device), direct = Must(Allocator::Create(device));
  const Allocation held = Must(direct.Allocate(MiB(40)));
  const uint64_t before = UsedOnDevice();
  const Stream stream = Must(Stream::Create(device));
  ASSERT_OK(Spin(stream, absl::Milliseconds(50)));
  // 24 MiB are left, and the pool would grow by 32. The allocation does not wait for the stream's work.
  EXPECT_LT(Takes([&] {
              const auto over = pool.Allocate(MiB(6), stream);
              EXPECT_EQ(over.status().code(), absl::StatusCode::kResourceExhausted);
              EXPECT_THAT(std::string(over.status().message()),
                          HasSubstr("the driver would take 32 MiB"));
            }),
            1);
  EXPECT_EQ(Charged(device), MiB(40));
  EXPECT_EQ(Must(device.stats()).memory.denied, 1u);
  EXPECT_EQ(UsedOnDevice(), before);
}

TEST_F(DriverPoolTest, ALargeFirstAllocationRefusesNoSmallOne) {
  const VirtualDevice device = MakeDevice("a", "memory=1100MiB");
  const Allocator pool = MakePool(device);
  const Allocation large = Must(pool.Allocate(MiB(992))), small = Must(pool.Allocate(MiB(6)));
  EXPECT_EQ(Charged(device), MiB(1024));
}

TEST_F(DriverPoolTest, TheLastGrowthIsAsLargeAsTheQuotaAllowsAlsoWhenThatIsRaised) {
  const uint64_t before = UsedOnDevice();
  const VirtualDevice device = MakeDevice("a", "memory=40MiB");
  const Allocator pool = MakePool(device);
  const Allocation one = Must(pool.Allocate(MiB(30)));
  Allocation two = Must(pool.Allocate(MiB(6)));
  EXPECT_EQ(Charged(device), MiB(40));
  EXPECT_FALSE(pool.Allocate(MiB(6)).ok());
  EXPECT_OK(device.Resize("memory=104MiB"));
  {
    const Allocation three = Must(pool.Allocate(MiB(38)));
    EXPECT_EQ(Charged(device), MiB(104));
    EXPECT_EQ(UsedOnDevice() - before, MiB(104).count());
    EXPECT_OK(two.Free());
  }
  EXPECT_OK(pool.Trim());
  EXPECT_EQ(Charged(device), MiB(32));
  EXPECT_EQ(UsedOnDevice() - before, MiB(32).count());
}

TEST_F(DriverPoolTest, UnusedMemoryIsGivenUpForOthersOfTheTenant) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device), direct = Must(Allocator::Create(device));
  const Stream stream = Must(Stream::Create(device));
  EXPECT_OK(Must(pool.Allocate(MiB(60), stream)).Free());
  ASSERT_OK(stream.Synchronize());
  EXPECT_EQ(Charged(device), MiB(64));
  const Allocation memory = Must(direct.Allocate(MiB(60)));
  EXPECT_EQ(Charged(device), MiB(60));
  EXPECT_EQ(Must(device.stats()).memory.denied, 0u);
}

TEST_F(DriverPoolTest, ADriverThatDoesNotTellLeavesTheChargeAsItIs) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device);
  const Allocation one = Must(pool.Allocate(MiB(3)));
  ASSERT_OK(Inject("error call=cuMemPoolGetAttribute code=1"));
  EXPECT_FALSE(pool.Allocate(MiB(40)).ok());
  EXPECT_EQ(Charged(device), MiB(32));
  ASSERT_OK(Inject("clear"));
  EXPECT_EQ(Charged(device), MiB(32));
  EXPECT_OK(pool.Allocate(MiB(30)).status());
}

TEST_F(DriverPoolTest, OutOfMemoryOnTheDeviceIsToldApartFromTheQuota) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device);
  ASSERT_OK(Inject("oom after=0"));
  const auto refused = pool.Allocate(MiB(3));
  ASSERT_OK(Inject("clear"));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("within its quota"));
  EXPECT_EQ(Charged(device), Bytes(0));
  EXPECT_OK(pool.Allocate(MiB(3)).status());
}

// ---- Waiting ----

TEST_F(DriverPoolTest, AWaiterIsServedByAFreeInThePool) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device, Waits());
  const Stream stream = Must(Stream::Create(device));
  const DevicePtr held = Must(pool.AllocateRaw(MiB(60), stream));
  Thread waiter = Must(
      runtime_->StartThread("waiter", [&] { EXPECT_OK(pool.Allocate(MiB(30), stream).status()); }));
  runtime_->SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(Charged(device), MiB(64));
  EXPECT_EQ(Must(pool.stats()).waiting, 1u);
  EXPECT_OK(pool.Free(held));
  EXPECT_LE(Takes([&] { waiter.Join(); }), 1);
  EXPECT_EQ(Must(device.stats()).memory.denied, 0u);
}

TEST_F(DriverPoolTest, AFreeThatIsUnderWayIsWaitedForHereAndElsewhereInTheQuota) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device, Waits(absl::Milliseconds(100)));
  const Allocator direct = Must(Allocator::Create(device, Waits(absl::Milliseconds(100))));
  const Stream a = Must(Stream::Create(device)), b = Must(Stream::Create(device));
  for (const bool here : {true, false}) {
    const DevicePtr held = Must(pool.AllocateRaw(MiB(60), a));
    ASSERT_OK(Spin(a, absl::Milliseconds(10)));
    EXPECT_OK(pool.Free(held));
    EXPECT_NEAR(Takes([&] {
                  EXPECT_OK((here ? pool.Allocate(MiB(40), b) : direct.Allocate(MiB(40))).status());
                }),
                10, 1.5);
  }
  const Allocation held = Must(direct.Allocate(MiB(60)));
  EXPECT_NEAR(Takes([&] {
                EXPECT_EQ(pool.Allocate(MiB(40), b).status().code(),
                          absl::StatusCode::kDeadlineExceeded);
              }),
              100, 1);
  EXPECT_EQ(pool.Allocate(MiB(65), b).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(DriverPoolTest, AWaiterIsServedTheMomentThatTheStreamComesToTheFree) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device, Waits());
  const Stream a = Must(Stream::Create(device)), b = Must(Stream::Create(device));
  for (const bool freed_before : {true, false}) {
    SCOPED_TRACE(freed_before);
    const DevicePtr held = Must(pool.AllocateRaw(MiB(60), a));
    ASSERT_OK(Spin(a, absl::Microseconds(10'400)));
    if (freed_before) {
      EXPECT_OK(pool.Free(held));
    }
    absl::Duration served;
    DevicePtr got{};
    Thread waiter = Must(runtime_->StartThread("waiter", [&] {
      got = Must(pool.AllocateRaw(MiB(40), b));
      served = runtime_->Now();
    }));
    runtime_->SleepFor(absl::Microseconds(2'700));
    EXPECT_EQ(Must(pool.stats()).waiting, 1u);
    if (!freed_before) {
      EXPECT_OK(pool.Free(held));
    }
    EXPECT_OK(a.Synchronize());
    const absl::Duration over = runtime_->Now();
    waiter.Join();
    EXPECT_LE(absl::AbsDuration(served - over), absl::Microseconds(20));
    EXPECT_OK(pool.Free(got));
    EXPECT_OK(b.Synchronize());
  }
}

TEST_F(DriverPoolTest, WhatLiesInPiecesIsWaitedForNotRefused) {
  const VirtualDevice device = MakeDevice("a", "memory=100MiB");
  const Allocator pool = MakePool(device, Waits()), direct = Must(Allocator::Create(device));
  const Allocation rest = Must(direct.Allocate(MiB(36)));
  // Two granules, each with 20 MiB unused and 10 MiB in use.
  std::vector<Allocation> large, small;
  for (int i = 0; i < 2; ++i) large.push_back(Must(pool.Allocate(MiB(20))));
  for (int i = 0; i < 2; ++i) small.push_back(Must(pool.Allocate(MiB(10))));
  large.clear();
  EXPECT_EQ(Charged(device), MiB(100));
  Thread waiter =
      Must(runtime_->StartThread("waiter", [&] { EXPECT_OK(pool.Allocate(MiB(30)).status()); }));
  runtime_->SleepFor(absl::Milliseconds(10));
  EXPECT_EQ(Must(pool.stats()).waiting, 1u);
  EXPECT_EQ(Charged(device), MiB(100));
  small.pop_back();
  EXPECT_LE(Takes([&] { waiter.Join(); }), 1.1);
  EXPECT_EQ(Must(device.stats()).memory.denied, 0u);
}

TEST_F(DriverPoolTest, WhatCannotGoBackServesWaitersInTheOrderInWhichTheyCame) {
  const VirtualDevice device = MakeDevice("a", "memory=32MiB");
  const Allocator pool = MakePool(device, Waits());
  const Allocation stays = Must(pool.Allocate(MiB(2)));
  Allocation held = Must(pool.Allocate(MiB(30)));
  std::vector<int> served;
  std::vector<Allocation> got(2);
  const auto wait = [&](int i) {
    return Must(runtime_->StartThread("waiter", [&, i] {
      got[static_cast<size_t>(i)] = Must(pool.Allocate(MiB(i == 0 ? 20 : 15)));
      served.push_back(i);
    }));
  };
  Thread first = wait(0);
  runtime_->SleepFor(absl::Microseconds(100));
  Thread second = wait(1);
  runtime_->SleepFor(absl::Milliseconds(5));
  EXPECT_OK(held.Free());
  first.Join();
  EXPECT_EQ(served, std::vector<int>{0});
  EXPECT_OK(got[0].Free());
  second.Join();
}

// ---- Streams ----

TEST_F(DriverPoolTest, OtherStreamsDoNotWaitForWhatOneFreed) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device);
  const Stream a = Must(Stream::Create(device)), b = Must(Stream::Create(device));
  ASSERT_OK(Spin(a, absl::Milliseconds(10)));
  EXPECT_OK(Must(pool.Allocate(MiB(60), a)).Free());
  EXPECT_OK(pool.Allocate(MiB(60), a).status());  // in the order of its stream
  EXPECT_FALSE(pool.Allocate(MiB(60), b).ok());
  EXPECT_LT(Takes([&] { EXPECT_OK(b.Synchronize()); }), 1);
}

TEST_F(DriverPoolTest, WhatAStreamFreedIsItsOwnAtOnceAndMoreIsTakenBack) {
  const VirtualDevice device = MakeDevice("a", "memory=100MiB");
  const Allocator pool = MakePool(device), direct = Must(Allocator::Create(device));
  const Allocation rest = Must(direct.Allocate(MiB(40)));
  const uint64_t before = UsedOnDevice();
  const Stream stream = Must(Stream::Create(device));
  ASSERT_OK(Spin(stream, absl::Milliseconds(10)));
  EXPECT_OK(Must(pool.Allocate(MiB(30), stream)).Free());
  EXPECT_FALSE(pool.Allocate(MiB(34), stream).ok());
  EXPECT_EQ(Charged(device), MiB(72));
  EXPECT_EQ(UsedOnDevice() - before, MiB(32).count());
  EXPECT_OK(Must(pool.Allocate(MiB(30), stream)).Free());
  EXPECT_EQ(Charged(device), MiB(72));
}

TEST_F(DriverPoolTest, AFreeFollowsTheStreamThatIsGone) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device);
  DevicePtr held;
  {
    const Stream gone = Must(Stream::Create(device));
    held = Must(pool.AllocateRaw(MiB(3), gone));
    ASSERT_OK(Spin(gone, absl::Milliseconds(10)));
  }
  EXPECT_OK(pool.Free(held));
  EXPECT_EQ(Must(pool.stats()).live, MiB(3));  // the stream's last kernel still uses it
  EXPECT_LT(Takes([&] { EXPECT_OK(pool.Allocate(MiB(3)).status()); }), 1);
  runtime_->SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(Must(pool.stats()).live, Bytes(0));
}

TEST_F(DriverPoolTest, AFreeWaitsForEverythingWhereNobodyTellsWhenTheStreamEnds) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device);
  DevicePtr held;
  {
    const Stream gone = Must(Stream::Create(device));
    held = Must(pool.AllocateRaw(MiB(3), gone));
    ASSERT_OK(Spin(gone, absl::Milliseconds(10)));
    ASSERT_OK(Inject("error call=cuEventRecord code=2"));
  }
  ASSERT_OK(Inject("clear"));
  EXPECT_NEAR(Takes([&] { EXPECT_OK(pool.Free(held)); }), 10, 1);
}

TEST_F(DriverPoolTest, AFreeFollowsTheLegacyStreamAlsoWhenItIsUnbound) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device);
  DevicePtr held;
  {
    const Stream legacy = Must(Stream::Bind(device, nullptr));
    held = Must(pool.AllocateRaw(MiB(3), legacy));
    ASSERT_OK(Spin(legacy, absl::Milliseconds(10)));
  }
  EXPECT_OK(pool.Free(held));
  EXPECT_EQ(Must(pool.stats()).live, MiB(3));
  runtime_->SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(Must(pool.stats()).live, Bytes(0));
}

// ---- Capture ----

TEST_F(DriverPoolTest, WhatAnotherStreamCapturesIsLeftAlone) {
  const VirtualDevice device = MakeDevice("a", "memory=128MiB");
  const Allocator pool = MakePool(device);
  const Stream captures = Must(Stream::Create(device)), other = Must(Stream::Create(device));
  ASSERT_OK(captures.BeginCapture());
  ASSERT_OK(Spin(captures, absl::Milliseconds(1)));
  Allocation one = Must(pool.Allocate(MiB(3), other)), two = Must(pool.Allocate(MiB(40)));
  EXPECT_OK(one.Free());
  EXPECT_OK(two.Free());
  EXPECT_OK(pool.Trim());
  EXPECT_EQ(Charged(device), Bytes(0));
  EXPECT_OK(MakePool(device).Allocate(MiB(3)).status());
  EXPECT_OK(captures.EndCapture().status());
}

TEST_F(DriverPoolTest, AStreamThatCapturesIsRefused) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device);
  const Stream captures = Must(Stream::Create(device));
  const DevicePtr before = Must(pool.AllocateRaw(MiB(3), captures));
  ASSERT_OK(captures.BeginCapture());
  const auto refused = pool.Allocate(MiB(3), captures);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("captures a graph"));
  EXPECT_EQ(pool.Free(before).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Must(pool.stats()).allocations, 1u);
  EXPECT_OK(captures.EndCapture().status());
  EXPECT_OK(pool.Free(before));
}

// ---- Begin and end ----

TEST_F(DriverPoolTest, TwoThatAskForThePoolAtOnceGetTheSame) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const uint64_t made = Calls("cuMemPoolCreate"), gone = Calls("cuMemPoolDestroy");
  ASSERT_OK(Inject("slow call=cuMemPoolCreate host=1ms"));
  {
    Thread other = Must(runtime_->StartThread("other", [&] { MakePool(device); }));
    const Allocator pool = MakePool(device);
    other.Join();
    EXPECT_EQ(Calls("cuMemPoolCreate") - made, Calls("cuMemPoolDestroy") - gone + 1);
  }
  ASSERT_OK(Inject("clear"));
}

TEST_F(DriverPoolTest, ADriverWithoutPoolsSaysWhatElseThereIs) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  ASSERT_OK(Inject("error call=cuMemPoolCreate code=801"));
  const auto refused = Allocator::Create(device, {.strategy = AllocationStrategy::kPool});
  ASSERT_OK(Inject("clear"));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("use 'suballocating'"));
  const uint64_t made = Calls("cuMemPoolCreate"), gone = Calls("cuMemPoolDestroy");
  ASSERT_OK(Inject("error call=cuMemPoolSetAttribute code=1"));
  EXPECT_FALSE(Allocator::Create(device, {.strategy = AllocationStrategy::kPool}).ok());
  ASSERT_OK(Inject("clear"));
  EXPECT_EQ(Calls("cuMemPoolCreate") - made, Calls("cuMemPoolDestroy") - gone);
}

TEST_F(DriverPoolTest, AnOlderDriverKnowsNoBound) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  ASSERT_OK(Inject("error call=cuMemPoolCreate code=1 nth=1"));
  const Allocator pool = MakePool(device);
  ASSERT_OK(Inject("clear"));
  const Allocation most = Must(pool.Allocate(MiB(60)));
  EXPECT_EQ(Charged(device), MiB(64));
  EXPECT_FALSE(pool.Allocate(MiB(6)).ok());
  EXPECT_EQ(Charged(device), MiB(64));
}

TEST_F(DriverPoolTest, AnAddressThatTheDriverGivesOutAgainIsBookedOnce) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device), direct = Must(Allocator::Create(device));
  const DevicePtr lost = Must(pool.AllocateRaw(MiB(32)));
  auto* free = runtime_->Symbol<int(unsigned long long)>("cuMemFree_v2");
  ASSERT_EQ(free(lost.value()), 0);  // frees it without gpushare
  EXPECT_OK(pool.Trim());
  const DevicePtr again = Must(direct.AllocateRaw(MiB(32)));
  ASSERT_EQ(again, lost);
  EXPECT_EQ(Charged(device), MiB(32));
  EXPECT_EQ(Must(device.stats()).memory.allocations, 1u);
  EXPECT_EQ(Must(pool.stats()).allocations, 0u);
  EXPECT_OK(direct.Free(again));
  EXPECT_EQ(Charged(device), Bytes(0));
}

TEST_F(DriverPoolTest, MemoryOutlivesTheAllocatorAndTheVirtualDevice) {
  const uint64_t before = UsedOnDevice();
  DevicePtr one;
  {
    const VirtualDevice device = MakeDevice("a", "memory=64MiB");
    one = Must(MakePool(device).AllocateRaw(MiB(3)));
  }
  EXPECT_EQ(UsedOnDevice() - before, MiB(32).count());
  EXPECT_OK(gpu_->Free(one));
  EXPECT_EQ(UsedOnDevice(), before);
  EXPECT_FALSE(gpu_->Free(one).ok());
  MakeDevice("a", "memory=7GiB");
}

TEST_F(DriverPoolTest, WhatIsStillUsedWhenTheVirtualDeviceIsGoneIsPromisedToNobody) {
  {
    const VirtualDevice device = MakeDevice("a", "memory=64MiB");
    const Allocator pool = MakePool(device);
    const Stream stream = Must(Stream::Create(device));
    const DevicePtr one = Must(pool.AllocateRaw(MiB(3), stream));
    ASSERT_OK(Spin(stream, absl::Milliseconds(10)));
    EXPECT_OK(pool.Free(one));
  }
  const Tenant tenant = MakeTenant("b");
  EXPECT_FALSE(VirtualDevice::Create(*gpu_, tenant, "memory=7GiB").ok());
  runtime_->SleepFor(absl::Milliseconds(20));
  EXPECT_OK(VirtualDevice::Create(*gpu_, tenant, "memory=7GiB").status());
}

TEST_F(DriverPoolTest, AClosingGpuFreesWhatPoolsHold) {
  module_.reset();
  {
    const VirtualDevice device = MakeDevice("a", "memory=64MiB");
    EXPECT_TRUE(static_cast<bool>(Must(MakePool(device).AllocateRaw(MiB(3)))));
  }
  EXPECT_OK(gpu_->Close());
  EXPECT_EQ(UsedOnDevice(), 0u);
}

// ---- A lost context ----

TEST_F(DriverPoolTest, ALostContextsMemoryIsCreditedAndWhoWaitsIsTold) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device, Waits(absl::Seconds(1)));
  const Stream stream = Must(Stream::Create(device));
  const DevicePtr of_none = Must(pool.AllocateRaw(MiB(20)));
  const DevicePtr of_stream = Must(pool.AllocateRaw(MiB(20), stream));
  const DevicePtr other = Must(pool.AllocateRaw(MiB(10), stream));
  std::vector<absl::Status> told(2);
  std::vector<Thread> waiters;
  for (absl::Status& answer : told) {
    waiters.push_back(Must(runtime_->StartThread(
        "waiter", [&] { answer = pool.Allocate(MiB(60), stream).status(); })));
  }
  runtime_->SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(Must(pool.stats()).waiting, 2u);
  ASSERT_OK(Inject("illegal_address kernel=spin"));
  ASSERT_OK(Spin(stream, absl::Microseconds(10)));
  EXPECT_EQ(stream.Synchronize().code(), absl::StatusCode::kAborted);
  ASSERT_OK(Inject("clear"));
  EXPECT_LE(Takes([&] { waiters.clear(); }), 3);
  for (const absl::Status& answer : told) {
    EXPECT_EQ(answer.code(), absl::StatusCode::kAborted) << answer;
  }
  EXPECT_EQ(pool.Trim().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(pool.Free(of_stream).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(pool.Free(other, stream).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(pool.Free(of_none).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Charged(device), Bytes(0));
  EXPECT_EQ(Must(device.stats()).memory.allocations, 0u);
  EXPECT_EQ(Must(pool.stats()).reserved, Bytes(0));
  EXPECT_EQ(Must(pool.stats()).allocations, 0u);
  EXPECT_EQ(pool.Allocate(MiB(1), stream).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(pool.Allocate(MiB(1)).status().code(), absl::StatusCode::kAborted);
}

TEST_F(DriverPoolTest, AFreeInALostContextIsCreditedWithoutATrim) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device);
  const Stream stream = Must(Stream::Create(device));
  const DevicePtr of_stream = Must(pool.AllocateRaw(MiB(20), stream));
  ASSERT_OK(Inject("illegal_address kernel=spin"));
  ASSERT_OK(Spin(stream, absl::Microseconds(10)));
  EXPECT_EQ(stream.Synchronize().code(), absl::StatusCode::kAborted);
  ASSERT_OK(Inject("clear"));
  EXPECT_EQ(Charged(device), MiB(32));
  EXPECT_EQ(pool.Free(of_stream).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Charged(device), Bytes(0));
}

// As when its GPU goes.
TEST_F(DriverPoolTest, WhoWaitsWhenThePoolIsAbandonedIsToldAndHoldsNothing) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device, Waits(absl::Seconds(1)));
  EXPECT_TRUE(Must(pool.AllocateRaw(MiB(60))));
  std::vector<absl::Status> told(2);
  std::vector<Thread> waiters;
  for (absl::Status& answer : told) {
    waiters.push_back(
        Must(runtime_->StartThread("waiter", [&] { answer = pool.Allocate(MiB(40)).status(); })));
  }
  runtime_->SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(Must(pool.stats()).waiting, 2u);
  device::Handles::Borrow(device.handle())->driver_pool()->Abandon(/*give=*/true);
  EXPECT_LE(Takes([&] { waiters.clear(); }), 3);
  for (const absl::Status& answer : told) {
    EXPECT_EQ(answer.code(), absl::StatusCode::kFailedPrecondition) << answer;
    EXPECT_THAT(std::string(answer.message()), HasSubstr("the pool has ended"));
  }
  EXPECT_EQ(Charged(device), Bytes(0));
  EXPECT_OK(Must(Allocator::Create(device)).Allocate(MiB(64)).status());
}

// ---- Threads ----

class DriverPoolThreadsTest : public DriverPoolTest {
 protected:
  std::string config() const override { return "sms=100,memory=8GiB,clock=wall,pool_granule=2MiB"; }
};

TEST_F(DriverPoolThreadsTest, FreesMeetTheEndsOfTheirStreams) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device, Waits());
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 60; ++i) {
        std::optional<Stream> stream = Must(Stream::Create(device));
        const DevicePtr one = Must(pool.AllocateRaw(MiB(5), *stream)),
                        two = Must(pool.AllocateRaw(MiB(1)));
        if (!stream->SetAsync(one, 1, MiB(5)).ok()) ++failed;
        std::thread frees([&] {
          if (!pool.Free(one).ok() || !pool.Free(two).ok()) ++failed;
        });
        stream.reset();
        frees.join();
        if (Charged(device) > MiB(64)) ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(Must(pool.stats()).allocations, 0u);
  while (Must(pool.stats()).live != Bytes(0)) runtime_->SleepFor(absl::Milliseconds(1));
  EXPECT_OK(pool.Trim());
  EXPECT_EQ(Charged(device), Bytes(0));
}

}  // namespace
}  // namespace gpushare
