// SPDX-License-Identifier: Apache-2.0
// The strategy `swappable`: memory that leaves the device while its virtual device is suspended, and comes back.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <latch>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpushare/interrupt.h"
#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;

const AllocatorOptions kSwappable = {.strategy = AllocationStrategy::kSwappable};
constexpr Bytes kGranule = MiB(2);

Bytes Granules(Bytes size) {
  return Bytes((size.count() + kGranule.count() - 1) / kGranule.count() * kGranule.count());
}

// What is in `size` bytes at a place of its own.
const std::vector<uint8_t>& Pattern(Bytes size, uint32_t seed) {
  static std::map<std::pair<uint64_t, uint32_t>, std::vector<uint8_t>> made;
  std::vector<uint8_t>& bytes = made[{size.count(), seed}];
  if (!bytes.empty()) return bytes;
  bytes.resize(size.count());
  uint32_t state = seed * 2654435761u + 1;
  for (uint8_t& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return bytes;
}

class SwappableTest : public StreamTest {
 protected:
  // 256 MiB to promise.
  std::string config() const override {
    return "sms=100,memory=1280MiB,overlap=serial,clock=virtual,h2d=10GB/s,d2h=10GB/s";
  }
  void SetUp() override {
    StreamTest::SetUp();
    used_before_ = UsedOnDevice();
  }
  Allocator Swappable(const VirtualDevice& device) {
    return Must(Allocator::Create(device, kSwappable));
  }
  // Allocations of these sizes, each with a pattern of its own.
  std::vector<Allocation> Fill(const VirtualDevice& device, const Allocator& memory,
                               const std::vector<Bytes>& sizes) {
    const Stream stream = Must(Stream::Create(device));
    std::vector<Allocation> filled;
    for (const Bytes size : sizes) {
      filled.push_back(Must(memory.Allocate(size)));
      const auto& bytes = Pattern(size, static_cast<uint32_t>(filled.size()));
      EXPECT_OK(stream.CopyToDevice(filled.back().pointer(), bytes.data(), size));
    }
    return filled;
  }
  void ExpectIntact(const VirtualDevice& device, const std::vector<Allocation>& filled) {
    const Stream stream = Must(Stream::Create(device));
    for (size_t i = 0; i < filled.size(); ++i) {
      std::vector<uint8_t> bytes(filled[i].size().count());
      EXPECT_OK(stream.CopyToHost(bytes.data(), filled[i].pointer(), filled[i].size()));
      EXPECT_TRUE(bytes == Pattern(filled[i].size(), static_cast<uint32_t>(i + 1))) << i;
    }
  }
  Bytes Used(const VirtualDevice& device) { return Must(device.stats()).memory.used; }
  Bytes Swapped(const VirtualDevice& device) { return Must(device.stats()).memory.swapped; }
  // Looks in a while, from a thread of its own, that nothing has begun to move: the simulated driver itself waits for all
  // work before it unmaps anything.
  Thread ExpectStillIn(const VirtualDevice& device, absl::Duration in) {
    return Must(runtime_->StartThread("looks", [this, &device, in] {
      runtime_->SleepFor(in);
      EXPECT_EQ(Swapped(device), Bytes(0));
    }));
  }
  // Past gpushare, on a stream that it does not know.
  void LaunchUnseen(const VirtualDevice& device, const Function& function, absl::Duration cost) {
    ASSERT_EQ(runtime_->Symbol<int(CUctx_st*)>("cuCtxPushCurrent_v2")(device.native_context()), 0);
    CUstream_st* foreign = nullptr;
    ASSERT_EQ(runtime_->Symbol<int(CUstream_st**, unsigned)>("cuStreamCreate")(&foreign, 1), 0);
    auto* const launch =
        runtime_->Symbol<int(CUfunc_st*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, CUstream_st*, void**, void**)>("cuLaunchKernel");
    auto ns = static_cast<uint64_t>(absl::ToInt64Nanoseconds(cost));
    void* params[] = {&ns};
    ASSERT_EQ(launch(function.native(), 100, 1, 1, 1024, 1, 1, 0, foreign, params, nullptr), 0);
    ASSERT_EQ(runtime_->Symbol<int(CUstream_st*)>("cuStreamDestroy_v2")(foreign), 0);
    CUctx_st* popped = nullptr;
    ASSERT_EQ(runtime_->Symbol<int(CUctx_st**)>("cuCtxPopCurrent_v2")(&popped), 0);
  }
  Bytes OnDevice() { return Bytes(UsedOnDevice() - used_before_); }

  uint64_t used_before_ = 0;
};

TEST_F(SwappableTest, LeavesTheDeviceAndComesBackAtTheSameAddresses) {
  const VirtualDevice device = MakeDevice("a", "memory=128MiB");
  const Allocator memory = Swappable(device);
  const std::vector<Bytes> sizes = {Bytes(1), MiB(2), MiB(3) + Bytes(5), MiB(8), MiB(17)};
  Bytes all;
  for (const Bytes size : sizes) all += Granules(size);
  std::vector<Allocation> filled = Fill(device, memory, sizes);
  std::vector<DevicePtr> pointers;
  for (const Allocation& one : filled) pointers.push_back(one.pointer());
  EXPECT_EQ(Used(device), all);
  EXPECT_EQ(OnDevice(), all);

  for (uint64_t round = 1; round <= 3; ++round) {
    ASSERT_OK(device.Suspend());
    EXPECT_EQ(Used(device), Bytes(0));
    EXPECT_EQ(OnDevice(), Bytes(0));
    EXPECT_EQ(Swapped(device), all);
    ASSERT_OK(device.Suspend());  // of what is out: nothing
    ASSERT_OK(device.Resume());
    EXPECT_EQ(Used(device), all);
    EXPECT_EQ(OnDevice(), all);
    EXPECT_EQ(Swapped(device), Bytes(0));
    ExpectIntact(device, filled);
    const VirtualDeviceStats stats = Must(device.stats());
    EXPECT_EQ(stats.swaps.out, round);
    EXPECT_EQ(stats.swaps.in, round);
    EXPECT_EQ(stats.swaps.out_bytes, Bytes(round * all.count()));
    EXPECT_EQ(stats.swaps.in_bytes, Bytes(round * all.count()));
    EXPECT_GT(stats.swaps.time, absl::ZeroDuration());
    EXPECT_EQ(stats.memory.allocations, sizes.size());
  }
  filled.clear();
  EXPECT_EQ(Used(device), Bytes(0));
  EXPECT_EQ(OnDevice(), Bytes(0));
}

TEST_F(SwappableTest, OtherStrategiesStayWhereTheyAre) {
  const VirtualDevice device = MakeDevice("a", "memory=128MiB");
  const Allocator direct = Must(Allocator::Create(device)), memory = Swappable(device);
  const Allocation stays = Must(direct.Allocate(MiB(10)));
  const std::vector<Allocation> filled = Fill(device, memory, {MiB(4)});
  ASSERT_OK(device.Suspend());
  EXPECT_EQ(Used(device), MiB(10));
  EXPECT_EQ(OnDevice(), MiB(10));
  ASSERT_OK(device.Resume());
  ExpectIntact(device, filled);
}

TEST_F(SwappableTest, WhatIsAllocatedWhileSuspendedComesAlongTheNextTime) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator memory = Swappable(device);
  const std::vector<Allocation> filled = Fill(device, memory, {MiB(32)});
  ASSERT_OK(device.Suspend());
  const Allocation later = Must(memory.Allocate(MiB(40)));  // more than there was room for
  EXPECT_EQ(Used(device), MiB(40));
  const absl::Status full = device.Resume();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("tenant 'a' on GPU 0 stays suspended, with its swappable memory in the "
                        "host's: tenant 'a' on GPU 0: 32 MiB asked, 24 MiB left"));
  EXPECT_EQ(ErrorDetail::Of(full)->limit, "memory");
  ASSERT_OK(device.Suspend());
  EXPECT_EQ(Used(device), Bytes(0));
  EXPECT_EQ(Swapped(device), MiB(72));
  ASSERT_OK(device.Resize("memory=128MiB"));
  ASSERT_OK(device.Resume());
  EXPECT_EQ(Used(device), MiB(72));
  ExpectIntact(device, filled);
}

