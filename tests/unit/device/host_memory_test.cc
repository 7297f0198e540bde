// SPDX-License-Identifier: Apache-2.0
// Calls that fail since the host has no memory: nothing changes, and nothing is held for ever.
#include <tuple>
#include <vector>

#include "gpushare/gang.h"
#include "tests/contract/failing_memory.h"
#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using work::FailingMemory;

struct How {
  AllocationStrategy strategy;
  bool foreign;  // the stream was not created by gpushare
};

class HostMemoryTest : public DeviceTest, public ::testing::WithParamInterface<How> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    create_ = runtime_->Symbol<int(CUstream_st**, unsigned)>("cuStreamCreate");
    destroy_ = runtime_->Symbol<int(CUstream_st*)>("cuStreamDestroy_v2");
  }
  int (*create_)(CUstream_st**, unsigned) = nullptr;
  int (*destroy_)(CUstream_st*) = nullptr;
};

TEST_P(HostMemoryTest, AFreeThatFailsHoldsNothing) {
  const bool foreign = GetParam().foreign;
  int failures = 0;
  {
    const VirtualDevice device = MakeDevice("a", "memory=64MiB");
    const Allocator allocator = Must(Allocator::Create(device, {.strategy = GetParam().strategy}));
    for (int nth = 1, failed = 1; failed != 0; ++nth) {
      ASSERT_LT(nth, 1000);
      CUstream_st* native = nullptr;
      std::optional<Stream> stream;
      AllocateOptions order;
      if (foreign) {
        ASSERT_EQ(create_(&native, 1), 0);
        order.native = native;
      } else {
        order.stream = &stream.emplace(Must(Stream::Create(device)));
      }
      const auto free = [&](DevicePtr pointer) {
        return foreign ? gpushare_free_native(allocator.handle(), pointer.value(), native)
                       : gpushare_free_on(allocator.handle(), pointer.value(), stream->handle());
      };
      const DevicePtr pointer = Must(allocator.AllocateRaw(MiB(1), order));
      const int before = FailingMemory::failed();
      gpushare_status code;
      {
        const FailingMemory fails(nth);
        code = free(pointer);
      }
      failed = FailingMemory::failed() - before;
      failures += failed;
      if (code != GPUSHARE_OK) {
        EXPECT_EQ(code, GPUSHARE_RESOURCE_EXHAUSTED) << nth;
        // The memory is still allocated and can be freed again.
        EXPECT_EQ(free(pointer), GPUSHARE_OK) << nth;
      }
      EXPECT_EQ(Must(allocator.stats()).allocations, 0u) << nth;
      if (foreign) {
        EXPECT_EQ(destroy_(native), 0);
      }
    }
    EXPECT_OK(allocator.Trim());
  }
  // The virtual device is gone, and its tenant with it.
  EXPECT_OK(Tenant::Create(*runtime_, {.name = "a"}).status());
  if (GetParam().strategy == AllocationStrategy::kSuballocating && foreign) {
    EXPECT_GE(failures, 2);
  }
}

// The end of a stream on which memory was freed is reported to several users. A user that cannot be told does not
// learn of it.
TEST_P(HostMemoryTest, AStreamEndsAllTheSame) {
  if (GetParam().foreign) return;  // nobody reports its end
  int failures = 0;
  for (int nth = 1, failed = 1; failed != 0; ++nth) {
    ASSERT_LT(nth, 1000);
    const VirtualDevice device = MakeDevice("a", "memory=64MiB");
    const Allocator allocator = Must(Allocator::Create(device, {.strategy = GetParam().strategy}));
    std::optional<Stream> stream(Must(Stream::Create(device)));
    const DevicePtr pointer = Must(allocator.AllocateRaw(MiB(1), {.stream = &*stream}));
    const Allocation large = Must(allocator.Allocate(MiB(16)));
    ASSERT_OK(stream->SetAsync(large.pointer(), 0, MiB(16)));
    EXPECT_OK(allocator.Free(pointer, *stream));
    const int before = FailingMemory::failed();
    {
      const FailingMemory fails(nth);
      stream.reset();
    }
    failed = FailingMemory::failed() - before;
    failures += failed;
    EXPECT_EQ(Must(allocator.stats()).allocations, 1u) << nth;
    runtime_->SleepFor(absl::Milliseconds(10));
    EXPECT_OK(allocator.Trim());
  }
  EXPECT_GE(failures, 1);
}

INSTANTIATE_TEST_SUITE_P(Strategies, HostMemoryTest,
                         ::testing::Values(How{AllocationStrategy::kSuballocating, true},
                                           How{AllocationStrategy::kSuballocating, false},
                                           How{AllocationStrategy::kPool, true},
                                           How{AllocationStrategy::kPool, false}));

