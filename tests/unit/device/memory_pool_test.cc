// SPDX-License-Identifier: Apache-2.0
// The suballocating strategy on a device: its calls to the driver and the quota, the order of streams, waiting, and
// how it ends. tests/contract tests what all strategies have in common.
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MemoryPoolTest : public StreamTest {
 protected:
  Allocator MakePool(const VirtualDevice& device, AllocatorOptions options = {}) {
    options.strategy = AllocationStrategy::kSuballocating;
    return Must(Allocator::Create(device, std::move(options)));
  }
  static Bytes Charged(const VirtualDevice& device) { return Must(device.stats()).memory.used; }
};

// ---- The driver and the quota ----

TEST_F(MemoryPoolTest, MostAllocationsAskNobody) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB");
  const Allocator direct = Must(Allocator::Create(device)), pool = MakePool(device);
  const Stream stream = Must(Stream::Create(device));
  constexpr uint64_t kPairs = 1000;
  const auto run = [&](auto&& pair) {
    const uint64_t calls = Calls("cuMemAlloc_v2") + Calls("cuMemFree_v2");
    const absl::Duration began = runtime_->Now();
    for (uint64_t i = 0; i < kPairs; ++i) pair(MiB(1 + i % 7));
    return std::pair(Calls("cuMemAlloc_v2") + Calls("cuMemFree_v2") - calls,
                     runtime_->Now() - began);
  };
  ASSERT_OK(Inject("slow call=cuMemAlloc_v2 host=1us"));
  const auto [driver_calls, driver_time] =
      run([&](Bytes size) { EXPECT_OK(Must(direct.Allocate(size)).Free()); });
  const auto [pool_calls, pool_time] =
      run([&](Bytes size) { EXPECT_OK(Must(pool.Allocate(size, stream)).Free()); });
  EXPECT_EQ(driver_calls, 2 * kPairs);
  EXPECT_LE(pool_calls, 4u);
  EXPECT_GE(driver_time, 10 * pool_time);
}

TEST_F(MemoryPoolTest, TheQuotaIsChargedWithSegments) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB");
  const uint64_t before = UsedOnDevice();
  const Allocator pool = MakePool(device);
  EXPECT_EQ(Charged(device), Bytes(0));
  {
    const Allocation small = Must(pool.Allocate(Bytes(100))), large = Must(pool.Allocate(MiB(3)));
    EXPECT_EQ(Charged(device), MiB(22));
    EXPECT_EQ(UsedOnDevice() - before, MiB(22).count());
    const PoolStats stats = Must(pool.stats());
    EXPECT_EQ(stats.reserved, MiB(22));
    EXPECT_EQ(stats.live, MiB(3) + Bytes(512));
    EXPECT_EQ(stats.segments, 2u);
    EXPECT_EQ(stats.allocations, 2u);
    EXPECT_EQ(stats.largest_free, MiB(17));
  }
  EXPECT_EQ(Charged(device), MiB(22));
  EXPECT_OK(pool.Trim(MiB(1)));  // releasing the largest segment is enough
  EXPECT_EQ(Charged(device), MiB(2));
  EXPECT_OK(pool.Trim());
  EXPECT_EQ(Charged(device), Bytes(0));
  EXPECT_EQ(UsedOnDevice(), before);
}