// ---- Room ----

TEST_F(SwappableTest, OthersHaveTheMemoryMeanwhile) {
  const VirtualDevice owner = MakeDevice("owner", "memory=192MiB");
  const VirtualDevice borrower = MakeDevice("borrower", "memory=64MiB,memory_cap=256MiB");
  const Allocator memory = Swappable(owner), theirs = Must(Allocator::Create(borrower));
  const std::vector<Allocation> filled = Fill(owner, memory, {MiB(16)});
  const Allocation rest = Must(memory.Allocate(MiB(176)));
  EXPECT_FALSE(theirs.Allocate(MiB(128)).ok());
  ASSERT_OK(owner.Suspend());
  Allocation borrowed = Must(theirs.Allocate(MiB(128)));
  EXPECT_EQ(Must(owner.stats()).memory.lent, MiB(64));

  const absl::Status lent = owner.Resume();
  EXPECT_EQ(lent.code(), absl::StatusCode::kResourceExhausted) << lent;
  EXPECT_THAT(std::string(lent.message()), HasSubstr("lent to others"));
  EXPECT_EQ(Used(owner), Bytes(0));
  EXPECT_EQ(Swapped(owner), MiB(192));
  EXPECT_TRUE(Must(owner.stats()).suspended);

  // It is asked for it, as for an allocation of the owner's.
  Bytes asked;
  ASSERT_OK(borrower.OnReclaim([&](Bytes wanted) {
    asked = wanted;
    return borrowed.Free().ok();
  }));
  ASSERT_OK(owner.Resume());
  EXPECT_EQ(asked, MiB(64));
  ExpectIntact(owner, filled);
}

TEST_F(SwappableTest, TheReturnWaitsAsTheAllocatorSays) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator memory =
      Must(Allocator::Create(device, {.strategy = AllocationStrategy::kSwappable,
                                      .over_quota = OverQuota::kWait,
                                      .timeout = absl::Seconds(1)}));
  const std::vector<Allocation> filled = Fill(device, memory, {MiB(32)});
  ASSERT_OK(device.Suspend());
  Allocation other = Must(memory.Allocate(MiB(64)));
  absl::Duration began = runtime_->Now();
  EXPECT_EQ(device.Resume().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(runtime_->Now() - began, absl::Seconds(1));
  EXPECT_LE(runtime_->Now() - began, absl::Milliseconds(1100));
  EXPECT_EQ(Swapped(device), MiB(32));

  // What one allocation says for itself counts as well.
  EXPECT_OK(other.Free());
  const Allocation patient =
      Must(memory.Allocate(MiB(2), AllocateOptions{.timeout = absl::Seconds(3)}));
  ASSERT_OK(device.Suspend());
  other = Must(memory.Allocate(MiB(64)));
  began = runtime_->Now();
  EXPECT_EQ(device.Resume().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(runtime_->Now() - began, absl::Seconds(3));

  // The free, which gives up swappable memory itself, is not held up by who waits.
  began = runtime_->Now();
  Thread frees = Must(runtime_->StartThread("frees", [&] {
    runtime_->SleepFor(absl::Milliseconds(100));
    EXPECT_OK(other.Free());
  }));
  ASSERT_OK(device.Resume());
  EXPECT_GE(runtime_->Now() - began, absl::Milliseconds(100));
  EXPECT_LE(runtime_->Now() - began, absl::Milliseconds(120));
  ExpectIntact(device, filled);
}

TEST_F(SwappableTest, TheDeviceItselfMayBeFull) {
  const VirtualDevice device = MakeDevice("a", "memory=256MiB");
  const Allocator memory = Swappable(device);
  std::vector<Allocation> filled = Fill(device, memory, {MiB(16), MiB(16)});
  const Allocation rest = Must(memory.Allocate(MiB(160)));
  ASSERT_OK(device.Suspend());
  // Past gpushare.
  auto* alloc = runtime_->Symbol<int(unsigned long long*, size_t)>("cuMemAlloc_v2");
  auto* free = runtime_->Symbol<int(unsigned long long)>("cuMemFree_v2");
  unsigned long long foreign = 0;
  ASSERT_EQ(alloc(&foreign, size_t{1100} << 20), 0);
  const absl::Status full = device.Resume();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_EQ(ErrorDetail::Of(full)->limit, "device");
  EXPECT_EQ(Used(device), Bytes(0));
  EXPECT_EQ(OnDevice(), MiB(1100));
  ASSERT_EQ(free(foreign), 0);
  ASSERT_OK(device.Resume());
  ExpectIntact(device, filled);
}

// ---- Frees ----

TEST_F(SwappableTest, IsFreedWhileItIsOut) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator memory = Swappable(device);
  std::vector<Allocation> filled = Fill(device, memory, {MiB(8), MiB(6)});
  ASSERT_OK(device.Suspend());
  EXPECT_OK(filled.back().Free());
  filled.pop_back();
  EXPECT_EQ(Swapped(device), MiB(8));
  EXPECT_EQ(Must(device.stats()).memory.allocations, 1u);
  ASSERT_OK(device.Resume());
  EXPECT_EQ(Used(device), MiB(8));
  ExpectIntact(device, filled);
}

TEST_F(SwappableTest, OutlivesItsVirtualDevice) {
  std::vector<Allocation> filled;
  for (const bool out : {false, true}) {
    const VirtualDevice device = MakeDevice(out ? "out" : "in", "memory=64MiB");
    const Allocator memory = Swappable(device);
    for (Allocation& one : Fill(device, memory, {MiB(8), MiB(4)})) filled.push_back(std::move(one));
    if (out) {
      ASSERT_OK(device.Suspend());
    }
  }
  EXPECT_EQ(OnDevice(), MiB(12));
  // One of each is freed, the other left to the GPU's end.
  EXPECT_OK(filled[0].Free());
  EXPECT_OK(filled[2].Free());
  EXPECT_EQ(OnDevice(), MiB(4));
  for (Allocation& one : filled) static_cast<void>(one.release());
  module_.reset();
  filled.clear();
  EXPECT_OK(gpu_->Close());
  EXPECT_EQ(UsedOnDevice(), 0u);
  EXPECT_EQ(Calls("cuMemHostAlloc"), Calls("cuMemFreeHost"));
  EXPECT_EQ(Calls("cuMemAddressReserve"), Calls("cuMemAddressFree"));
}

