// SPDX-License-Identifier: Apache-2.0
// Managed memory: one address for host and device, charged on the device where its pages are, prefetched and advised
// by pages.
#include <array>
#include <cstring>
#include <random>

#include "tests/sim/sim_test.h"

// The headers of CUDA 13 declare only the newest versions.
#undef cuMemPrefetchAsync
#undef cuMemAdvise
extern "C" {
CUresult CUDAAPI cuMemPrefetchAsync_v2(CUdeviceptr, size_t, CUmemLocation, unsigned, CUstream);
CUresult CUDAAPI cuMemAdvise_v2(CUdeviceptr, size_t, CUmem_advise, CUmemLocation);
}

namespace gpushare::sim_test {
namespace {

constexpr size_t kPage = 4096;
constexpr CUmemLocation kDevice{CU_MEM_LOCATION_TYPE_DEVICE, 0},
    kHost{CU_MEM_LOCATION_TYPE_HOST, 0};

class ManagedMemoryTest : public SimTest {
 protected:
  void SetUp() override { Start(std::string(kPlain) + ",h2d=10GB/s,d2h=20GB/s,d2d=100GB/s"); }
  static CUdeviceptr Allocate(size_t bytes) {
    CUdeviceptr pointer = 0;
    EXPECT_CU(cuMemAllocManaged(&pointer, bytes, CU_MEM_ATTACH_GLOBAL));
    return pointer;
  }
  static char* Host(CUdeviceptr pointer) { return reinterpret_cast<char*>(pointer); }
  static int Attribute(CUmem_range_attribute attribute, CUdeviceptr pointer, size_t bytes) {
    int value = -99;
    EXPECT_CU(cuMemRangeGetAttribute(&value, sizeof(value), attribute, pointer, bytes));
    return value;
  }
  static CUresult Prefetch(CUdeviceptr pointer, size_t bytes, CUmemLocation to,
                           CUstream stream = nullptr) {
    return cuMemPrefetchAsync_v2(pointer, bytes, to, 0, stream);
  }
};

TEST_F(ManagedMemoryTest, HostAndDeviceShareTheBytes) {
  const CUdeviceptr a = Allocate(10'000);
  std::memset(Host(a), 7, 10'000);
  ASSERT_CU(cuMemsetD8(a + 100, 9, 50));
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Host(a)[99], 7);
  EXPECT_EQ(Host(a)[100], 9);
  EXPECT_EQ(Host(a)[150], 7);
  CUdeviceptr device;
  ASSERT_CU(cuMemAlloc(&device, 100));
  ASSERT_CU(cuMemcpyDtoD(device, a + 100, 100));
  std::array<char, 100> read{};
  ASSERT_CU(cuMemcpyDtoH(read.data(), device, 100));
  EXPECT_EQ(read[49], 9);
  EXPECT_EQ(read[50], 7);
  // It can also be used where a host pointer is required.
  ASSERT_CU(cuMemcpyHtoD(a, Host(a) + 100, 10));
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Host(a)[0], 9);
  EXPECT_EQ(cuMemcpyHtoD(a + 9'990, read.data(), 11), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ManagedMemoryTest, TheDeviceAnnouncesIt) {
  int value = 0;
  for (const auto attribute :
       {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS}) {
    ASSERT_CU(cuDeviceGetAttribute(&value, attribute, device_));
    EXPECT_EQ(value, 1);
  }
}

TEST_F(ManagedMemoryTest, TheDeviceIsChargedWithWhatIsOnIt) {
  const size_t size = 10 * kMiB + 100;
  const CUdeviceptr a = Allocate(size);
  EXPECT_EQ(Charged(), size);
  ASSERT_CU(Prefetch(a, 4 * kMiB, kHost));
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Charged(), size - 4 * kMiB);
  ASSERT_CU(Prefetch(a, size, kHost));
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Charged(), 0u);
  // The last page is charged with the requested size; ranges are rounded to pages.
  ASSERT_CU(Prefetch(a + size - 1, 1, kDevice));
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Charged(), 100u);
  ASSERT_CU(Prefetch(a + kPage + 5, 1, kDevice));
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Charged(), 100u + kPage);
  ASSERT_CU(cuMemFree(a));
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(ManagedMemoryTest, APrefetchTakesTheTimeOfWhatMoves) {
  const CUdeviceptr a = Allocate(10'000'000);
  uint64_t start = Now();
  ASSERT_CU(Prefetch(a, 10'000'000, kDevice));  // already there
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Now(), start);
  ASSERT_CU(Prefetch(a, 10'000'000, kHost));
  EXPECT_EQ(Now(), start);  // does not block
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Now() - start, 500'000u);
  start = Now();
  ASSERT_CU(Prefetch(a, 10'000'000, kDevice));
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Now() - start, 1'000'000u);
  EXPECT_EQ(Truth(0).d2h_bytes, 10'000'000u);
  EXPECT_EQ(Truth(0).h2d_bytes, 10'000'000u);
}