TEST_F(MemoryPoolTest, NearTheQuotaSegmentsAreNoLargerThanNeeded) {
  const VirtualDevice device = MakeDevice("a", "memory=10MiB");
  const Allocator pool = MakePool(device);
  const Allocation three = Must(pool.Allocate(MiB(3)));
  EXPECT_EQ(Charged(device), MiB(3));
  const Allocation seven = Must(pool.Allocate(MiB(7)));
  EXPECT_EQ(Charged(device), MiB(10));
  EXPECT_EQ(pool.Allocate(MiB(1)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Must(device.stats()).memory.denied, 1u);
}

// Another thread gives a segment back, and the device still uses it: it belongs to no pool any more, but is still
// charged.
TEST_F(MemoryPoolTest, NothingIsRefusedWhileAnotherPoolGivesMemoryBack) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device), other = MakePool(device),
                  direct = Must(Allocator::Create(device)),
                  ordered =
                      Must(Allocator::Create(device, {.strategy = AllocationStrategy::kPool}));
  const Stream stream = Must(Stream::Create(device));
  for (const Allocator* asks : {&other, &direct, &ordered}) {
    EXPECT_OK(pool.Free(Must(pool.AllocateRaw(MiB(40)))));
    ASSERT_OK(Spin(stream, absl::Milliseconds(10)));
    const absl::Duration began = runtime_->Now();
    Thread trims = Must(runtime_->StartThread("trims", [&] { EXPECT_OK(pool.Trim()); }));
    runtime_->SleepFor(absl::Milliseconds(1));
    EXPECT_OK(asks->Allocate(MiB(60)).status());
    EXPECT_NEAR(absl::ToDoubleMilliseconds(runtime_->Now() - began), 10, 1);
    trims.Join();
    EXPECT_OK(other.Trim());
    EXPECT_OK(ordered.Trim());
  }
  EXPECT_EQ(Must(device.stats()).memory.denied, 0u);
}

TEST_F(MemoryPoolTest, WhatIsIdleIsGivenUpForOthersOfTheTenant) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device), other = MakePool(device);
  const Allocator direct = Must(Allocator::Create(device));
  EXPECT_OK(Must(pool.Allocate(MiB(40))).Free());
  EXPECT_EQ(Charged(device), MiB(40));
  {
    const Allocation memory = Must(direct.Allocate(MiB(60)));  // a cache must not cause a refusal
    EXPECT_EQ(Charged(device), MiB(60));
  }
  EXPECT_OK(Must(pool.Allocate(MiB(40))).Free());
  const Allocation memory = Must(other.Allocate(MiB(60)));
  EXPECT_EQ(Must(device.stats()).memory.denied, 0u);
}

TEST_F(MemoryPoolTest, ADeviceWithLessThanTheQuotaGivesTheLeastThatServes) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB");
  const Allocator pool = MakePool(device);
  ASSERT_OK(Inject("error call=cuMemAlloc_v2 code=2 nth=1"));  // out of memory
  const Allocation memory = Must(pool.Allocate(MiB(3)));
  ASSERT_OK(Inject("clear"));
  EXPECT_EQ(Charged(device), MiB(3));
  ASSERT_OK(Inject("oom after=0"));
  const auto refused = pool.Allocate(MiB(8));
  ASSERT_OK(Inject("clear"));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("within its quota"));
  EXPECT_EQ(Charged(device), MiB(3));
}

TEST_F(MemoryPoolTest, ASegmentThatTheDriverWouldNotFreeIsThePoolsStill) {
  module_.reset();
  {
    const VirtualDevice device = MakeDevice("a", "memory=20MiB");
    std::optional<Allocator> pool = MakePool(device);
    const auto refused = [&](const auto& call) {
      ASSERT_OK(Inject("error call=cuMemFree_v2 code=999 nth=1"));
      call();
      ASSERT_OK(Inject("clear"));
      EXPECT_EQ(Charged(device), MiB(20));
    };
    EXPECT_OK(Must(pool->Allocate(MiB(3))).Free());
    refused([&] {
      const absl::Status told = pool->Trim();
      EXPECT_EQ(told.code(), absl::StatusCode::kInternal) << told;
      EXPECT_THAT(std::string(told.message()), HasSubstr("cuMemFree"));
    });
    EXPECT_EQ(Must(pool->stats()).reserved, MiB(20));
    EXPECT_EQ(Must(pool->stats()).segments, 1u);
    // The next allocation has it, and the next Trim().
    EXPECT_OK(Must(pool->Allocate(MiB(3))).Free());
    EXPECT_OK(pool->Trim());
    EXPECT_EQ(Must(pool->stats()).reserved, Bytes(0));
    EXPECT_EQ(Charged(device), Bytes(0));
    // Without its allocator, what else is allocated from the quota has it.
    EXPECT_OK(Must(pool->Allocate(MiB(3))).Free());
    refused([&] { pool.reset(); });
    const Allocator direct = Must(Allocator::Create(device));
    runtime_->SleepFor(absl::Milliseconds(1));
    ASSERT_OK(Inject("error call=cuMemFree_v2 code=999"));
    EXPECT_EQ(direct.Allocate(MiB(20)).status().code(), absl::StatusCode::kResourceExhausted);
    ASSERT_OK(Inject("clear"));
    runtime_->SleepFor(absl::Milliseconds(1));
    EXPECT_OK(direct.Allocate(MiB(20)).status());
    EXPECT_EQ(Charged(device), Bytes(0));
    // What the driver would not free at the end either goes with the context.
    pool = MakePool(device);
    EXPECT_OK(Must(pool->Allocate(MiB(3))).Free());
    refused([&] { pool.reset(); });
    ASSERT_OK(Inject("error call=cuMemFree_v2 code=999"));
  }
  EXPECT_OK(gpu_->Close());
  EXPECT_EQ(UsedOnDevice(), 0u);
}