TEST_F(SwappableTest, AFreeWaitsForWhoUsesIt) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator memory = Swappable(device);
  Allocation used = Must(memory.Allocate(MiB(2)));
  const Stream stream = Must(Stream::Create(device));
  const absl::Duration began = runtime_->Now();
  ASSERT_OK(Spin(stream, absl::Milliseconds(10)));
  const uint64_t waits = Calls("cuCtxSynchronize");
  ASSERT_OK(used.Free());
  EXPECT_GE(runtime_->Now() - began, absl::Milliseconds(10));
  EXPECT_GT(Calls("cuCtxSynchronize"), waits);  // other drivers do not wait when they unmap
}

// ---- Work ----

TEST_F(SwappableTest, WaitsForWhatRunsAlsoOfStreamsThatAreGone) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB"),
                      other = MakeDevice("b", "memory=64MiB");
  const Stream of_other = Must(Stream::Create(other));
  const Allocator memory = Swappable(device);
  const Allocation some = Must(memory.Allocate(MiB(2)));
  for (const bool gone : {false, true}) {
    const absl::Duration began = runtime_->Now();
    std::optional<Stream> stream(Must(Stream::Create(device)));
    ASSERT_OK(Spin(*stream, absl::Milliseconds(10)));
    if (gone) stream.reset();
    Thread looks = ExpectStillIn(device, absl::Milliseconds(9));
    ASSERT_OK(device.Suspend());
    EXPECT_GE(runtime_->Now() - began, absl::Milliseconds(10)) << gone;
    EXPECT_LE(runtime_->Now() - began, absl::Milliseconds(13)) << gone;
    EXPECT_EQ(Used(device), Bytes(0));
    ASSERT_OK(device.Resume());
  }
}

// The legacy stream stays when nobody is bound to it any more, and so does what it was given.
TEST_F(SwappableTest, WaitsForWhatRunsOnTheLegacyStreamThatIsBoundNoMore) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator memory = Swappable(device);
  const Allocation some = Must(memory.Allocate(MiB(2)));
  {
    const Stream legacy = Must(Stream::Bind(device, nullptr));
    ASSERT_OK(Spin(legacy, absl::Milliseconds(10)));
  }
  const uint64_t waits = Calls("cuCtxSynchronize");
  Thread looks = ExpectStillIn(device, absl::Milliseconds(9));
  ASSERT_OK(device.Suspend());
  EXPECT_GT(Calls("cuCtxSynchronize"), waits);
  looks.Join();
  ASSERT_OK(device.Resume());
}

TEST_F(SwappableTest, WaitsForALaunchThatIsOnItsWayToTheDriver) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Stream stream = Must(Stream::Create(device));
  for (int i = 0; i < 200; ++i) {  // until its cost is known
    ASSERT_OK(Spin(stream, absl::Microseconds(10)));
    ASSERT_OK(stream.Synchronize());
  }
  const Allocator memory = Swappable(device);
  const Allocation some = Must(memory.Allocate(MiB(2)));
  // The third of them is paid for by what the first was granted, without a word to the gate.
  ASSERT_OK(Inject("slow call=cuLaunchKernel nth=3 host=1ms"));
  bool launched = false;
  Thread launches = Must(runtime_->StartThread("launches", [&] {
    for (int i = 0; i < 3; ++i) EXPECT_OK(Spin(stream, absl::Microseconds(10)));
    launched = true;
  }));
  runtime_->SleepFor(absl::Microseconds(500));
  EXPECT_FALSE(launched);
  ASSERT_OK(device.Suspend());
  EXPECT_TRUE(launched);
}

TEST_F(SwappableTest, LaunchesAndCopiesAreHeldUntilItIsBack) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Stream before = Must(Stream::Create(device));
  const Allocator memory = Swappable(device);
  const Stream after = Must(Stream::Create(device));
  const Allocation some = Must(memory.Allocate(MiB(2)));
  ASSERT_OK(device.Suspend());
  for (const Stream* stream : {&before, &after}) {
    LaunchShape shape = Whole();
    shape.timeout = absl::Milliseconds(1);
    EXPECT_EQ(stream->Launch(spin_, shape, uint64_t{1000}).code(),
              absl::StatusCode::kDeadlineExceeded);
  }
  absl::Duration copied;
  Thread copies = Must(runtime_->StartThread("copies", [&] {
    uint8_t byte = 7;
    EXPECT_OK(before.CopyToDevice(some.pointer(), &byte, Bytes(1)));
    copied = runtime_->Now();
  }));
  runtime_->SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(copied, absl::Duration());
  const absl::Duration resumed = runtime_->Now();
  ASSERT_OK(device.Resume());
  copies.Join();
  EXPECT_GE(copied, resumed);
}

TEST_F(SwappableTest, WorkThatNeverEndsKeepsItOnTheDevice) {
  const VirtualDevice device = MakeDevice("stuck", "memory=64MiB");
  const Allocator memory = Swappable(device);
  const std::vector<Allocation> filled = Fill(device, memory, {MiB(4)});
  const Stream stream = Must(Stream::Create(device));
  ASSERT_OK(Inject("hang kernel=spin"));
  ASSERT_OK(Spin(stream, absl::Microseconds(10)));
  const absl::Duration began = runtime_->Now();
  const absl::Status late = device.Suspend();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("its work still runs"));
  EXPECT_GE(runtime_->Now() - began, absl::Nanoseconds(GPUSHARE_CLOSE_GRACE_NS));
  EXPECT_EQ(Used(device), MiB(4));
  EXPECT_TRUE(Must(device.stats()).suspended);
  ASSERT_OK(Inject("clear"));
  ASSERT_OK(device.Suspend());
  EXPECT_EQ(Used(device), Bytes(0));
  ASSERT_OK(device.Resume());
  ExpectIntact(device, filled);
}

TEST_F(SwappableTest, WaitsForLeases) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator memory = Swappable(device);
  const std::vector<Allocation> filled = Fill(device, memory, {MiB(4)});
  std::optional<Lease> lease(Must(Lease::Acquire(device)));
  const absl::Status own = device.Suspend();
  EXPECT_EQ(own.code(), absl::StatusCode::kFailedPrecondition) << own;
  EXPECT_EQ(Used(device), MiB(4));
  lease.reset();
  ASSERT_OK(device.Resume());

  const absl::Duration began = runtime_->Now();
  Thread holds = Must(runtime_->StartThread("holds", [&] {
    const Lease held = Must(Lease::Acquire(device));
    runtime_->SleepFor(absl::Milliseconds(20));
    // What the holder does is not held, whatever is suspended meanwhile.
    EXPECT_EQ(Used(device), MiB(4));
  }));
  runtime_->SleepFor(absl::Milliseconds(1));
  ASSERT_OK(device.Suspend());
  EXPECT_GE(runtime_->Now() - began, absl::Milliseconds(20));
  EXPECT_EQ(Used(device), Bytes(0));
  ASSERT_OK(device.Resume());
  ExpectIntact(device, filled);
}