// ---- Allocations ----

// What is asked for is free; in use; or in use and freed while it is waited for, and somebody waits behind.
enum class Memory { kFree, kUsed, kFreedMeanwhile };
struct Asked {
  AllocationStrategy strategy;
  bool waits, on_stream;
  Memory memory;
};

class AllocationHostMemoryTest : public StreamTest, public ::testing::WithParamInterface<Asked> {};

TEST_P(AllocationHostMemoryTest, AnAllocationThatFailsHoldsNothing) {
  const auto& [strategy, waits, on_stream, memory] = GetParam();
  int failures = 0;
  for (int nth = 0, failed = 1; failed != 0 || nth == 1; ++nth) {  // 0: all fail
    ASSERT_LT(nth, 1000);
    SCOPED_TRACE(nth);
    {
      const VirtualDevice device = MakeDevice("a", "memory=64MiB");
      const Allocator allocator =
          Must(Allocator::Create(device, {.strategy = strategy,
                                          .over_quota = waits ? OverQuota::kWait : OverQuota::kFail,
                                          .timeout = absl::Milliseconds(5)}));
      const Stream stream = Must(Stream::Create(device)), busy = Must(Stream::Create(device));
      if (strategy == AllocationStrategy::kSuballocating && memory == Memory::kFreedMeanwhile) {
        // Something lies with a stream, so that whoever serves the next has to look at streams.
        Allocation behind_work = Must(allocator.Allocate(MiB(1), busy));
        ASSERT_OK(Spin(busy, absl::Milliseconds(20)));
        EXPECT_OK(behind_work.Free());
      }
      std::optional<Allocation> used;
      if (memory != Memory::kFree) {
        used.emplace(
            Must(on_stream ? allocator.Allocate(MiB(62), stream) : allocator.Allocate(MiB(62))));
      }
      std::optional<Thread> behind, frees;
      if (memory == Memory::kFreedMeanwhile) {
        behind.emplace(Must(runtime_->StartThread("behind", [&] {
          runtime_->SleepFor(absl::Microseconds(300));
          // It has to wait for this allocation too.
          EXPECT_OK(allocator.Allocate(MiB(60), {.timeout = absl::Seconds(1)}).status());
        })));
        frees.emplace(Must(runtime_->StartThread("frees", [&] {
          runtime_->SleepFor(absl::Microseconds(1'700));
          used.reset();
        })));
      }
      const size_t bytes = MiB(memory == Memory::kFree ? 1 : 8).count();
      unsigned long long pointer = 0;
      gpushare_status code;
      const int before = FailingMemory::failed();
      {
        const FailingMemory fails(nth);
        code = on_stream ? gpushare_alloc_on(allocator.handle(), bytes, stream.handle(), &pointer)
                         : gpushare_alloc(allocator.handle(), bytes, &pointer);
      }
      failed = FailingMemory::failed() - before;
      failures += failed;
      if (code == GPUSHARE_OK) {
        EXPECT_EQ(gpushare_free(allocator.handle(), pointer), GPUSHARE_OK);
      }
      if (frees.has_value()) frees->Join();
      if (behind.has_value()) behind->Join();
      used.reset();
      EXPECT_OK(stream.Synchronize());
      EXPECT_OK(busy.Synchronize());
      static_cast<void>(allocator.Trim());  // of two strategies
      const VirtualDevice::Memory memory_left = Must(device.memory());
      EXPECT_EQ(memory_left.free, memory_left.total);
      EXPECT_EQ(Must(device.stats()).memory.allocations, 0u);
      EXPECT_EQ(UsedOnDevice(), 0u);
    }
    // The virtual device is gone, and its tenant with it.
    ASSERT_OK(Tenant::Create(*runtime_, {.name = "a"}).status());
  }
  if (memory != Memory::kFree) {
    EXPECT_GE(failures, 2);
  }
}

std::vector<Asked> AllAsked() {
  std::vector<Asked> all;
  for (const auto strategy : {AllocationStrategy::kDirect, AllocationStrategy::kPool,
                              AllocationStrategy::kSuballocating, AllocationStrategy::kSwappable}) {
    for (const bool on_stream : {false, true}) {
      for (const bool waits : {false, true}) {
        all.push_back({strategy, waits, on_stream, Memory::kFree});
        all.push_back({strategy, waits, on_stream, Memory::kUsed});
      }
      all.push_back({strategy, /*waits=*/true, on_stream, Memory::kFreedMeanwhile});
    }
  }
  return all;
}

std::string NameOfAsked(const ::testing::TestParamInfo<Asked>& info) {
  const char* const strategies[] = {"direct", "pool", "suballocating", "swappable"};
  const char* const memory[] = {"free", "used", "freed_meanwhile"};
  const Asked& asked = info.param;
  return std::string(strategies[static_cast<int>(asked.strategy)]) +
         (asked.on_stream ? "_on_stream" : "") + (asked.waits ? "_waits_" : "_") +
         memory[static_cast<int>(asked.memory)];
}

INSTANTIATE_TEST_SUITE_P(Strategies, AllocationHostMemoryTest, ::testing::ValuesIn(AllAsked()),
                         NameOfAsked);

// ---- Leases ----

// Of one device or of one on each of two GPUs; on all streams or on one of each; within a lease of the thread's or not.
class LeaseHostMemoryTest : public DeviceTest,
                            public ::testing::WithParamInterface<std::tuple<bool, bool, bool>> {};

TEST_P(LeaseHostMemoryTest, ALeaseThatFailsIsNotHeld) {
  const auto& [gang, on_stream, inner] = GetParam();
  Gpu second = Must(Gpu::Open(*runtime_, "1"));
  int failures = 0;
  for (int nth = 0, failed = 1; failed != 0 || nth == 1; ++nth) {  // 0: all fail
    ASSERT_LT(nth, 1000);
    SCOPED_TRACE(nth);
    // Made anew, since some memory is needed for the first lease of a tenant only.
    const Tenant tenant = MakeTenant("a"), other = MakeTenant("b");
    std::vector<VirtualDevice> devices, others;
    std::vector<Stream> streams;
    std::vector<gpushare_stream> handles;
    for (Gpu* gpu : {&*gpu_, &second}) {
      devices.push_back(Must(VirtualDevice::Create(*gpu, tenant, "memory=64MiB")));
      others.push_back(Must(VirtualDevice::Create(*gpu, other, "memory=64MiB")));
      streams.push_back(Must(Stream::Create(devices.back())));
      handles.push_back(streams.back().handle());
      if (!gang) break;
    }
    std::vector<Lease> outer;
    std::vector<gpushare_gang_member> members;
    for (size_t i = 0; i < devices.size(); ++i) {
      if (inner) outer.push_back(Must(Lease::Acquire(devices[i], {.streams = {&streams[i]}})));
      members.push_back({.struct_size = sizeof(gpushare_gang_member),
                         .reserved = 0,
                         .vdev = devices[i].handle(),
                         .streams = on_stream ? &handles[i] : nullptr,
                         .stream_count = on_stream ? size_t{1} : 0});
    }
    gpushare_lease_options options = {};
    options.struct_size = sizeof(options);
    options.timeout_ns = GPUSHARE_FOREVER;
    if (!gang) {
      options.streams = members[0].streams;
      options.stream_count = members[0].stream_count;
    }
    gpushare_lease lease = {};
    gpushare_gang all = {};
    gpushare_status code;
    const int before = FailingMemory::failed();
    {
      const FailingMemory fails(nth);
      code = gang ? gpushare_gang_acquire(members.data(), members.size(), &options, &all)
                  : gpushare_lease_acquire(devices[0].handle(), &options, &lease);
    }
    failed = FailingMemory::failed() - before;
    failures += failed;
    if (code == GPUSHARE_OK) {
      EXPECT_EQ(gang ? gpushare_gang_release(all, nullptr) : gpushare_lease_release(lease, nullptr),
                GPUSHARE_OK);
    } else {
      EXPECT_EQ(code, GPUSHARE_RESOURCE_EXHAUSTED);
    }
    outer.clear();
    for (const VirtualDevice& device : others) {
      EXPECT_OK(Lease::Acquire(device, {.timeout = absl::Milliseconds(10)}).status());
    }
    // A lease that counted as an inner one would be had at once.
    for (const VirtualDevice& device : devices) {
      EXPECT_OK(device.Suspend());
      EXPECT_EQ(Lease::Acquire(device, {.timeout = absl::Milliseconds(10)}).status().code(),
                absl::StatusCode::kDeadlineExceeded);
      EXPECT_OK(device.Resume());
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GE(failures, 2);
}

std::string NameOfLease(const ::testing::TestParamInfo<std::tuple<bool, bool, bool>>& info) {
  const auto& [gang, on_stream, inner] = info.param;
  return std::string(gang ? "gang" : "lease") + (on_stream ? "_on_stream" : "") +
         (inner ? "_inner" : "");
}

INSTANTIATE_TEST_SUITE_P(Leases, LeaseHostMemoryTest,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool(),
                                            ::testing::Bool()),
                         NameOfLease);

}  // namespace
}  // namespace gpushare