// The driver may refuse without waiting for who uses the memory.
TEST_F(MemoryPoolTest, ASegmentThatTheDriverWouldNotFreeIsForOtherStreamsWhenItsOwnHasComeSoFar) {
  const VirtualDevice device = MakeDevice("a", "memory=20MiB");
  const Allocator pool = MakePool(device);
  const Stream a = Must(Stream::Create(device)), b = Must(Stream::Create(device));
  Allocation held = Must(pool.Allocate(MiB(3), a));
  ASSERT_OK(Spin(a, absl::Milliseconds(10)));
  EXPECT_OK(held.Free());
  ASSERT_OK(Inject("error call=cuMemFree_v2 code=999 nth=1"));
  const absl::Duration began = runtime_->Now();
  EXPECT_FALSE(pool.Trim().ok());
  ASSERT_OK(Inject("clear"));
  EXPECT_OK(pool.Allocate(MiB(20), b).status());
  EXPECT_GE(runtime_->Now() - began, absl::Microseconds(9900));
}

// ---- The order of streams ----

TEST_F(MemoryPoolTest, OtherStreamsGetMemoryWhenTheFirstStreamsWorkIsOver) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device);
  const Stream a = Must(Stream::Create(device)), b = Must(Stream::Create(device));
  const DevicePtr kept = Must(pool.AllocateRaw(MiB(2), a)),
                  first = Must(pool.AllocateRaw(MiB(10), a));
  ASSERT_OK(Spin(a, absl::Milliseconds(10)));
  EXPECT_OK(pool.Free(first));
  // The stream's own work may reuse it at once.
  EXPECT_EQ(Must(pool.AllocateRaw(MiB(10), a)), first);
  EXPECT_OK(pool.Free(first));
  const DevicePtr other = Must(pool.AllocateRaw(MiB(10), b));
  EXPECT_NE(other, first);
  EXPECT_EQ(Must(pool.stats()).segments, 2u);
  ASSERT_OK(a.Synchronize());
  EXPECT_EQ(Must(pool.AllocateRaw(MiB(10), b)), other + MiB(10));
  EXPECT_EQ(Must(pool.AllocateRaw(MiB(10), b)), first);
  EXPECT_EQ(Must(pool.stats()).segments, 2u);
  EXPECT_OK(pool.Free(kept));
}

TEST_F(MemoryPoolTest, MemoryOfADestroyedStreamComesBackWhenItsWorkIsOver) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device);
  const Stream b = Must(Stream::Create(device));
  DevicePtr first, held;
  {
    const Stream a = Must(Stream::Create(device));
    held = Must(pool.AllocateRaw(MiB(3), a));
    first = Must(pool.AllocateRaw(MiB(30), a));
    ASSERT_OK(Spin(a, absl::Milliseconds(10)));
    EXPECT_OK(pool.Free(first));
  }
  const DevicePtr half = Must(pool.AllocateRaw(MiB(12), b));  // what is left of the first segment
  EXPECT_EQ(half, held + MiB(3));
  runtime_->SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(Must(pool.AllocateRaw(MiB(30), b)), first);
  // Memory that is freed after its stream's end is available to all.
  EXPECT_OK(pool.Free(held));
  EXPECT_EQ(Must(pool.AllocateRaw(MiB(3), b)), held);
}

