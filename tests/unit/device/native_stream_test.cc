// SPDX-License-Identifier: Apache-2.0
// Memory in the order of streams that gpushare did not create, and options for a single allocation.
#include <malloc.h>

#include <vector>

#include "tests/unit/device/device_test.h"

struct CUfunc_st;

namespace gpushare {
namespace {

using ::testing::HasSubstr;

class NativeStreamTest : public StreamTest, public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    StreamTest::SetUp();
    create_ = runtime_->Symbol<int(CUstream_st**, unsigned)>("cuStreamCreate");
    destroy_ = runtime_->Symbol<int(CUstream_st*)>("cuStreamDestroy_v2");
    launch_ =
        runtime_->Symbol<int(CUfunc_st*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, CUstream_st*, void**, void**)>("cuLaunchKernel");
    device_.emplace(MakeDevice("a", "memory=64MiB"));
  }
  void TearDown() override {
    device_.reset();
    StreamTest::TearDown();
  }
  AllocationStrategy strategy() const { return static_cast<AllocationStrategy>(GetParam()); }
  Allocator Make(AllocatorOptions options = {}) {
    options.strategy = strategy();
    return Must(Allocator::Create(*device_, std::move(options)));
  }
  CUstream_st* MakeNative() {
    CUstream_st* native = nullptr;
    EXPECT_EQ(create_(&native, 1), 0);  // non-blocking
    return native;
  }
  // Launches without gpushare, like the creator of the stream would.
  void SpinOn(CUstream_st* native, absl::Duration cost) {
    uint64_t ns = static_cast<uint64_t>(absl::ToInt64Nanoseconds(cost));
    void* params[] = {&ns, nullptr};
    EXPECT_EQ(launch_(spin_.native(), 100, 1, 1, 1024, 1, 1, 0, native, params, nullptr), 0);
  }

  int (*create_)(CUstream_st**, unsigned) = nullptr;
  int (*destroy_)(CUstream_st*) = nullptr;
  int (*launch_)(CUfunc_st*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                 CUstream_st*, void**, void**) = nullptr;
  std::optional<VirtualDevice> device_;
};

// The strategies that keep a pool, and the one that manages its blocks itself.
class PoolsTest : public NativeStreamTest {};
class BlocksTest : public NativeStreamTest {};

TEST_P(NativeStreamTest, AllocatesAndFreesInTheOrderOfAStreamItDoesNotKnow) {
  const Allocator allocator = Make();
  CUstream_st* const native = MakeNative();
  {
    const Allocation memory = Must(allocator.Allocate(MiB(40), {.native = native}));
    SpinOn(native, absl::Milliseconds(1));
  }
  // The stream's own work may reuse it, whether or not the kernel has ended.
  const DevicePtr again = Must(allocator.AllocateRaw(MiB(40), {.native = native}));
  EXPECT_OK(allocator.FreeNative(again, native));
  EXPECT_EQ(destroy_(native), 0);
  runtime_->SleepFor(absl::Milliseconds(2));
  if (strategy() != AllocationStrategy::kDirect) {
    EXPECT_OK(allocator.Trim());
  }
  EXPECT_EQ(Must(device_->stats()).memory.used, Bytes(0));
}

TEST_P(BlocksTest, OthersGetItWhenTheStreamHasComeThatFar) {
  const Allocator allocator = Make();
  const Stream other = Must(Stream::Create(*device_));
  CUstream_st* const native = MakeNative();
  const DevicePtr one = Must(allocator.AllocateRaw(MiB(20), {.native = native}));
  const Allocation rest = Must(allocator.Allocate(MiB(44)));
  SpinOn(native, absl::Milliseconds(1));
  EXPECT_OK(allocator.FreeNative(one, native));
  // Its segment uses up the quota. If the segment were idle it would go back to the driver, which waits for the
  // kernel; a neighbour prevents that.
  const DevicePtr piece = Must(allocator.AllocateRaw(MiB(2), {.native = native}));
  EXPECT_TRUE(absl::IsResourceExhausted(allocator.Allocate(MiB(10), other).status()));
  // The stream may be destroyed meanwhile, and its handle may be reused.
  EXPECT_EQ(destroy_(native), 0);
  CUstream_st* const next = MakeNative();
  EXPECT_TRUE(absl::IsResourceExhausted(allocator.AllocateRaw(MiB(10), {.native = next}).status()));
  runtime_->SleepFor(absl::Milliseconds(2));
  EXPECT_OK(allocator.Allocate(MiB(10), other).status());
  EXPECT_OK(allocator.FreeNative(piece, next));
  EXPECT_EQ(destroy_(next), 0);
}