// What a child has out is out of its parent's quota too, and a sibling may have the room.
TEST_F(SwappableTest, AChildLeavesItsParentsQuotaAsWell) {
  const Tenant team = MakeTenant("team");
  const VirtualDevice all = Must(VirtualDevice::Create(*gpu_, team, "memory=64MiB"));
  const auto child = [&](const std::string& name, std::string_view spec) {
    const Tenant tenant = Must(Tenant::Create(*runtime_, {.name = name, .parent = &team}));
    return Must(VirtualDevice::Create(*gpu_, tenant, spec));
  };
  const VirtualDevice a = child("a", "memory=48MiB"), b = child("b", "");
  const Allocator memory = Must(Allocator::Create(a, {.strategy = AllocationStrategy::kSwappable}));
  const Allocator direct =
      Must(Allocator::Create(b, {.over_quota = OverQuota::kWait, .timeout = absl::Seconds(1)}));
  const std::vector<Allocation> filled = Fill(a, memory, {MiB(32), MiB(8)});
  EXPECT_EQ(Used(a), MiB(40));
  EXPECT_EQ(Used(all), MiB(40));
  EXPECT_EQ(memory.Allocate(MiB(9)).status().code(), absl::StatusCode::kResourceExhausted);

  // The parent's suspension is of its own memory.
  const Allocator parents = Swappable(all);
  const Allocation own = Must(parents.Allocate(MiB(2)));
  ASSERT_OK(all.Suspend());
  EXPECT_EQ(Swapped(all), MiB(2));
  EXPECT_EQ(Used(all), MiB(40));
  ASSERT_OK(all.Resume());
  EXPECT_EQ(Used(all), MiB(42));

  // A sibling that waits for room has it at once.
  Allocation siblings;
  absl::Duration served;
  Thread waits = Must(runtime_->StartThread("waits", [&] {
    siblings = Must(direct.Allocate(MiB(56)));
    served = runtime_->Now();
  }));
  runtime_->SleepFor(absl::Milliseconds(10));
  ASSERT_OK(a.Suspend());
  const absl::Duration left = runtime_->Now();
  waits.Join();
  EXPECT_LE(served - left, absl::Milliseconds(1));
  EXPECT_EQ(Used(a), Bytes(0));
  EXPECT_EQ(Swapped(a), MiB(40));
  EXPECT_EQ(Used(all), MiB(58));
  EXPECT_EQ(OnDevice(), MiB(58));

  const absl::Status refused = a.Resume();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("left of the memory quota of its parent 'team'"));
  EXPECT_TRUE(Must(a.stats()).suspended);
  EXPECT_EQ(Used(all), MiB(58));
  ASSERT_OK(siblings.Free());
  ASSERT_OK(a.Resume());
  EXPECT_EQ(Used(all), MiB(42));
  ExpectIntact(a, filled);
}

// A request that waits is no lease: the suspension does not wait for it, and the gate holds it. One that was granted is.
TEST_F(SwappableTest, WaitsForLeasesThatWereAskedForOnceTheyAreThere) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB"), other = MakeDevice("b", "");
  const Allocator memory = Swappable(device);
  const std::vector<Allocation> filled = Fill(device, memory, {MiB(4)});
  std::optional<Lease> holds(Must(Lease::Acquire(other, {.exclusive = true})));
  LeaseRequest request = Must(LeaseRequest::Ask(device, {.timeout = absl::Seconds(100)}));
  runtime_->SleepFor(absl::Milliseconds(1));
  ASSERT_OK(device.Suspend());
  EXPECT_EQ(Used(device), Bytes(0));
  holds.reset();
  runtime_->SleepFor(absl::Milliseconds(10));
  EXPECT_EQ(request.Take().status().code(), absl::StatusCode::kUnavailable);
  ASSERT_OK(device.Resume());
  runtime_->SleepFor(absl::Milliseconds(10));

  // It is there, and not taken yet.
  const absl::Status held = device.Suspend();
  EXPECT_EQ(held.code(), absl::StatusCode::kDeadlineExceeded) << held;
  EXPECT_THAT(std::string(held.message()), HasSubstr("a lease of it is still held"));
  EXPECT_EQ(Used(device), MiB(4));
  EXPECT_OK(request.Cancel());
  ASSERT_OK(device.Suspend());
  EXPECT_EQ(Used(device), Bytes(0));
  ASSERT_OK(device.Resume());
  ExpectIntact(device, filled);
}

// Else each would wait for the other.
TEST_F(SwappableTest, CopiesOfALeaseGoOnWhileTheSuspensionWaitsForIt) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator memory = Swappable(device);
  const std::vector<Allocation> filled = Fill(device, memory, {MiB(4)});
  const Stream stream = Must(Stream::Create(device));
  const Bytes size = filled[0].size();
  std::vector<uint8_t> host(size.count());
  void* pinned = nullptr;  // what a graph can copy to
  const auto allocate = runtime_->Symbol<int(void**, size_t)>("cuMemAllocHost_v2");
  ASSERT_EQ(allocate(&pinned, size.count()), 0);
  ASSERT_OK(stream.BeginCapture());
  ASSERT_OK(stream.CopyToHostAsync(pinned, filled[0].pointer(), size));
  const Graph graph = Must(stream.EndCapture());
  Thread holds = Must(runtime_->StartThread("holds", [&] {
    const Lease held = Must(Lease::Acquire(device, {.streams = {&stream}}));
    runtime_->SleepFor(absl::Milliseconds(20));
    EXPECT_TRUE(Must(device.stats()).suspended);
    EXPECT_OK(stream.CopyToHost(host.data(), filled[0].pointer(), size));
    EXPECT_OK(stream.LaunchGraph(graph));
  }));
  runtime_->SleepFor(absl::Milliseconds(1));
  ASSERT_OK(device.Suspend());
  holds.Join();
  EXPECT_TRUE(host == Pattern(filled[0].size(), 1));
  ASSERT_OK(device.Resume());
}

TEST_F(SwappableTest, WaitsForWhatALeaseWithoutStreamsHasLaunched) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator memory = Swappable(device);
  const Allocation some = Must(memory.Allocate(MiB(4)));
  CUstream_st* foreign = nullptr;
  ASSERT_EQ(runtime_->Symbol<int(CUstream_st**, unsigned)>("cuStreamCreate")(&foreign, 1), 0);
  auto* const launch =
      runtime_->Symbol<int(CUfunc_st*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, CUstream_st*, void**, void**)>("cuLaunchKernel");
  const absl::Duration began = runtime_->Now();
  {
    const Lease lease = Must(Lease::Acquire(device));
    uint64_t cost = 20'000'000;
    void* params[] = {&cost};
    ASSERT_EQ(launch(spin_.native(), 100, 1, 1, 1024, 1, 1, 0, foreign, params, nullptr), 0);
  }
  Thread looks = ExpectStillIn(device, absl::Milliseconds(19));
  ASSERT_OK(device.Suspend());
  EXPECT_GE(runtime_->Now() - began, absl::Milliseconds(20));
  EXPECT_EQ(Used(device), Bytes(0));
  ASSERT_OK(device.Resume());
  ASSERT_EQ(runtime_->Symbol<int(CUstream_st*)>("cuStreamDestroy_v2")(foreign), 0);
}