TEST_F(MemoryPoolTest, StreamsOfAnotherGpuAreRefused) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Gpu other = Must(Gpu::Open(*runtime_, "1"));
  const Tenant tenant = MakeTenant("b");
  const VirtualDevice there = Must(VirtualDevice::Create(other, tenant, "memory=64MiB"));
  const Stream stream = Must(Stream::Create(there));
  const Allocator pool = MakePool(device);
  const auto refused = pool.Allocate(MiB(1), stream);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("of GPU 1"));
}

// ---- Waiting ----

class WaitingPoolTest : public MemoryPoolTest {
 protected:
  static AllocatorOptions Waiting(absl::Duration timeout = absl::InfiniteDuration()) {
    return {.over_quota = OverQuota::kWait, .timeout = timeout};
  }
};

TEST_F(WaitingPoolTest, AFreeInThePoolServesAtOnce) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device, Waiting());
  // One segment that stays partly in use and so never goes back to the quota.
  const DevicePtr all = Must(pool.AllocateRaw(MiB(64)));
  EXPECT_OK(pool.Free(all));
  const DevicePtr kept = Must(pool.AllocateRaw(MiB(4)));
  EXPECT_EQ(kept, all);
  const DevicePtr held = Must(pool.AllocateRaw(MiB(60)));
  absl::Duration got;
  {
    Thread waiter = Must(runtime_->StartThread("waiter", [&] {
      EXPECT_EQ(Must(pool.AllocateRaw(MiB(32))), held);
      got = runtime_->Now();
    }));
    runtime_->SleepFor(absl::Milliseconds(5));
    EXPECT_EQ(Must(pool.stats()).waiting, 1u);
    const absl::Duration freed = runtime_->Now();
    EXPECT_OK(pool.Free(held));
    waiter.Join();
    EXPECT_LE(got - freed, absl::Microseconds(20));
  }
  EXPECT_EQ(Must(pool.stats()).waiting, 0u);
  EXPECT_EQ(Must(device.stats()).memory.denied, 0u);
  EXPECT_EQ(Charged(device), MiB(64));
}

TEST_F(WaitingPoolTest, SoDoesAFreeElsewhereInTheQuota) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device, Waiting()), direct = Must(Allocator::Create(device));
  Allocation held = Must(direct.Allocate(MiB(60)));
  absl::Duration got;
  Thread waiter = Must(runtime_->StartThread("waiter", [&] {
    EXPECT_OK(pool.Allocate(MiB(32)).status());
    got = runtime_->Now();
  }));
  runtime_->SleepFor(absl::Milliseconds(5));
  const absl::Duration freed = runtime_->Now();
  EXPECT_OK(held.Free());
  waiter.Join();
  EXPECT_LE(got - freed, absl::Microseconds(100));  // includes the driver's calls
}

TEST_F(WaitingPoolTest, WaitersAreServedInTheOrderOfArrival) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device, Waiting());
  const DevicePtr all = Must(pool.AllocateRaw(MiB(64)));
  std::vector<int> order;
  std::vector<Thread> threads;
  // The first wants much and the others little: they do not overtake it although they would fit.
  for (int i = 0; i < 4; ++i) {
    threads.push_back(Must(runtime_->StartThread("waiter", [&, i] {
      const Allocation memory = Must(pool.Allocate(i == 0 ? MiB(50) : MiB(4)));
      order.push_back(i);
      runtime_->SleepFor(absl::Milliseconds(1));
    })));
    runtime_->SleepFor(absl::Milliseconds(1));
  }
  EXPECT_OK(pool.Free(all));
  threads.clear();
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3));
}

