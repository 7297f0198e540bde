// SPDX-License-Identifier: Apache-2.0
// Allocations: capacity, validation, and pointer attributes.
#include <algorithm>
#include <cstring>
#include <random>

#include "tests/sim/sim_test.h"

// The headers of CUDA 13 declare only the newest versions.
extern "C" CUresult CUDAAPI cuMemPrefetchAsync_v2(CUdeviceptr, size_t, CUmemLocation, unsigned,
                                                  CUstream);

namespace gpushare::sim_test {
namespace {

using MemoryTest = SimTest;
TEST_F(MemoryTest, CapacityIsChargedToTheByteAndHandedBack) {
  const uint64_t before = gpushare_sim_memory_used(0);
  CUdeviceptr a, b;
  ASSERT_CU(cuMemAlloc(&a, 1000));
  ASSERT_CU(cuMemAlloc(&b, 1));
  EXPECT_EQ(gpushare_sim_memory_used(0) - before, 1001u);
  size_t free = 0, total = 0;
  ASSERT_CU(cuMemGetInfo(&free, &total));
  EXPECT_EQ(total, 1024 * kMiB);
  EXPECT_EQ(free, total - gpushare_sim_memory_used(0));
  EXPECT_CU(cuMemFree(a));
  EXPECT_CU(cuMemFree(b));
  EXPECT_EQ(gpushare_sim_memory_used(0), before);
}

TEST_F(MemoryTest, OverCapacityIsOutOfMemoryAndHarmless) {
  CUdeviceptr a = 0, b = 1234, c = 0;
  const uint64_t before = gpushare_sim_memory_used(0);
  ASSERT_CU(cuMemAlloc(&a, 700 * kMiB));
  EXPECT_EQ(cuMemAlloc(&b, 400 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(b, 1234u);
  EXPECT_EQ(cuMemAlloc(&b, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CU(cuMemAlloc(&c, 1024 * kMiB - before - 700 * kMiB));  // the last byte
  EXPECT_EQ(cuMemAlloc(&b, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(cuMemFree(c));
  EXPECT_CU(cuMemFree(a));
}

// As an H100 does, if the configuration says so.
TEST_F(MemoryTest, InPagesSmallAllocationsShareThemAndLargeOnesHaveTheirOwn) {
  Restart(std::string(kPlain) + ",page=2MiB");
  const uint64_t before = gpushare_sim_memory_used(0);
  const auto taken = [&] { return gpushare_sim_memory_used(0) - before; };
  const auto unused = [] {
    uint64_t page = 0, bytes = 0;
    EXPECT_EQ(0, gpushare_sim_pages(0, &page, &bytes));
    EXPECT_EQ(page, 2 * kMiB);
    return bytes;
  };
  std::vector<CUdeviceptr> small(64);
  for (CUdeviceptr& one : small) ASSERT_CU(cuMemAlloc(&one, 1));
  EXPECT_EQ(taken(), 2 * kMiB);
  EXPECT_EQ(unused(), 2 * kMiB - 64 * 512);
  CUdeviceptr half = 0, more = 0, large = 0;
  ASSERT_CU(cuMemAlloc(&half, kMiB));
  EXPECT_EQ(taken(), 2 * kMiB);
  ASSERT_CU(cuMemAlloc(&more, kMiB + 1));
  EXPECT_EQ(taken(), 4 * kMiB);
  ASSERT_CU(cuMemAlloc(&large, 3 * kMiB));
  EXPECT_EQ(taken(), 8 * kMiB);
  EXPECT_CU(cuMemFree(more));
  EXPECT_CU(cuMemFree(large));
  EXPECT_CU(cuMemFree(half));
  EXPECT_EQ(taken(), 2 * kMiB);
  // The page is the device's again with the last of its allocations, wherever that lies.
  std::swap(small[20], small.back());
  while (small.size() > 1) {
    EXPECT_CU(cuMemFree(small.back()));
    small.pop_back();
  }
  EXPECT_EQ(taken(), 2 * kMiB);
  EXPECT_CU(cuMemFree(small[0]));
  EXPECT_EQ(cuMemFree(small[0]), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(taken(), 0u);
  EXPECT_EQ(unused(), 0u);
  // What is left is less than a page, and of no use to any allocation.
  ASSERT_CU(cuMemAlloc(&large, 1022 * kMiB - before));
  EXPECT_EQ(cuMemAlloc(&half, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(cuMemFree(large));
}

TEST_F(MemoryTest, InPagesManagedMemoryAndArraysTakeWholeOnesToo) {
  Restart(std::string(kPlain) + ",page=2MiB");
  const uint64_t before = gpushare_sim_memory_used(0);
  const auto taken = [&] { return gpushare_sim_memory_used(0) - before; };
  CUdeviceptr managed = 0;
  ASSERT_CU(cuMemAllocManaged(&managed, 3 * kMiB, CU_MEM_ATTACH_GLOBAL));
  EXPECT_EQ(taken(), 4 * kMiB);
  CUmemLocation host{};
  host.type = CU_MEM_LOCATION_TYPE_HOST;
  ASSERT_CU(cuMemPrefetchAsync_v2(managed + kMiB, 2 * kMiB, host, 0, nullptr));
  ASSERT_CU(cuStreamSynchronize(nullptr));
  EXPECT_EQ(taken(), kMiB);  // what is behind the end of the range went with its end
  EXPECT_CU(cuMemFree(managed));
  EXPECT_EQ(taken(), 0u);
  CUDA_ARRAY_DESCRIPTOR shape{};
  shape.Width = shape.Height = 1000;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 1;
  CUarray array = nullptr;
  ASSERT_CU(cuArrayCreate(&array, &shape));
  EXPECT_EQ(taken(), 4 * kMiB);
  EXPECT_CU(cuArrayDestroy(array));
  EXPECT_EQ(taken(), 0u);
}

// Like on a real card, if the configuration says so.
TEST_F(MemoryTest, ContextsAndModulesTakeMemory) {
  Restart("memory=1GiB,context_memory=300MiB,module_memory=10MiB");
  const uint64_t before = gpushare_sim_memory_used(0);
  EXPECT_EQ(before / kMiB, 310u);  // the primary context and its module
  const auto taken = [&] { return gpushare_sim_memory_used(0) - before; };
  CUmodule module = nullptr, second = nullptr;
  constexpr char kEmpty[] = ".version 7.0\n.target sm_70\n.address_size 64\n";
  ASSERT_CU(cuModuleLoadData(&module, kEmpty));
  EXPECT_EQ(taken(), 10 * kMiB);
  CUcontext mine = nullptr, other = nullptr;
  ASSERT_CU(cuCtxCreate_v2(&mine, 0, device_));
  ASSERT_CU(cuModuleLoadData(&second, kEmpty));
  ASSERT_CU(cuCtxCreate_v2(&other, 0, device_));
  EXPECT_EQ(taken(), 620 * kMiB);
  EXPECT_EQ(cuCtxCreate_v2(&other, 0, device_), CUDA_ERROR_OUT_OF_MEMORY);
  CUdeviceptr pointer = 0;
  ASSERT_CU(cuMemAlloc(&pointer, 90 * kMiB));
  EXPECT_EQ(cuModuleLoadData(&second, kEmpty), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(cuCtxDestroy(other));  // ends the memory that was allocated in it too
  EXPECT_CU(cuCtxDestroy(mine));   // ends its module too
  EXPECT_CU(cuModuleUnload(module));
  EXPECT_EQ(taken(), 0u);
}

TEST_F(MemoryTest, WhatWasNotAllocatedCannotBeFreed) {
  CUdeviceptr a;
  ASSERT_CU(cuMemAlloc(&a, 4096));
  EXPECT_EQ(cuMemFree(a + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(reinterpret_cast<CUdeviceptr>(&a)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemFree(a));
  EXPECT_EQ(cuMemFree(a), CUDA_ERROR_INVALID_VALUE);  // the second free
  EXPECT_EQ(cuMemAlloc(&a, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAlloc(nullptr, 10), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, BlocksNeverOverlapAndStayWithinCapacity) {
  std::mt19937 random(1);
  std::vector<std::pair<CUdeviceptr, size_t>> live;
  const uint64_t before = gpushare_sim_memory_used(0);
  size_t used = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2 == 0 || live.empty()) {
      const size_t size = 1 + random() % (random() % 3 == 0 ? 40 * kMiB : 5000);
      CUdeviceptr pointer;
      const CUresult result = cuMemAlloc(&pointer, size);
      const bool fits = size <= 1024 * kMiB - before - used;
      ASSERT_EQ(result == CUDA_SUCCESS, fits);
      if (!fits) continue;
      used += size;
      live.emplace_back(pointer, size);
    } else {
      const size_t victim = random() % live.size();
      used -= live[victim].second;
      ASSERT_CU(cuMemFree(live[victim].first));
      live[victim] = live.back();
      live.pop_back();
    }
  }
  EXPECT_EQ(gpushare_sim_memory_used(0) - before, used);
  std::sort(live.begin(), live.end());
  for (size_t i = 1; i < live.size(); ++i) {
    ASSERT_LE(live[i - 1].first + live[i - 1].second, live[i].first);
  }
}

TEST_F(MemoryTest, InPagesBlocksNeverOverlapEither) {
  Restart(std::string(kPlain) + ",page=2MiB");
  std::mt19937 random(2);
  std::vector<std::pair<CUdeviceptr, size_t>> live;  // with what each takes
  const uint64_t before = gpushare_sim_memory_used(0);
  uint64_t taken = 0, unused = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2 == 0 || live.empty()) {
      const size_t size = 1 + random() % (random() % 9 == 0 ? 40 * kMiB : 300'000);
      CUdeviceptr pointer = 0;
      if (cuMemAlloc(&pointer, size) != CUDA_SUCCESS) continue;
      const size_t unit = size > kMiB ? 2 * kMiB : 512;
      live.emplace_back(pointer, (size + unit - 1) / unit * unit);
      taken += live.back().second;
    } else {
      const size_t victim = random() % live.size();
      taken -= live[victim].second;
      ASSERT_CU(cuMemFree(live[victim].first));
      live[victim] = live.back();
      live.pop_back();
    }
    ASSERT_EQ(0, gpushare_sim_pages(0, nullptr, &unused));
    ASSERT_EQ(gpushare_sim_memory_used(0) - before, taken + unused);
  }
  ASSERT_GT(live.size(), 20u);
  std::sort(live.begin(), live.end());
  for (size_t i = 1; i < live.size(); ++i) {
    ASSERT_LE(live[i - 1].first + live[i - 1].second, live[i].first);
  }
  for (const auto& [pointer, bytes] : live) ASSERT_CU(cuMemFree(pointer));
  EXPECT_EQ(gpushare_sim_memory_used(0), before);
}

TEST_F(MemoryTest, PitchesAreAlignedAndCharged) {
  CUdeviceptr pointer;
  size_t pitch = 0;
  const uint64_t before = gpushare_sim_memory_used(0);
  ASSERT_CU(cuMemAllocPitch(&pointer, &pitch, 1000, 10, 4));
  EXPECT_EQ(pitch, 1024u);
  EXPECT_EQ(gpushare_sim_memory_used(0) - before, 10240u);
  EXPECT_EQ(cuMemAllocPitch(&pointer, &pitch, 1000, 10, 3), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAllocPitch(&pointer, &pitch, SIZE_MAX / 2, 10, 4), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, PointersAreKnownByRangeAndKind) {
  CUdeviceptr a, base = 0;
  size_t size = 0;
  ASSERT_CU(cuMemAlloc(&a, 5000));
  EXPECT_CU(cuMemGetAddressRange(&base, &size, a + 4999));
  EXPECT_EQ(base, a);
  EXPECT_EQ(size, 5000u);
  EXPECT_EQ(cuMemGetAddressRange(&base, &size, a + 5000), CUDA_ERROR_NOT_FOUND);
  unsigned type = 0;
  EXPECT_CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a + 7));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  void* host = nullptr;
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 100, size_t{1} << 63}) {
    EXPECT_EQ(cuMemHostAlloc(&host, bytes, 0), CUDA_ERROR_OUT_OF_MEMORY) << bytes;
    EXPECT_EQ(cuMemAllocHost(&host, bytes), CUDA_ERROR_OUT_OF_MEMORY) << bytes;
  }
  ASSERT_CU(cuMemHostAlloc(&host, 100, CU_MEMHOSTALLOC_PORTABLE));
  const auto address = reinterpret_cast<CUdeviceptr>(host);
  EXPECT_CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  int local = 0;
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  reinterpret_cast<CUdeviceptr>(&local)),
            CUDA_ERROR_INVALID_VALUE);
  unsigned flags = 0;
  EXPECT_CU(cuMemHostGetFlags(&flags, host));
  EXPECT_EQ(flags, static_cast<unsigned>(CU_MEMHOSTALLOC_PORTABLE));
  EXPECT_CU(cuMemFreeHost(host));
  EXPECT_EQ(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFreeHost(&local), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, RegisteredRangesMayNotOverlap) {
  std::vector<char> memory(100'000);
  EXPECT_CU(cuMemHostRegister(memory.data() + 1000, 1000, 0));
  EXPECT_EQ(cuMemHostRegister(memory.data() + 1500, 10, 0),
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(cuMemHostRegister(memory.data(), 5000, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(cuMemHostUnregister(memory.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(cuMemFreeHost(memory.data() + 1000), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemHostUnregister(memory.data() + 1000));
}

TEST_F(MemoryTest, FreeingWaitsForTheWorkOfItsContext) {
  const CUstream a = NewStream();
  CUdeviceptr pointer;
  ASSERT_CU(cuMemAlloc(&pointer, 4096));
  ASSERT_CU(Spin(a, 10'000, 1));
  const uint64_t start = Now();
  EXPECT_CU(cuMemFree(pointer));
  EXPECT_EQ(Now() - start, 10'000u);
}

TEST_F(MemoryTest, TheHostCannotTouchDeviceMemory) {
  CUdeviceptr pointer;
  ASSERT_CU(cuMemAlloc(&pointer, 4096));
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(pointer) = 1, "");
}

TEST_F(MemoryTest, FreedMemoryGoesBackToTheMachine) {
  // 64 rounds of 512 MiB only fit if freed pages are reused.
  std::vector<char> host(16 * kMiB, 7);
  for (int round = 0; round < 64; ++round) {
    CUdeviceptr pointer;
    ASSERT_CU(cuMemAlloc(&pointer, (512 - static_cast<size_t>(round)) * kMiB));
    ASSERT_CU(cuMemcpyHtoD(pointer + 100 * kMiB, host.data(), host.size()));
    ASSERT_CU(cuMemFree(pointer));
  }
}

}  // namespace
}  // namespace gpushare::sim_test