// Also where the lease is one more of a thread that has one already, on streams that are named.
TEST_F(SwappableTest, WaitsForWhatAnInnerLeaseWithoutStreamsHasLaunched) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator memory = Swappable(device);
  const Allocation some = Must(memory.Allocate(MiB(4)));
  const Stream stream = Must(Stream::Create(device));
  CUstream_st* foreign = nullptr;
  ASSERT_EQ(runtime_->Symbol<int(CUstream_st**, unsigned)>("cuStreamCreate")(&foreign, 1), 0);
  auto* const launch =
      runtime_->Symbol<int(CUfunc_st*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, CUstream_st*, void**, void**)>("cuLaunchKernel");
  {
    const Lease outer = Must(Lease::Acquire(device, {.streams = {&stream}}));
    const Lease inner = Must(Lease::Acquire(device));
    uint64_t cost = 20'000'000;
    void* params[] = {&cost};
    ASSERT_EQ(launch(spin_.native(), 100, 1, 1, 1024, 1, 1, 0, foreign, params, nullptr), 0);
  }
  const uint64_t waits = Calls("cuCtxSynchronize");
  Thread looks = ExpectStillIn(device, absl::Milliseconds(19));
  ASSERT_OK(device.Suspend());
  EXPECT_GT(Calls("cuCtxSynchronize"), waits);
  looks.Join();
  ASSERT_OK(device.Resume());
  ASSERT_EQ(runtime_->Symbol<int(CUstream_st*)>("cuStreamDestroy_v2")(foreign), 0);
}

// The driver's own wait for a context has no end then.
TEST_F(SwappableTest, WorkThatNobodyKnowsKeepsItOnTheDeviceWhileItRuns) {
  for (const char* const spec : {"memory=64MiB", "memory=64MiB,isolation=context"}) {
    const VirtualDevice device = MakeDevice("stuck", spec);
    const Module module = Must(Module::Load(device, kPtx));
    const Allocator memory = Swappable(device);
    const std::vector<Allocation> filled = Fill(device, memory, {MiB(4)});
    {
      const Lease lease = Must(Lease::Acquire(device));
      LaunchUnseen(device, Must(module.GetFunction("spin")), absl::Seconds(12));
    }
    const uint64_t waits = Calls("cuCtxSynchronize");
    for (int i = 0; i < 2; ++i) {
      const absl::Duration began = runtime_->Now();
      const absl::Status late = device.Suspend();
      EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
      EXPECT_THAT(std::string(late.message()),
                  HasSubstr("something in its context still runs after 5 s"));
      EXPECT_GE(runtime_->Now() - began, absl::Nanoseconds(GPUSHARE_CLOSE_GRACE_NS));
      EXPECT_LE(runtime_->Now() - began,
                absl::Nanoseconds(GPUSHARE_CLOSE_GRACE_NS) + absl::Milliseconds(10));
      EXPECT_EQ(Swapped(device), Bytes(0));
    }
    EXPECT_EQ(Calls("cuCtxSynchronize"), waits + 1);  // one thread waits, for all of them
    ASSERT_OK(device.Suspend());
    EXPECT_EQ(Swapped(device), MiB(4));
    ASSERT_OK(device.Resume());
    ExpectIntact(device, filled);
  }
}

TEST_F(SwappableTest, AGpuThatClosesGivesUpOnWorkThatNobodyKnows) {
  {
    const VirtualDevice device = MakeDevice("stuck", "memory=64MiB");
    const Allocator memory = Swappable(device);
    EXPECT_TRUE(Must(memory.AllocateRaw(MiB(4))));  // never freed
    ASSERT_OK(Inject("hang kernel=spin"));
    {
      const Lease lease = Must(Lease::Acquire(device));
      LaunchUnseen(device, spin_, absl::Microseconds(10));
    }
    EXPECT_EQ(device.Suspend().code(), absl::StatusCode::kDeadlineExceeded);
  }
  module_.reset();
  const absl::Duration began = runtime_->Now();
  const absl::Status closed = gpu_->Close();
  EXPECT_EQ(closed.code(), absl::StatusCode::kDeadlineExceeded) << closed;
  EXPECT_THAT(std::string(closed.message()),
              HasSubstr("work of streams that gpushare does not know still runs after 5 s"));
  EXPECT_LE(runtime_->Now() - began,
            absl::Nanoseconds(GPUSHARE_CLOSE_GRACE_NS) + absl::Milliseconds(10));
  ASSERT_OK(Inject("clear"));
  runtime_->SleepFor(absl::Milliseconds(1));  // the thread that waited for it ends
}

TEST_F(SwappableTest, AContextThatEndsTakesAlongWorkThatNobodyKnows) {
  const uint64_t before = UsedOnDevice();
  std::optional<VirtualDevice> device = MakeDevice("stuck", "memory=64MiB,isolation=context");
  std::optional<Module> module = Must(Module::Load(*device, kPtx));
  EXPECT_TRUE(Must(Swappable(*device).AllocateRaw(MiB(4))));  // never freed
  ASSERT_OK(Inject("hang kernel=spin"));
  {
    const Lease lease = Must(Lease::Acquire(*device));
    LaunchUnseen(*device, Must(module->GetFunction("spin")), absl::Microseconds(10));
  }
  EXPECT_EQ(device->Suspend().code(), absl::StatusCode::kDeadlineExceeded);
  module.reset();
  device.reset();
  EXPECT_EQ(UsedOnDevice(), before);
}

// Whoever waits for a context breaks the captures that go on there, whosesoever they are.
TEST_F(SwappableTest, NobodyWaitsForAContextWhereAStreamIsCaptured) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB"), other = MakeDevice("b", "");
  const Allocator memory = Swappable(device);
  const std::vector<Allocation> filled = Fill(device, memory, {MiB(4)});
  { const Lease unseen = Must(Lease::Acquire(device)); }
  const uint64_t waits = Calls("cuCtxSynchronize");
  Thread captures = Must(runtime_->StartThread("captures", [&] {
    const Stream stream = Must(Stream::Create(other));
    ASSERT_OK(stream.BeginCapture());
    runtime_->SleepFor(absl::Seconds(7));
    EXPECT_EQ(Calls("cuCtxSynchronize"), waits);
    EXPECT_OK(stream.EndCapture().status());
  }));
  runtime_->SleepFor(absl::Milliseconds(1));
  const absl::Status late = device.Suspend();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("while a stream of GPU 0 is being captured"));
  ASSERT_OK(device.Suspend());
  EXPECT_EQ(Calls("cuCtxSynchronize"), waits + 1);
  ASSERT_OK(device.Resume());
  ExpectIntact(device, filled);
}

// Of a stream that is bound, also a capture that the program began itself is seen.
TEST_F(SwappableTest, NobodyWaitsForAContextWhereABoundStreamIsCaptured) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB"), other = MakeDevice("b", "");
  const Allocator memory = Swappable(device);
  const std::vector<Allocation> filled = Fill(device, memory, {MiB(4)});
  { const Lease unseen = Must(Lease::Acquire(device)); }
  CUstream_st* foreign = nullptr;
  void* graph = nullptr;
  ASSERT_EQ(runtime_->Symbol<int(CUstream_st**, unsigned)>("cuStreamCreate")(&foreign, 1), 0);
  const Stream bound = Must(Stream::Bind(other, foreign));
  constexpr int kRelaxed = 2;
  ASSERT_EQ(runtime_->Symbol<int(CUstream_st*, int)>("cuStreamBeginCapture_v2")(foreign, kRelaxed),
            0);
  EXPECT_EQ(device.Suspend().code(), absl::StatusCode::kDeadlineExceeded);
  const auto end = runtime_->Symbol<int(CUstream_st*, void**)>("cuStreamEndCapture");
  EXPECT_EQ(end(foreign, &graph), 0);
  ASSERT_OK(device.Suspend());
  ASSERT_OK(device.Resume());
  ExpectIntact(device, filled);
}

