// SPDX-License-Identifier: Apache-2.0
// A virtual device's memory as a memory resource of CCCL: checked by CCCL's own concepts, and by allocations on the
// simulated GPU. The test is not linked with the CUDA runtime.
#include "gpushare/cuda_mr.h"

#include <stdexcept>

#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;
using Ref = cuda::mr::resource_ref<cuda::mr::device_accessible>;
using Any = cuda::mr::any_resource<cuda::mr::device_accessible>;

constexpr size_t kAlignment = cuda::mr::default_cuda_malloc_alignment;

static_assert(cuda::mr::resource<CudaMemoryResource>);
static_assert(cuda::mr::resource_with<CudaMemoryResource, cuda::mr::device_accessible>);
static_assert(cuda::mr::synchronous_resource_with<CudaMemoryResource, cuda::mr::device_accessible>);
static_assert(!cuda::has_property<CudaMemoryResource, cuda::mr::host_accessible>);
static_assert(std::is_copy_constructible_v<CudaMemoryResource>);
static_assert(std::is_base_of_v<std::bad_alloc, OutOfMemory>);
static_assert(std::is_nothrow_copy_constructible_v<OutOfMemory>);

class CudaMrTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    device_.emplace(MakeDevice("a", "memory=64MiB"));
    pool_.emplace(
        Must(Allocator::Create(*device_, {.strategy = AllocationStrategy::kSuballocating})));
    create_ = runtime_->Symbol<int(CUstream_st**, unsigned)>("cuStreamCreate");
    destroy_ = runtime_->Symbol<int(CUstream_st*)>("cuStreamDestroy_v2");
    ASSERT_EQ(create_(&native_, 1), 0);
  }
  void TearDown() override {
    EXPECT_EQ(destroy_(native_), 0);
    pool_.reset();
    device_.reset();
    DeviceTest::TearDown();
  }
  uint64_t Live() { return Must(pool_->stats()).live.count(); }

  std::optional<VirtualDevice> device_;
  std::optional<Allocator> pool_;
  int (*create_)(CUstream_st**, unsigned) = nullptr;
  int (*destroy_)(CUstream_st*) = nullptr;
  CUstream_st* native_ = nullptr;
};

TEST_F(CudaMrTest, AllocatesInTheOrderOfAStreamAndOfNone) {
  CudaMemoryResource resource(*pool_);
  const cuda::stream_ref stream(native_);
  void* const a = resource.allocate(stream, 1000);
  void* const b = resource.allocate_sync(1000, 64);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % kAlignment, 0u);
  EXPECT_EQ(Live(), 2048u);
  resource.deallocate(stream, a, 1000);
  resource.deallocate_sync(b, 1000, 64);
  EXPECT_EQ(Live(), 0u);
  EXPECT_EQ(resource.allocate(stream, 0), nullptr);
  resource.deallocate(stream, nullptr, 0);
}

TEST_F(CudaMrTest, LibrariesTakeItByReferenceAndByValue) {
  CudaMemoryResource resource(*pool_);
  const cuda::stream_ref stream(native_);
  Ref ref = resource;
  void* const a = ref.allocate(stream, 1 << 20, kAlignment);
  EXPECT_EQ(Live(), uint64_t{1} << 20);
  Any any(resource);
  any.deallocate(stream, a, 1 << 20, kAlignment);
  EXPECT_EQ(Live(), 0u);
  const Any copy = any;
  EXPECT_TRUE(copy == any);
}

TEST_F(CudaMrTest, EqualIsWhatFreesTheSameMemory) {
  const CudaMemoryResource one(*pool_), same(*pool_);
  const CudaMemoryResource other(Must(Allocator::Create(*device_)));
  EXPECT_TRUE(one == same);
  EXPECT_TRUE(one != other);
}

TEST_F(CudaMrTest, OverTheQuotaItThrowsABadAllocThatSaysWhy) {
  CudaMemoryResource resource(*pool_);
  try {
    resource.allocate(cuda::stream_ref(native_), 65 << 20);
    FAIL() << "nothing was thrown";
  } catch (const std::bad_alloc& error) {
    EXPECT_THAT(error.what(), HasSubstr("tenant 'a' on GPU 0: 65 MiB asked, 64 MiB left"));
  }
  EXPECT_THROW(resource.allocate_sync(1, 512), std::invalid_argument);
  EXPECT_THROW(resource.allocate_sync(1, 48), std::invalid_argument);
  CudaMemoryResource waits(
      Must(Allocator::Create(*device_, {.strategy = AllocationStrategy::kSuballocating,
                                        .over_quota = OverQuota::kWait,
                                        .timeout = absl::Milliseconds(5)})));
  void* const all = resource.allocate_sync(60 << 20);
  EXPECT_THROW(waits.allocate_sync(8 << 20), OutOfMemory);
  resource.deallocate_sync(all, 60 << 20);
}

TEST_F(CudaMrTest, ThrustsTemporariesAreBytesOfAStream) {
  ThrustTemporaries temporaries(*pool_, cuda::stream_ref(native_));
  char* const bytes = temporaries.allocate(3000);
  EXPECT_EQ(Live(), 3072u);
  temporaries.deallocate(bytes, 3000);
  EXPECT_EQ(Live(), 0u);
}

}  // namespace
}  // namespace gpushare