TEST_F(ManagedMemoryTest, APrefetchGoesAsFarAsThereIsRoom) {
  const CUdeviceptr a = Allocate(600 * kMiB);
  ASSERT_CU(Prefetch(a, 600 * kMiB, kHost));
  ASSERT_CU(cuCtxSynchronize());
  CUdeviceptr other;
  ASSERT_CU(cuMemAlloc(&other, 700 * kMiB));
  ASSERT_CU(Prefetch(a, 600 * kMiB, kDevice));
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_LE(gpushare_sim_memory_used(0), 1024 * kMiB);
  EXPECT_GT(gpushare_sim_memory_used(0), 1024 * kMiB - kPage);
  ASSERT_CU(cuMemFree(other));
  ASSERT_CU(cuMemFree(a));
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(ManagedMemoryTest, AllocationsAreChecked) {
  CUdeviceptr a = 3;
  EXPECT_EQ(cuMemAllocManaged(&a, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAllocManaged(nullptr, 10, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAllocManaged(&a, 10, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAllocManaged(&a, 10, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAllocManaged(&a, size_t{1} << 63, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAllocManaged(&a, 1025 * kMiB, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(a, 3u);
  EXPECT_EQ(Charged(), 0u);
  ASSERT_CU(cuMemAllocManaged(&a, 1, CU_MEM_ATTACH_HOST));
  EXPECT_EQ(Charged(), 1u);
  EXPECT_EQ(cuMemFree(a + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemFree(a));
  EXPECT_EQ(cuMemFree(a), CUDA_ERROR_INVALID_VALUE);
  char error[64];
  ASSERT_EQ(0, gpushare_sim_inject("oom", error, sizeof(error)));
  EXPECT_EQ(cuMemAllocManaged(&a, 1, 1), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CU(cuCtxSetCurrent(nullptr));
  EXPECT_EQ(cuMemAllocManaged(&a, 1, 1), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_CU(cuCtxSetCurrent(context_));
}

TEST_F(ManagedMemoryTest, AContextTakesItsMemoryWithIt) {
  CUcontext other;
  ASSERT_CU(cuCtxCreate_v2(&other, 0, device_));
  const CUdeviceptr a = Allocate(1000);
  ASSERT_CU(cuCtxSetCurrent(context_));
  const CUstream stream = NewStream();
  ASSERT_CU(Spin(stream, 1000, 1));
  ASSERT_CU(cuMemsetD8Async(a, 1, 1000, stream));
  ASSERT_CU(cuCtxDestroy(other));
  EXPECT_EQ(Charged(), 0u);
  EXPECT_CU(cuStreamSynchronize(stream));  // the set accessed nothing
  unsigned type;
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ManagedMemoryTest, RangesAndPlacesArePartOfTheCall) {
  const CUdeviceptr a = Allocate(2 * kPage);
  CUdeviceptr plain;
  ASSERT_CU(cuMemAlloc(&plain, 100));
  EXPECT_EQ(Prefetch(a, 0, kDevice), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Prefetch(a, 2 * kPage + 1, kDevice), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Prefetch(a, SIZE_MAX, kDevice), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Prefetch(plain, 10, kDevice), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Prefetch(a, 10, {CU_MEM_LOCATION_TYPE_DEVICE, 1}), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(Prefetch(a, 10, {CU_MEM_LOCATION_TYPE_INVALID, 0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemPrefetchAsync_v2(a, 10, kHost, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAdvise_v2(a, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, kDevice), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAdvise_v2(plain, 1, CU_MEM_ADVISE_SET_READ_MOSTLY, kDevice),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAdvise_v2(a, 1, static_cast<CUmem_advise>(7), kDevice), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAdvise_v2(a, 1, CU_MEM_ADVISE_SET_ACCESSED_BY, {CU_MEM_LOCATION_TYPE_DEVICE, 5}),
            CUDA_ERROR_INVALID_DEVICE);
  int value;
  EXPECT_EQ(cuMemRangeGetAttribute(&value, 3, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, a, 1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, plain, 1),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ManagedMemoryTest, AdviceIsKeptByPages) {
  const CUdeviceptr a = Allocate(8 * kPage);
  EXPECT_EQ(Attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, a, 8 * kPage), 0);
  EXPECT_EQ(Attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, a, 1), CU_DEVICE_INVALID);
  EXPECT_EQ(Attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, a, 1), CU_DEVICE_INVALID);
  ASSERT_CU(cuMemAdvise_v2(a + kPage + 1, 2 * kPage, CU_MEM_ADVISE_SET_READ_MOSTLY, kDevice));
  EXPECT_EQ(Attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, a + kPage, 3 * kPage), 1);
  EXPECT_EQ(Attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, a + kPage, 3 * kPage + 1), 0);
  EXPECT_EQ(Attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, a, 2 * kPage), 0);
  ASSERT_CU(cuMemAdvise_v2(a, 8 * kPage, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kHost));
  EXPECT_EQ(Attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, a, 8 * kPage), CU_DEVICE_CPU);
  ASSERT_CU(cuMemAdvise_v2(a, 1, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kDevice));
  EXPECT_EQ(Attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, a, kPage), 0);
  EXPECT_EQ(Attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, a, kPage),
            CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(Attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, a, 8 * kPage), CU_DEVICE_INVALID);
  ASSERT_CU(cuMemAdvise_v2(a, 8 * kPage, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, kHost));
  EXPECT_EQ(Attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, a, 1), CU_DEVICE_INVALID);
  ASSERT_CU(cuMemAdvise_v2(a, 8 * kPage, CU_MEM_ADVISE_SET_ACCESSED_BY, kDevice));
  ASSERT_CU(cuMemAdvise_v2(a, 4 * kPage, CU_MEM_ADVISE_SET_ACCESSED_BY, kHost));
  std::array<int, 3> by{};
  ASSERT_CU(cuMemRangeGetAttribute(by.data(), sizeof(by), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, a,
                                   4 * kPage));
  EXPECT_EQ(by, (std::array<int, 3>{CU_DEVICE_CPU, 0, CU_DEVICE_INVALID}));
  ASSERT_CU(cuMemRangeGetAttribute(by.data(), sizeof(by), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, a,
                                   5 * kPage));
  EXPECT_EQ(by, (std::array<int, 3>{0, CU_DEVICE_INVALID, CU_DEVICE_INVALID}));
  ASSERT_CU(Prefetch(a, 8 * kPage, kHost));
  int prefetched = 0, mostly = 7;
  void* data[] = {&prefetched, &mostly};
  size_t sizes[] = {4, 4};
  CUmem_range_attribute attributes[] = {CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
                                        CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY};
  ASSERT_CU(cuMemRangeGetAttributes(data, sizes, attributes, 2, a + kPage, kPage));
  EXPECT_EQ(prefetched, CU_DEVICE_CPU);
  EXPECT_EQ(mostly, 1);
}

TEST_F(ManagedMemoryTest, PointersOfItAreManaged) {
  const CUdeviceptr a = Allocate(5000);
  const auto get = [&](auto value, CUpointer_attribute attribute) {
    EXPECT_CU(cuPointerGetAttribute(&value, attribute, a + 10)) << attribute;
    return value;
  };
  EXPECT_EQ(get(0u, CU_POINTER_ATTRIBUTE_IS_MANAGED), 1u);
  EXPECT_EQ(get(0u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(get(CUdeviceptr{}, CU_POINTER_ATTRIBUTE_HOST_POINTER), a + 10);
  EXPECT_EQ(get(CUdeviceptr{}, CU_POINTER_ATTRIBUTE_DEVICE_POINTER), a + 10);
  EXPECT_EQ(get(CUcontext{}, CU_POINTER_ATTRIBUTE_CONTEXT), context_);
  EXPECT_EQ(get(size_t{}, CU_POINTER_ATTRIBUTE_RANGE_SIZE), 5000u);
  EXPECT_EQ(get(0u, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS), 3u);
  CUdeviceptr base = 0;
  size_t size = 0;
  EXPECT_CU(cuMemGetAddressRange(&base, &size, a + 4999));
  EXPECT_EQ(base, a);
  EXPECT_EQ(size, 5000u);
  CUdeviceptr plain;
  ASSERT_CU(cuMemAlloc(&plain, 10));
  unsigned managed = 7;
  ASSERT_CU(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, plain));
  EXPECT_EQ(managed, 0u);
}

TEST_F(ManagedMemoryTest, AttachingKeepsTheOrderOfItsStream) {
  const CUdeviceptr a = Allocate(5000);
  const CUstream stream = NewStream();
  ASSERT_CU(Spin(stream, 1000, 1));
  ASSERT_CU(cuStreamAttachMemAsync(stream, a, 0, CU_MEM_ATTACH_SINGLE));
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  ASSERT_CU(cuStreamSynchronize(stream));
  EXPECT_CU(cuStreamAttachMemAsync(nullptr, a, 5000, CU_MEM_ATTACH_GLOBAL));
  EXPECT_EQ(cuStreamAttachMemAsync(nullptr, a, 0, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamAttachMemAsync(stream, a, 100, CU_MEM_ATTACH_HOST), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamAttachMemAsync(stream, a + 1, 0, CU_MEM_ATTACH_HOST), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamAttachMemAsync(stream, a, 0, 3), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ManagedMemoryTest, APrefetchCannotBeCaptured) {
  const CUdeviceptr a = Allocate(5000);
  const CUstream stream = NewStream();
  ASSERT_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(Prefetch(a, 10, kHost, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph;
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

// Compares random prefetches with a model of the pages on the device.
TEST_F(ManagedMemoryTest, RandomPrefetchesAddUp) {
  constexpr size_t kPages = 64, kSize = kPages * kPage - 1234;
  const CUdeviceptr a = Allocate(kSize);
  std::mt19937 random(3);
  std::vector<bool> on_device(kPages, true);
  for (int step = 0; step < 2000; ++step) {
    const size_t offset = random() % kSize, bytes = 1 + random() % (kSize - offset);
    const bool up = random() % 2 == 0;
    ASSERT_CU(Prefetch(a + offset, bytes, up ? kDevice : kHost));
    ASSERT_CU(cuCtxSynchronize());
    for (size_t page = offset / kPage; page <= (offset + bytes - 1) / kPage; ++page) {
      on_device[page] = up;
    }
    size_t used = 0;
    for (size_t page = 0; page < kPages; ++page) {
      if (on_device[page]) used += std::min(kPage, kSize - page * kPage);
    }
    ASSERT_EQ(Charged(), used) << step;
  }
}

}  // namespace
}  // namespace gpushare::sim_test