TEST_F(SwappableTest, AFreeBesideACaptureWaitsForWhoUsesItAndBreaksNothing) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB"), other = MakeDevice("b", "");
  const Allocator memory = Swappable(device);
  Allocation used = Must(memory.Allocate(MiB(2)));
  const Stream stream = Must(Stream::Create(device)), captured = Must(Stream::Create(other));
  ASSERT_OK(captured.BeginCapture());
  ASSERT_OK(Spin(stream, absl::Milliseconds(10)));
  const absl::Duration began = runtime_->Now();
  ASSERT_OK(used.Free());
  EXPECT_GE(runtime_->Now() - began, absl::Milliseconds(10));
  EXPECT_OK(captured.EndCapture().status());
}

TEST_F(SwappableTest, AFreeBesideACaptureThatFindsNoRoomToWaitWithFreesNothing) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB"), other = MakeDevice("b", "");
  const Allocator memory = Swappable(device);
  const DevicePtr pointer = Must(memory.AllocateRaw(MiB(2)));
  const Stream captured = Must(Stream::Create(other));
  ASSERT_OK(captured.BeginCapture());
  ASSERT_OK(Inject("oom after=0"));
  for (int i = 0; i < 2; ++i) {
    const absl::Status full = memory.Free(pointer);
    EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(full.message()), HasSubstr("while a stream is being captured"));
    EXPECT_EQ(Must(device.stats()).memory.used, MiB(2));
  }
  ASSERT_OK(Inject("clear"));
  EXPECT_OK(memory.Free(pointer));
  EXPECT_EQ(Must(device.stats()).memory.used, Bytes(0));
  EXPECT_OK(captured.EndCapture().status());
}

TEST_F(SwappableTest, ResumedWhileItWaitsItStays) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator memory = Swappable(device);
  const std::vector<Allocation> filled = Fill(device, memory, {MiB(4)});
  const Stream stream = Must(Stream::Create(device));
  ASSERT_OK(Spin(stream, absl::Milliseconds(20)));
  Thread resumes = Must(runtime_->StartThread("resumes", [&] {
    runtime_->SleepFor(absl::Milliseconds(5));
    EXPECT_OK(device.Resume());
  }));
  ASSERT_OK(device.Suspend());
  resumes.Join();
  EXPECT_EQ(Used(device), MiB(4));
  EXPECT_FALSE(Must(device.stats()).suspended);
  ExpectIntact(device, filled);
}

// ---- Copies ----

TEST_F(SwappableTest, GoesWithinTheTenantsLimits) {
  const VirtualDevice device = MakeDevice("a", "memory=128MiB,d2h=100MB/s,h2d=200MB/s");
  const Allocator memory = Swappable(device);
  const Allocation some = Must(memory.Allocate(MiB(100)));
  absl::Duration began = runtime_->Now();
  ASSERT_OK(device.Suspend());
  // What may be saved up is a hundredth of a second.
  EXPECT_NEAR(absl::ToDoubleSeconds(runtime_->Now() - began), 1.0486, 0.1);
  began = runtime_->Now();
  ASSERT_OK(device.Resume());
  EXPECT_NEAR(absl::ToDoubleSeconds(runtime_->Now() - began), 0.5243, 0.06);
}

// What is asked there may use all of the library, also what waits for the end of the move.
TEST_F(SwappableTest, WhoMovesIsNotAskedWhetherToWaitOn) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB,d2h=100MB/s,h2d=100MB/s");
  const Allocator memory = Swappable(device);
  const Allocation some = Must(memory.Allocate(MiB(32)));
  std::optional<Allocation> other(Must(memory.Allocate(MiB(2))));
  int asked = 0;
  const InterruptScope scope([&] {
    ++asked;
    other.reset();
    return true;
  });
  ASSERT_OK(device.Suspend());
  ASSERT_OK(device.Resume());
  EXPECT_EQ(asked, 0);
}

TEST_F(SwappableTest, CopiesOfOthersComeInBetween) {
  const VirtualDevice device = MakeDevice("a", "memory=192MiB"),
                      other = MakeDevice("b", "memory=64MiB");
  const Allocator memory = Swappable(device);
  const Allocation some = Must(memory.Allocate(MiB(190))),
                   theirs = Must(Allocator::Create(other)->Allocate(MiB(1)));
  const Stream stream = Must(Stream::Create(other));
  absl::Duration longest;
  std::atomic<bool> done{false};
  int copies = 0;
  Thread copying = Must(runtime_->StartThread("copies", [&] {
    std::vector<uint8_t> host(1 << 20);
    for (; !done; ++copies) {
      const absl::Duration began = runtime_->Now();
      EXPECT_OK(stream.CopyToHost(host.data(), theirs.pointer(), MiB(1)));
      longest = std::max(longest, runtime_->Now() - began);
      runtime_->SleepFor(absl::Microseconds(200));
    }
  }));
  const absl::Duration began = runtime_->Now();
  const uint64_t waits = Calls("cuEventSynchronize");
  ASSERT_OK(device.Suspend());
  EXPECT_EQ(Calls("cuEventSynchronize") - waits, 22u);  // each of 24 pieces for the last but one
  EXPECT_GE(runtime_->Now() - began, absl::Milliseconds(19));  // 190 MiB at 10 GB/s
  done = true;
  copying.Join();
  EXPECT_GE(copies, 10);
  EXPECT_LE(longest, absl::Milliseconds(3));  // two pieces of 8 MiB, and its own
}

// ---- A driver that refuses ----

// Each call that a move makes is refused in turn, with CUDA_ERROR_OUT_OF_MEMORY.
class SwappableFaultsTest : public SwappableTest {
 protected:
  static const std::vector<std::string>& AllCalls() {
    static const std::vector<std::string> calls = {"cuStreamCreateWithPriority",
                                                   "cuEventCreate",
                                                   "cuMemHostAlloc",
                                                   "cuMemcpyDtoHAsync_v2",
                                                   "cuMemcpyHtoDAsync_v2",
                                                   "cuEventRecord",
                                                   "cuEventSynchronize",
                                                   "cuStreamSynchronize",
                                                   "cuMemUnmap",
                                                   "cuMemRelease",
                                                   "cuMemCreate",
                                                   "cuMemMap",
                                                   "cuMemSetAccess",
                                                   "cuMemFreeHost",
                                                   "cuMemAddressReserve",
                                                   "cuMemAddressFree",
                                                   "cuStreamQuery",
                                                   "cuCtxSynchronize"};
    return calls;
  }
  // Runs `each` with every call of `operation` refused, until it makes no more of them; how often one was.
  template <typename Operation, typename Each>
  int RefuseEach(const Operation& operation, const Each& each) {
    int refused = 0;
    for (const std::string& call : AllCalls()) {
      for (uint64_t nth = 1;; ++nth) {
        SCOPED_TRACE(call + " " + std::to_string(nth));
        const uint64_t before = Calls(call.c_str());
        EXPECT_OK(Inject("error call=" + call + " code=2 nth=" + std::to_string(nth)));
        const absl::Status status = operation();
        const bool was = Calls(call.c_str()) - before >= nth;
        EXPECT_OK(Inject("clear"));
        if (was) {
          ++refused;
          if (call == "cuMemHostAlloc") ++host_refused_;
          if (call == "cuMemFreeHost") ++host_free_refused_;
          if (call == "cuMemAddressReserve") ++reserve_refused_;
          if (call == "cuMemAddressFree") ++free_refused_;
        }
        each(status, was);
        if (!was || HasFatalFailure()) break;
      }
    }
    return refused;
  }
  void ExpectNothingLeft(const VirtualDevice& device) {
    EXPECT_EQ(Used(device), Bytes(0));
    EXPECT_EQ(OnDevice(), Bytes(0));
    EXPECT_EQ(Swapped(device), Bytes(0));
    EXPECT_EQ(Calls("cuMemHostAlloc") - host_refused_, Calls("cuMemFreeHost") - host_free_refused_);
    EXPECT_EQ(Calls("cuMemAddressReserve") - reserve_refused_,
              Calls("cuMemAddressFree") - free_refused_);
  }