TEST_F(WaitingPoolTest, WhoAsksWhatStreamsHaveDoneKeepsItsPlaceInTheQuota) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device, Waiting());
  const Allocator direct = Must(Allocator::Create(device, Waiting()));
  const Stream busy = Must(Stream::Create(device)), other = Must(Stream::Create(device));
  const Allocation stays = Must(pool.Allocate(KiB(1), busy));
  EXPECT_OK(Must(pool.Allocate(KiB(512), busy)).Free());
  ASSERT_OK(Spin(busy, absl::Milliseconds(100)));
  Allocation held = Must(direct.Allocate(MiB(60)));
  Allocation first, second;
  std::vector<int> served;
  Thread one = Must(runtime_->StartThread("one", [&] {
    first = Must(pool.Allocate(MiB(40), other));
    served.push_back(1);
  }));
  runtime_->SleepFor(absl::Microseconds(100));
  Thread two = Must(runtime_->StartThread("two", [&] {
    second = Must(direct.Allocate(MiB(40)));
    served.push_back(2);
  }));
  runtime_->SleepFor(absl::Milliseconds(10));  // long enough for the first to ask ten times
  EXPECT_OK(held.Free());
  runtime_->SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(served, std::vector<int>{1});
  EXPECT_OK(first.Free());
  EXPECT_OK(pool.Trim());
  two.Join();
  one.Join();
}

TEST_F(WaitingPoolTest, MemoryThatAnotherStreamStillUsesIsWaitedForToo) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device, Waiting());
  const Stream a = Must(Stream::Create(device)), b = Must(Stream::Create(device));
  EXPECT_OK(Must(pool.Allocate(MiB(64), a)).Free());
  const DevicePtr kept = Must(pool.AllocateRaw(MiB(4), a)),
                  held = Must(pool.AllocateRaw(MiB(60), a));
  ASSERT_OK(Spin(a, absl::Milliseconds(20)));
  absl::Duration got;
  Thread waiter = Must(runtime_->StartThread("waiter", [&] {
    EXPECT_OK(pool.AllocateRaw(MiB(32), b).status());
    got = runtime_->Now();
  }));
  runtime_->SleepFor(absl::Milliseconds(5));
  const absl::Duration freed = runtime_->Now();
  EXPECT_OK(pool.Free(
      held));  // returns at once: 15 ms of work still use the memory, and nothing is freed later
  waiter.Join();
  EXPECT_NEAR(absl::ToDoubleMilliseconds(got - freed), 15, 1.5);
  EXPECT_OK(pool.Free(kept));
}

TEST_F(WaitingPoolTest, WhoIsServedByTheQuotaLetsThoseBehindGetOn) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device, Waiting()), direct = Must(Allocator::Create(device));
  const DevicePtr segment = Must(pool.AllocateRaw(MiB(20)));
  EXPECT_OK(pool.Free(segment));
  const DevicePtr kept = Must(pool.AllocateRaw(MiB(10)));
  const DevicePtr part = Must(pool.AllocateRaw(MiB(10)));
  Allocation other = Must(direct.Allocate(MiB(44)));
  Thread first =
      Must(runtime_->StartThread("first", [&] { EXPECT_OK(pool.AllocateRaw(MiB(44)).status()); }));
  runtime_->SleepFor(absl::Milliseconds(1));
  Thread second =
      Must(runtime_->StartThread("second", [&] { EXPECT_OK(pool.AllocateRaw(MiB(5)).status()); }));
  runtime_->SleepFor(absl::Milliseconds(1));
  EXPECT_OK(
      pool.Free(part));  // too little for the first, and enough for the second, which is behind it
  runtime_->SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(Must(pool.stats()).waiting, 2u);
  EXPECT_OK(other.Free());  // exactly as much as the first wants
  first.Join();
  second.Join();
  EXPECT_EQ(Must(pool.stats()).waiting, 0u);
  EXPECT_OK(pool.Free(kept));
}