TEST_P(BlocksTest, WithoutAStreamTheCallerHasSeenToItsEnd) {
  const Allocator allocator = Make();
  CUstream_st* const native = MakeNative();
  const DevicePtr one = Must(allocator.AllocateRaw(MiB(60), {.native = native}));
  const DevicePtr keeps = Must(allocator.AllocateRaw(MiB(3)));
  SpinOn(native, absl::Seconds(1));
  EXPECT_EQ(destroy_(native), 0);
  EXPECT_OK(allocator.Free(one));
  // The stream is gone and cannot be queried.
  EXPECT_EQ(Must(allocator.AllocateRaw(MiB(60))), one);
  EXPECT_OK(allocator.Free(keeps));
}

// The ends of such streams are not reported, so anything that is kept for each stream would accumulate.
TEST_P(BlocksTest, StreamsThatComeAndGoLeaveNothingBehind) {
  const Allocator allocator = Make();
  const auto one_stream = [&](int i) {
    CUstream_st* const native = MakeNative();
    const DevicePtr first = Must(allocator.AllocateRaw(Bytes(512), {.native = native}));
    switch (i % 3) {
      case 0:  // like deallocate_sync()
        EXPECT_OK(allocator.Free(first));
        break;
      case 1:
        EXPECT_OK(allocator.FreeNative(first, native));
        break;
      default:  // nothing is left of what was freed on it
        EXPECT_OK(allocator.FreeNative(first, native));
        EXPECT_OK(allocator.Free(Must(allocator.AllocateRaw(Bytes(512), {.native = native}))));
    }
    EXPECT_EQ(destroy_(native), 0);
  };
  for (int i = 0; i < 300; ++i) one_stream(i);
  const size_t before = mallinfo2().uordblks;
  for (int i = 0; i < 3000; ++i) one_stream(i);
  const size_t after = mallinfo2().uordblks;
  EXPECT_LT(after, before + (2 << 20));  // 700 bytes for each
  EXPECT_EQ(Must(allocator.stats()).segments, 1u);
}

TEST_P(NativeStreamTest, AStreamThatIsBoundIsTheSameByItsHandle) {
  const Allocator allocator = Make();
  const Stream stream = Must(Stream::Create(*device_));
  CUstream_st* const native = Must(stream.native());
  const DevicePtr one = Must(allocator.AllocateRaw(MiB(40), {.native = native}));
  EXPECT_OK(Spin(stream, absl::Milliseconds(1)));
  EXPECT_OK(allocator.Free(one, stream));
  const absl::Duration began = runtime_->Now();
  const Allocation again = Must(allocator.Allocate(MiB(40), {.stream = &stream}));
  if (strategy() == AllocationStrategy::kSuballocating) {
    EXPECT_EQ(again.pointer(), one);
    EXPECT_EQ(runtime_->Now(), began);
  }
}

TEST_P(NativeStreamTest, TheLegacyStreamIsOneToo) {
  const Allocator allocator = Make();
  const DevicePtr one = Must(allocator.AllocateRaw(MiB(3), {.native = nullptr}));
  SpinOn(nullptr, absl::Milliseconds(1));
  EXPECT_OK(allocator.FreeNative(one, nullptr));
  runtime_->SleepFor(absl::Milliseconds(2));
  EXPECT_OK(allocator.Allocate(MiB(40)).status());
}

TEST_P(BlocksTest, WhatIsFreedInACaptureIsKeptUntilALaterFree) {
  const Allocator allocator = Make();
  auto* begin = runtime_->Symbol<int(CUstream_st*, int)>("cuStreamBeginCapture_v2");
  auto* end = runtime_->Symbol<int(CUstream_st*, void**)>("cuStreamEndCapture");
  CUstream_st* const native = MakeNative();
  const DevicePtr one = Must(allocator.AllocateRaw(MiB(20), {.native = native}));
  const DevicePtr two = Must(allocator.AllocateRaw(MiB(20), {.native = native}));
  const DevicePtr rest = Must(allocator.AllocateRaw(MiB(24)));
  ASSERT_EQ(begin(native, 1), 0);
  EXPECT_OK(allocator.FreeNative(one, native));
  void* graph = nullptr;
  ASSERT_EQ(end(native, &graph), 0);  // the capture is complete
  runtime_->SleepFor(absl::Milliseconds(1));
  EXPECT_OK(allocator.FreeNative(two, native));
  EXPECT_OK(allocator.Free(rest));
  EXPECT_OK(allocator.Allocate(MiB(60)).status());
  EXPECT_EQ(destroy_(native), 0);
}

// ---- Timeouts and alignment ----