  uint64_t host_refused_ = 0, host_free_refused_ = 0, reserve_refused_ = 0, free_refused_ = 0;
};

TEST_F(SwappableFaultsTest, WhileItLeaves) {
  const VirtualDevice device = MakeDevice("a", "memory=128MiB");
  const Allocator memory = Swappable(device);
  const Stream stream = Must(Stream::Create(device));
  const std::vector<Bytes> sizes = {MiB(3), MiB(9), MiB(1)};
  std::vector<Allocation> filled = Fill(device, memory, sizes);
  const int refused = RefuseEach([&] { return device.Suspend(); },
                                 [&](const absl::Status& status, bool was) {
                                   EXPECT_EQ(Used(device), OnDevice());
                                   EXPECT_TRUE(Must(device.stats()).suspended);
                                   if (!was) {
                                     EXPECT_OK(status);
                                   }
                                   if (status.ok()) {
                                     EXPECT_EQ(Used(device), Bytes(0));
                                   } else {
                                     EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted)
                                         << status;
                                     EXPECT_GT(Used(device), Bytes(0));
                                     // Either way goes on from here: out, every other time, and back.
                                     if (Calls("cuMemUnmap") % 2 == 0) {
                                       EXPECT_OK(device.Suspend());
                                       EXPECT_EQ(Used(device), Bytes(0));
                                     }
                                   }
                                   ASSERT_OK(device.Resume());
                                   EXPECT_EQ(Used(device), MiB(16));
                                   EXPECT_EQ(OnDevice(), MiB(16));
                                   ExpectIntact(device, filled);
                                 });
  EXPECT_GE(refused, 20);
  filled.clear();
  ExpectNothingLeft(device);
}

TEST_F(SwappableFaultsTest, WhileItComesBack) {
  const VirtualDevice device = MakeDevice("a", "memory=128MiB");
  const Allocator memory = Swappable(device);
  std::vector<Allocation> filled = Fill(device, memory, {MiB(3), MiB(9), MiB(1)});
  ASSERT_OK(device.Suspend());
  const int refused = RefuseEach([&] { return device.Resume(); },
                                 [&](const absl::Status& status, bool was) {
                                   EXPECT_EQ(Used(device), OnDevice());
                                   EXPECT_EQ(Must(device.stats()).suspended, !status.ok());
                                   if (!was) {
                                     EXPECT_OK(status);
                                   }
                                   if (!status.ok()) {
                                     EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted)
                                         << status;
                                     EXPECT_EQ(Used(device), Bytes(0));
                                     EXPECT_EQ(Swapped(device), MiB(16));
                                     if (Calls("cuMemMap") % 2 == 0) {
                                       EXPECT_OK(device.Suspend());
                                     }
                                     ASSERT_OK(device.Resume());
                                   }
                                   ExpectIntact(device, filled);
                                   ASSERT_OK(device.Suspend());
                                   EXPECT_EQ(Swapped(device), MiB(16));
                                 });
  EXPECT_GE(refused, 20);
  ASSERT_OK(device.Resume());
  filled.clear();
  ExpectNothingLeft(device);
}

// The one call after another: what was to be undone is refused as well.
TEST_F(SwappableFaultsTest, WhileItIsUndone) {
  const VirtualDevice device = MakeDevice("a", "memory=128MiB");
  const Allocator memory = Swappable(device);
  std::vector<Allocation> filled = Fill(device, memory, {MiB(3), MiB(9)});
  ASSERT_OK(device.Suspend());
  // Refused when all of it has arrived, and when nothing of the first has.
  for (const char* call : {"cuStreamSynchronize", "cuMemcpyHtoDAsync_v2"}) {
    for (const char* undo : {"cuMemUnmap", "cuMemRelease"}) {
      for (const bool again : {false, true}) {
        SCOPED_TRACE(absl::StrCat(call, ", ", undo, again ? ", twice" : ""));
        ASSERT_OK(Inject(absl::StrCat("error call=", call, " code=2 nth=1")));
        ASSERT_OK(Inject(absl::StrCat("error call=", undo, " code=2 nth=1")));
        EXPECT_EQ(device.Resume().code(), absl::StatusCode::kResourceExhausted);
        ASSERT_OK(Inject("clear"));
        EXPECT_GT(Used(device), Bytes(0));  // what the driver would not take back
        EXPECT_EQ(Used(device), OnDevice());
        EXPECT_EQ(Swapped(device), MiB(14));
        if (again) {
          ASSERT_OK(Inject(absl::StrCat("error call=", undo, " code=2 nth=1")));
          EXPECT_FALSE(device.Suspend().ok());
          ASSERT_OK(Inject("clear"));
          EXPECT_EQ(Used(device), OnDevice());
          EXPECT_EQ(Swapped(device), MiB(14));
        }
        ASSERT_OK(device.Resume());
        ExpectIntact(device, filled);
        ASSERT_OK(device.Suspend());
        EXPECT_EQ(OnDevice(), Bytes(0));
      }
    }
  }
  ASSERT_OK(device.Resume());
  ExpectIntact(device, filled);
}

TEST_F(SwappableFaultsTest, WhileItIsAllocatedAndFreed) {
  const VirtualDevice device = MakeDevice("a", "memory=128MiB");
  const Allocator memory = Swappable(device);
  std::optional<DevicePtr> pointer;
  RefuseEach(
      [&] {
        const auto got = memory.AllocateRaw(MiB(3));
        if (got.ok()) pointer = *got;
        return got.status();
      },
      [&](const absl::Status& status, bool was) {
        EXPECT_EQ(status.ok(), !was || pointer.has_value());
        EXPECT_EQ(Used(device), OnDevice());
        EXPECT_EQ(Used(device), status.ok() ? MiB(4) : Bytes(0)) << status;
        if (pointer) {
          EXPECT_OK(memory.Free(*pointer));
        }
        pointer.reset();
      });
  ExpectNothingLeft(device);
  for (const bool out : {false, true}) {
    pointer = Must(memory.AllocateRaw(MiB(3)));
    if (out) {
      ASSERT_OK(device.Suspend());
    }
    uint64_t addresses = free_refused_;
    RefuseEach([&] { return memory.Free(*pointer); },
               [&](const absl::Status& status, bool was) {
                 // Without its memory it is freed, whatever becomes of the addresses.
                 const bool freed = !was || std::exchange(addresses, free_refused_) != addresses;
                 EXPECT_EQ(status.ok(), freed) << status;
                 EXPECT_EQ(Used(device), OnDevice());
                 if (!freed) {
                   EXPECT_OK(memory.Free(*pointer));
                 }
                 EXPECT_EQ(memory.Free(*pointer).code(), absl::StatusCode::kInvalidArgument);
                 EXPECT_EQ(Used(device), Bytes(0));
                 EXPECT_EQ(Swapped(device), Bytes(0));
                 EXPECT_OK(device.Resume());
                 pointer = Must(memory.AllocateRaw(MiB(3)));
                 if (out) {
                   ASSERT_OK(device.Suspend());
                 }
               });
    EXPECT_OK(memory.Free(*pointer));
    EXPECT_OK(device.Resume());
  }
  ExpectNothingLeft(device);
}