TEST_F(WaitingPoolTest, WhoMayWaitIsNotRefusedForRoomThatAnotherTook) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device, Waiting());
  ASSERT_OK(Inject("slow call=cuMemAlloc_v2 host=100us"));
  std::vector<Thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.push_back(Must(runtime_->StartThread("waiter", [&] {
      const absl::StatusOr<Allocation> memory = pool.Allocate(MiB(40));
      EXPECT_OK(memory.status());
      runtime_->SleepFor(absl::Milliseconds(1));
    })));
  }
  threads.clear();
  ASSERT_OK(Inject("clear"));
  EXPECT_EQ(Must(device.stats()).memory.denied, 0u);
}

TEST_F(WaitingPoolTest, OtherAllocatorsOfTheTenantGetWhatGoesIdle) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device), direct = Must(Allocator::Create(device, Waiting()));
  const DevicePtr held = Must(pool.AllocateRaw(MiB(60)));
  Thread waiter =
      Must(runtime_->StartThread("waiter", [&] { EXPECT_OK(direct.Allocate(MiB(32)).status()); }));
  runtime_->SleepFor(absl::Milliseconds(1));
  EXPECT_OK(pool.Free(held));
  waiter.Join();
}

TEST_F(WaitingPoolTest, AWaiterTakesWhatIsIdleInOtherPools) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator idle = MakePool(device), pool = MakePool(device, Waiting(absl::Milliseconds(5)));
  EXPECT_OK(Must(idle.Allocate(MiB(60))).Free());
  const absl::Duration began = runtime_->Now();
  EXPECT_OK(pool.Allocate(MiB(32)).status());
  EXPECT_LE(runtime_->Now() - began, absl::Milliseconds(1));
}

TEST_F(WaitingPoolTest, ASmallRequestGetsRoomInALargeSegment) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device, Waiting());
  EXPECT_OK(Must(pool.Allocate(MiB(64))).Free());
  const DevicePtr kept = Must(pool.AllocateRaw(MiB(60))), part = Must(pool.AllocateRaw(MiB(4)));
  Thread waiter = Must(
      runtime_->StartThread("waiter", [&] { EXPECT_OK(pool.AllocateRaw(Bytes(4096)).status()); }));
  runtime_->SleepFor(absl::Milliseconds(1));
  EXPECT_OK(pool.Free(part));
  waiter.Join();
  EXPECT_OK(pool.Free(kept));
}

TEST_F(WaitingPoolTest, AShrunkQuotaEndsAHopelessWait) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device, Waiting(absl::Seconds(1)));
  const DevicePtr held = Must(pool.AllocateRaw(MiB(64)));
  EXPECT_EQ(pool.AllocateRaw(MiB(65)).status().code(), absl::StatusCode::kResourceExhausted);
  Thread waiter =
      Must(runtime_->StartThread("waiter", [&] { EXPECT_FALSE(pool.AllocateRaw(MiB(32)).ok()); }));
  runtime_->SleepFor(absl::Milliseconds(1));
  EXPECT_OK(device.Resize("memory=16MiB"));
  waiter.Join();
  EXPECT_EQ(Must(pool.stats()).waiting, 0u);
  EXPECT_OK(pool.Free(held));
}

TEST_F(MemoryPoolTest, GrowingWithinACaptureBreaksNothing) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device);
  const Stream stream = Must(Stream::Create(device));
  EXPECT_OK(Must(pool.Allocate(MiB(30))).Free());
  ASSERT_OK(stream.BeginCapture());
  ASSERT_OK(Spin(stream, absl::Microseconds(10)));
  const Allocation memory = Must(pool.Allocate(MiB(40)));  // replaces the idle segment
  const absl::StatusOr<Graph> graph = stream.EndCapture();
  EXPECT_OK(graph.status());
  EXPECT_EQ(Charged(device), MiB(40));
}

TEST_F(MemoryPoolTest, AStreamThatEndsWhileAnotherCapturesLeavesItsMemoryToOthers) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device);
  const Stream capturing = Must(Stream::Create(device)), b = Must(Stream::Create(device));
  const DevicePtr kept = Must(pool.AllocateRaw(MiB(2)));
  DevicePtr freed;
  ASSERT_OK(capturing.BeginCapture());
  {
    const Stream gone = Must(Stream::Create(device));
    freed = Must(pool.AllocateRaw(MiB(10), gone));
    EXPECT_OK(pool.Free(freed));
  }
  EXPECT_OK(capturing.EndCapture().status());
  EXPECT_EQ(Must(pool.AllocateRaw(MiB(10), b)), freed);
  EXPECT_OK(pool.Free(kept));
}