TEST_P(NativeStreamTest, ATimeoutHoldsForOneAllocation) {
  const Allocator allocator = Make();
  const Allocation held = Must(allocator.Allocate(MiB(60)));
  const absl::Duration began = runtime_->Now();
  const absl::Status late =
      allocator.Allocate(MiB(32), {.timeout = absl::Milliseconds(20)}).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  EXPECT_NEAR(absl::ToDoubleMilliseconds(runtime_->Now() - began), 20, 2);
  EXPECT_TRUE(absl::IsResourceExhausted(allocator.Allocate(MiB(32)).status()));
  const Allocator waits = Make({.over_quota = OverQuota::kWait, .timeout = absl::Seconds(1)});
  EXPECT_TRUE(absl::IsResourceExhausted(
      waits.Allocate(MiB(32), {.timeout = absl::ZeroDuration()}).status()));
  EXPECT_EQ(allocator.Allocate(MiB(1), {.timeout = absl::Seconds(-1)}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(NativeStreamTest, ATimeoutBeginsWhenTheCallbackHasGivenUp) {
  int asked = 0;
  const Allocator allocator =
      Make({.over_quota = OverQuota::kReclaim, .reclaim = [&](Bytes, Bytes) {
              ++asked;
              return false;
            }});
  Allocation held = Must(allocator.Allocate(MiB(60)));
  Thread thread = Must(runtime_->StartThread("frees", [&] {
    runtime_->SleepFor(absl::Milliseconds(5));
    EXPECT_OK(held.Free());
    if (strategy() != AllocationStrategy::kDirect) {
      EXPECT_OK(allocator.Trim());
    }
  }));
  EXPECT_OK(allocator.Allocate(MiB(32), {.timeout = absl::Seconds(1)}).status());
  EXPECT_EQ(asked, 1);
}

TEST_P(NativeStreamTest, AlignmentsUpTo256AreGiven) {
  const Allocator allocator = Make();
  for (const uint64_t alignment : {0u, 1u, 64u, 256u}) {
    const Allocation memory = Must(allocator.Allocate(Bytes(100), {.alignment = alignment}));
    EXPECT_EQ(memory.pointer().value() % 256, 0u);
  }
  for (const uint64_t alignment : {3u, 512u}) {
    const absl::Status refused = allocator.Allocate(Bytes(1), {.alignment = alignment}).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("a power of two up to 256 allowed"));
  }
}

TEST_P(NativeStreamTest, StreamAndHandleTogetherAreRefused) {
  const Allocator allocator = Make();
  const Stream stream = Must(Stream::Create(*device_));
  EXPECT_EQ(allocator.Allocate(MiB(1), {.stream = &stream, .native = nullptr}).status().code(),
            absl::StatusCode::kInvalidArgument);
  gpushare_alloc_options options = {};
  options.struct_size = sizeof(options);
  options.set = 1u << 9;
  gpushare_device_ptr pointer = 0;
  EXPECT_EQ(gpushare_alloc_with(allocator.handle(), 1, &options, &pointer),
            GPUSHARE_INVALID_ARGUMENT);
  options.set = 0;
  EXPECT_EQ(gpushare_alloc_with(allocator.handle(), 1, &options, &pointer), GPUSHARE_OK);
  EXPECT_EQ(gpushare_free(allocator.handle(), pointer), GPUSHARE_OK);
}

TEST_P(PoolsTest, HitsAndFragmentationAreCounted) {
  const Allocator allocator = Make();
  std::vector<Allocation> live;
  for (int i = 0; i < 8; ++i) live.push_back(Must(allocator.Allocate(KiB(256))));
  const PoolStats full = Must(allocator.stats());
  EXPECT_EQ(full.served, 8u);
  EXPECT_EQ(full.hits, 7u);
  if (strategy() == AllocationStrategy::kPool) return;  // it does not report more
  EXPECT_EQ(full.idle(), Bytes(0));
  EXPECT_EQ(full.fragmentation(), 0);
  for (size_t i = 0; i < live.size(); i += 2) live[i] = Allocation();
  // The blocks are set apart. The next request that does not fit merges them, which changes nothing here.
  const Allocation more = Must(allocator.Allocate(KiB(512)));
  const PoolStats holes = Must(allocator.stats());
  EXPECT_EQ(holes.served, 9u);
  EXPECT_EQ(holes.hits, 7u);
  EXPECT_EQ(holes.idle(), MiB(2) - KiB(512) + MiB(1));
  EXPECT_NEAR(holes.fragmentation(), 1 - 1.5 / 2.5, 1e-9);
}

std::string StrategyName(const ::testing::TestParamInfo<int>& info) {
  constexpr const char* kNames[] = {"direct", "pool", "suballocating"};
  return kNames[info.param];
}
INSTANTIATE_TEST_SUITE_P(Strategies, NativeStreamTest, ::testing::Values(0, 1, 2), StrategyName);
INSTANTIATE_TEST_SUITE_P(Strategies, PoolsTest, ::testing::Values(1, 2), StrategyName);
INSTANTIATE_TEST_SUITE_P(Strategies, BlocksTest, ::testing::Values(2), StrategyName);

}  // namespace
}  // namespace gpushare