TEST_F(SwappableFaultsTest, AFreeThatWasRefusedKeepsNobodyFromLeaving) {
  {
    const VirtualDevice device = MakeDevice("a", "memory=128MiB");
    const Allocator memory = Swappable(device);
    std::vector<Allocation> filled = Fill(device, memory, {MiB(3), MiB(9)});
    for (const std::string call : {"cuMemAddressFree", "cuMemRelease", "cuMemUnmap"}) {
      SCOPED_TRACE(call);
      const DevicePtr pointer = Must(memory.AllocateRaw(MiB(2)));
      ASSERT_OK(Inject("error call=" + call + " code=2 nth=1"));
      const absl::Status freed = memory.Free(pointer);
      ASSERT_OK(Inject("clear"));
      EXPECT_EQ(freed.ok(), call == "cuMemAddressFree") << freed;
      EXPECT_EQ(Must(device.stats()).memory.allocations, freed.ok() ? 2u : 3u);
      EXPECT_EQ(Used(device), MiB(freed.ok() ? 14 : 16));
      EXPECT_EQ(Used(device), OnDevice());
      EXPECT_OK(device.Suspend());
      EXPECT_EQ(Used(device), OnDevice());
      EXPECT_OK(device.Resume());
      ExpectIntact(device, filled);
      EXPECT_EQ(memory.Free(pointer).ok(), !freed.ok());
      EXPECT_EQ(Used(device), MiB(14));
      EXPECT_EQ(Used(device), OnDevice());
    }
    // What the driver has not taken back by the end it is asked for then.
    free_refused_ += 2;
    ASSERT_OK(Inject("error call=cuMemAddressFree code=2"));
    filled.pop_back();
    ASSERT_OK(Inject("clear"));
  }
  EXPECT_EQ(OnDevice(), Bytes(0));
  EXPECT_EQ(Calls("cuMemAddressReserve"), Calls("cuMemAddressFree") - free_refused_);
}

TEST_F(SwappableFaultsTest, AnOldDriverHasNone) {
  const VirtualDevice device = MakeDevice("a", "memory=128MiB");
  ASSERT_OK(Inject("error call=cuMemGetAllocationGranularity code=801 nth=1"));
  const auto none = Allocator::Create(device, kSwappable);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("use 'direct' or 'suballocating'"));
}

// ---- Isolation ----

TEST_F(SwappableTest, OfAContextOfItsOwn) {
  std::vector<DevicePtr> left;
  {
    const VirtualDevice device = MakeDevice("a", "memory=64MiB,isolation=context");
    const uint64_t before = UsedOnDevice();
    const Allocator memory = Swappable(device);
    const std::vector<Allocation> filled = Fill(device, memory, {MiB(5), MiB(2)});
    ASSERT_OK(device.Suspend());
    EXPECT_EQ(Used(device), Bytes(0));
    EXPECT_EQ(UsedOnDevice(), before);
    ASSERT_OK(device.Resume());
    ExpectIntact(device, filled);
    left.push_back(Must(memory.AllocateRaw(MiB(4))));
    ASSERT_OK(device.Suspend());
    left.push_back(Must(memory.AllocateRaw(MiB(4))));
  }
  EXPECT_EQ(OnDevice(), Bytes(0));  // it went with the context
  const VirtualDevice other = MakeDevice("b", "memory=64MiB");
  for (const DevicePtr pointer : left) EXPECT_FALSE(Swappable(other).Free(pointer).ok());
  EXPECT_EQ(Calls("cuMemHostAlloc"), Calls("cuMemFreeHost"));
  EXPECT_EQ(Calls("cuMemAddressReserve"), Calls("cuMemAddressFree"));
}

// ---- Threads ----

// Real threads, on the wall clock: whatever the gate has let through when it is suspended is done before the memory goes.
class SwappableThreadsTest : public SwappableTest {
 protected:
  std::string config() const override {
    return "sms=100,memory=1280MiB,clock=wall,h2d=100GB/s,d2h=100GB/s";
  }
};

TEST_F(SwappableThreadsTest, NobodyIsAtItWhileItIsGone) {
  const VirtualDevice device = MakeDevice("a", "memory=128MiB");
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, rounds{0};
  std::vector<std::thread> threads;
  std::latch allocated(3);  // what is allocated while it is suspended would be there
  const Allocator memory = Swappable(device);
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const Stream stream = Must(Stream::Create(device));
      const Allocation mine = Must(memory.Allocate(KiB(64)));
      allocated.count_down();
      std::vector<uint8_t> host(64 << 10);
      for (uint8_t value = 0; !stop; ++value, ++rounds) {
        std::optional<Lease> lease;
        if (t == 2) lease.emplace(Must(Lease::Acquire(device, {.streams = {&stream}})));
        const bool fine = stream.SetAsync(mine.pointer(), value, KiB(64)).ok() &&
                          stream.CopyToHost(host.data(), mine.pointer(), KiB(64)).ok() &&
                          std::count(host.begin(), host.end(), value) == 64 << 10;
        if (!fine) ++wrong;
      }
    });
  }
  allocated.wait();
  for (int i = 0; i < 200; ++i) {
    const absl::Status suspended = device.Suspend();
    EXPECT_OK(suspended);
    if (suspended.ok()) {
      EXPECT_EQ(Used(device), Bytes(0));
    }
    EXPECT_OK(device.Resume());
    const int before = rounds;
    while (rounds < before + 3) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// One of the two is the later one, and that alone says how it is. Here without swappable memory, in whose absence they took
// no turns.
TEST_F(SwappableThreadsTest, OfOneWhoSuspendsAndOneWhoResumesOneIsTheLater) {
  const VirtualDevice device = MakeDevice("a", "memory=16MiB");
  const Stream stream = Must(Stream::Create(device));
  constexpr int kRounds = 20'000;
  std::atomic<int> begun{0}, done{0};
  std::thread suspends([&] {
    for (int round = 1; round <= kRounds; ++round) {
      for (int spins = 0; begun < round; ++spins) {
        if (spins > 20'000) std::this_thread::yield();
      }
      EXPECT_OK(device.Suspend());
      done = round;
    }
  });
  int wrong = 0;
  for (int round = 1; round <= kRounds; ++round) {
    begun = round;
    for (int i = 0; i < round % 200; ++i) static_cast<void>(done.load());  // not always as soon
    EXPECT_OK(device.Resume());
    while (done < round) std::this_thread::yield();
    const bool suspended = Must(device.stats()).suspended;
    LaunchShape shape = Whole();
    shape.timeout = suspended ? absl::ZeroDuration() : absl::Seconds(1);
    const absl::Status launched = stream.Launch(spin_, shape, uint64_t{100});
    if (launched.ok() == suspended) ++wrong;
    EXPECT_OK(device.Resume());
    EXPECT_OK(stream.Synchronize());
  }
  suspends.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace gpushare