TEST_F(MemoryPoolTest, AForeignStreamGoesOnCapturingWhenItIsUnbound) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device);
  const Stream own = Must(Stream::Create(device));
  CUstream_st* native = nullptr;
  ASSERT_EQ(runtime_->Symbol<int(CUstream_st**, unsigned)>("cuStreamCreate")(&native, 1), 0);
  {
    const Stream bound = Must(Stream::Bind(device, native));
    EXPECT_OK(Must(pool.Allocate(MiB(3), bound)).Free());
    ASSERT_EQ(runtime_->Symbol<int(CUstream_st*, int)>("cuStreamBeginCapture_v2")(native, 1), 0);
  }
  void* graph = nullptr;
  EXPECT_EQ(runtime_->Symbol<int(CUstream_st*, void**)>("cuStreamEndCapture")(native, &graph), 0);
  EXPECT_NE(graph, nullptr);
  EXPECT_EQ(runtime_->Symbol<int(CUstream_st*)>("cuStreamDestroy_v2")(native), 0);
}

TEST_F(MemoryPoolTest, AnImpossibleRequestLeavesThePoolAlone) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device);
  EXPECT_OK(Must(pool.Allocate(MiB(30))).Free());
  EXPECT_FALSE(pool.Allocate(GiB(1)).ok());
  EXPECT_EQ(Charged(device), MiB(30));
}

TEST_F(WaitingPoolTest, ADeadlineEndsTheWait) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device, Waiting(absl::Milliseconds(7)));
  const DevicePtr held = Must(pool.AllocateRaw(MiB(60)));
  const absl::Duration began = runtime_->Now();
  const auto late = pool.AllocateRaw(MiB(32));
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded) << late.status();
  EXPECT_NEAR(absl::ToDoubleMilliseconds(runtime_->Now() - began), 7, 0.1);
  EXPECT_EQ(Must(pool.stats()).waiting, 0u);
  EXPECT_OK(pool.Free(held));
  EXPECT_OK(pool.Allocate(MiB(32)).status());
}

TEST_F(MemoryPoolTest, ReclaimFreesWithinThePool) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  std::vector<Allocation> cache;
  const Allocator pool =
      MakePool(device, {.over_quota = OverQuota::kReclaim, .reclaim = [&](Bytes, Bytes) {
                          if (cache.empty()) return false;
                          cache.pop_back();
                          return true;
                        }});
  for (int i = 0; i < 6; ++i) cache.push_back(Must(pool.Allocate(MiB(10))));
  EXPECT_OK(pool.Allocate(MiB(10)).status());
  EXPECT_EQ(cache.size(), 5u);  // 4 MiB were left, and one cache's memory was enough
}

// ---- Its end ----

TEST_F(MemoryPoolTest, MemoryOutlivesTheAllocatorAndTheVirtualDevice) {
  const uint64_t before = UsedOnDevice();
  DevicePtr one, two;
  {
    const VirtualDevice device = MakeDevice("a", "memory=64MiB");
    const Allocator pool = MakePool(device);
    one = Must(pool.AllocateRaw(MiB(3)));
    two = Must(pool.AllocateRaw(MiB(30)));
    EXPECT_OK(Must(pool.Allocate(Bytes(4096))).Free());
  }
  // The idle memory ended with the allocator.
  EXPECT_EQ(UsedOnDevice() - before, MiB(50).count());
  EXPECT_OK(gpu_->Free(two));
  EXPECT_EQ(UsedOnDevice() - before, MiB(20).count());
  EXPECT_FALSE(gpu_->Free(one + Bytes(512)).ok());
  EXPECT_OK(gpu_->Free(one));
  EXPECT_EQ(UsedOnDevice(), before);
  EXPECT_FALSE(gpu_->Free(one).ok());
  // The whole device can be promised again.
  MakeDevice("a", "memory=7GiB");
}

TEST_F(MemoryPoolTest, AClosingGpuFreesWhatPoolsHold) {
  module_.reset();
  {
    const VirtualDevice device = MakeDevice("a", "memory=64MiB");
    const Allocator pool = MakePool(device);
    EXPECT_TRUE(static_cast<bool>(Must(pool.AllocateRaw(MiB(3)))));
  }
  EXPECT_OK(gpu_->Close());
  EXPECT_EQ(UsedOnDevice(), 0u);
}

TEST_F(MemoryPoolTest, PointersAreFoundAndFreedThroughOtherAllocators) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB"),
                      stranger = MakeDevice("b", "memory=64MiB");
  const Allocator pool = MakePool(device), other = MakePool(stranger),
                  direct = Must(Allocator::Create(stranger));
  const DevicePtr one = Must(pool.AllocateRaw(MiB(3))), two = Must(pool.AllocateRaw(MiB(4)));
  uint64_t bytes = 0;
  EXPECT_EQ(gpushare_gpu_pointer(gpu_->handle(), two.value(), &bytes, nullptr), GPUSHARE_OK);
  EXPECT_EQ(bytes, MiB(4).count());
  EXPECT_EQ(gpushare_gpu_pointer(gpu_->handle(), two.value() + 512, &bytes, nullptr),
            GPUSHARE_NOT_FOUND);
  EXPECT_OK(direct.Free(one));
  EXPECT_OK(other.Free(two));
  EXPECT_EQ(Must(pool.stats()).live, Bytes(0));
  const absl::Status again = direct.Free(one);  // the start of the segment
  EXPECT_EQ(again.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(again.message()), HasSubstr("it was freed before"));
  EXPECT_EQ(Charged(device), MiB(20));
}

TEST_F(MemoryPoolTest, AnAllocatorWithoutAPoolSaysSo) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator direct = Must(Allocator::Create(device));
  EXPECT_EQ(direct.Trim().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(direct.stats().status().code(), absl::StatusCode::kFailedPrecondition);
  // A free in the order of a stream is still possible, since an allocation of the driver's follows every stream.
  const Stream stream = Must(Stream::Create(device));
  Allocation memory = Must(direct.Allocate(MiB(1), stream));
  EXPECT_OK(direct.Free(memory.release(), stream));
  EXPECT_EQ(Charged(device), Bytes(0));
}

// ---- Real threads ----

class MemoryPoolThreadsTest : public MemoryPoolTest {
 protected:
  std::string config() const override { return "sms=100,memory=8GiB,clock=wall"; }
};

TEST_F(MemoryPoolThreadsTest, ThreadsShareAPool) {
  const VirtualDevice device = MakeDevice("a", "memory=256MiB");
  const Allocator pool =
      MakePool(device, {.over_quota = OverQuota::kWait, .timeout = absl::InfiniteDuration()});
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Stream stream = Must(Stream::Create(device));
      unsigned random = t * 7919 + 1;
      std::vector<Allocation> live;
      for (int i = 0; i < 1000; ++i) {
        random = random * 1664525 + 1013904223;
        absl::StatusOr<Allocation> memory =
            pool.Allocate(Bytes(1 + (random >> 8) % (6u << 20)), stream);
        if (!memory.ok()) {
          ++failed;
          continue;
        }
        live.push_back(*std::move(memory));
        // It waits with at most 12 MiB held, so that no wait lasts for ever.
        if (live.size() == 3 || random % 5 == 0) live.clear();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  const PoolStats stats = Must(pool.stats());
  EXPECT_EQ(stats.live, Bytes(0));
  EXPECT_EQ(stats.waiting, 0u);
  EXPECT_LE(stats.peak_reserved, MiB(256));
  EXPECT_OK(pool.Trim());
  EXPECT_EQ(Charged(device), Bytes(0));
}

}  // namespace
}  // namespace gpushare
