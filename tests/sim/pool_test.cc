// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory: how much pools reserve, what they reuse and when, and what they release.
#include <cstring>
#include <limits>
#include <random>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class PoolTest : public SimTest {
 protected:
  static CUmemPoolProps Properties(size_t most = 0) {
    CUmemPoolProps properties;
    std::memset(&properties, 0, sizeof(properties));
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.maxSize = most;
    return properties;
  }
  static CUmemoryPool NewPool(size_t most = 0) {
    const CUmemPoolProps properties = Properties(most);
    CUmemoryPool pool = nullptr;
    EXPECT_CU(cuMemPoolCreate(&pool, &properties));
    return pool;
  }
  static CUdeviceptr Allocate(CUmemoryPool pool, size_t bytes, CUstream stream) {
    CUdeviceptr pointer = 0;
    EXPECT_CU(cuMemAllocFromPoolAsync(&pointer, bytes, pool, stream));
    return pointer;
  }
  static uint64_t Get(CUmemoryPool pool, CUmemPool_attribute attribute) {
    uint64_t value = 0;
    EXPECT_CU(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
  }
  static uint64_t Reserved(CUmemoryPool pool) {
    return Get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  }
  static uint64_t Used(CUmemoryPool pool) { return Get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }
  static void Set(CUmemoryPool pool, CUmemPool_attribute attribute, uint64_t value) {
    EXPECT_CU(cuMemPoolSetAttribute(pool, attribute, &value));
  }
};

TEST_F(PoolTest, ReservesGranulesAndHandsOutPartsOfThem) {
  const CUstream a = NewStream();
  CUmemoryPool pool = nullptr, current = nullptr;
  ASSERT_CU(cuDeviceGetDefaultMemPool(&pool, device_));
  ASSERT_CU(cuDeviceGetMemPool(&current, device_));
  EXPECT_EQ(pool, current);
  CUdeviceptr small = 0, other = 0, large = 0;
  ASSERT_CU(cuMemAllocAsync(&small, 1, a));
  EXPECT_EQ(Charged(), kPoolGranule);
  EXPECT_EQ(Reserved(pool), kPoolGranule);
  EXPECT_EQ(Used(pool), 512u);
  ASSERT_CU(cuMemAllocAsync(&other, 1000, a));
  EXPECT_EQ(other - small, 512u);
  EXPECT_EQ(Used(pool), 512u + 1024u);
  ASSERT_CU(cuMemAllocAsync(&large, kPoolGranule + 1, a));
  EXPECT_EQ(Charged(), 3 * kPoolGranule);
  for (CUdeviceptr pointer : {small, other, large}) ASSERT_CU(cuMemFreeAsync(pointer, a));
  EXPECT_EQ(Used(pool), 0u);
  EXPECT_EQ(Charged(), 3 * kPoolGranule);  // until a synchronization
  EXPECT_EQ(Get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 512 + 1024 + kPoolGranule + 512);
  ASSERT_CU(cuStreamSynchronize(a));
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(Get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 3 * kPoolGranule);
  Set(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0);
  Set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
  EXPECT_EQ(Get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 0u);
  EXPECT_EQ(Get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0u);
}

TEST_F(PoolTest, TheGranuleIsASetting) {
  Restart(std::string(kPlain) + ",pool_granule=2MiB");
  const CUmemoryPool pool = NewPool();
  Allocate(pool, 3 * kMiB, nullptr);
  EXPECT_EQ(Reserved(pool), 4 * kMiB);
}

TEST_F(PoolTest, AFreeCountsWhenItsStreamComesToIt) {
  const CUstream a = NewStream();
  const CUmemoryPool pool = NewPool();
  const CUdeviceptr pointer = Allocate(pool, kMiB, a);
  ASSERT_CU(Spin(a, 10'000, 1));
  ASSERT_CU(cuMemFreeAsync(pointer, a));
  EXPECT_EQ(Used(pool), kMiB);
  gpushare_sim_spend(9'999);
  EXPECT_EQ(Used(pool), kMiB);
  gpushare_sim_spend(1);
  EXPECT_EQ(Used(pool), 0u);
  EXPECT_EQ(cuMemFreeAsync(pointer, a), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(PoolTest, SynchronizingShrinksToTheReleaseThreshold) {
  const CUstream a = NewStream();
  const CUevent event = NewEvent();
  const CUmemoryPool pool = NewPool();
  const auto use = [&] {
    const CUdeviceptr pointer = Allocate(pool, 4 * kPoolGranule, a);
    ASSERT_CU(cuMemFreeAsync(pointer, a));
    ASSERT_EQ(Reserved(pool), 4 * kPoolGranule);
  };
  Set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 3 * kPoolGranule + 1);
  use();
  EXPECT_EQ(cuStreamQuery(a), CUDA_SUCCESS);
  EXPECT_EQ(Reserved(pool), 4 * kPoolGranule);  // a query is not a wait
  ASSERT_CU(cuStreamSynchronize(a));
  EXPECT_EQ(Reserved(pool),
            4 * kPoolGranule);  // releasing one granule would go below the threshold
  Set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 3 * kPoolGranule);
  ASSERT_CU(cuEventRecord(event, a));
  ASSERT_CU(cuEventSynchronize(event));
  EXPECT_EQ(Reserved(pool), 3 * kPoolGranule);
  use();
  Set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0);
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Reserved(pool), 0u);
  Set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, std::numeric_limits<uint64_t>::max());
  use();
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Reserved(pool), 4 * kPoolGranule);
}

TEST_F(PoolTest, TrimmingKeepsWhatIsUsedAndWhatItIsToldTo) {
  const CUstream a = NewStream();
  const CUmemoryPool pool = NewPool();
  const CUdeviceptr first = Allocate(pool, 2 * kPoolGranule, a);
  const CUdeviceptr second = Allocate(pool, kPoolGranule / 2, a);
  const CUdeviceptr third = Allocate(pool, 3 * kPoolGranule, a);
  ASSERT_CU(Spin(a, 10'000, 1));
  ASSERT_CU(cuMemFreeAsync(first, a));
  ASSERT_CU(cuMemFreeAsync(third, a));
  ASSERT_CU(cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(Reserved(pool), 6 * kPoolGranule);  // the frees have not run yet
  gpushare_sim_spend(10'000);
  ASSERT_CU(cuMemPoolTrimTo(pool, 7 * kPoolGranule));
  EXPECT_EQ(Reserved(pool), 6 * kPoolGranule);
  ASSERT_CU(cuMemPoolTrimTo(pool, 4 * kPoolGranule + 1));
  EXPECT_EQ(Reserved(pool), 5 * kPoolGranule);
  ASSERT_CU(cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(Reserved(pool), kPoolGranule);
  EXPECT_EQ(Charged(), kPoolGranule);
  ASSERT_CU(cuMemFreeAsync(second, a));
  ASSERT_CU(cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(Charged(), 0u);
  // Although it was fragmented, all of it can be allocated again.
  EXPECT_NE(Allocate(pool, 6 * kPoolGranule, a), 0u);
}

TEST_F(PoolTest, AStreamReusesItsOwnFreesAtOnce) {
  const CUstream a = NewStream();
  const CUmemoryPool pool = NewPool();
  ASSERT_CU(Spin(a, 10'000, 1));
  const CUdeviceptr first = Allocate(pool, kPoolGranule, a);
  ASSERT_CU(cuMemFreeAsync(first, a));
  const CUdeviceptr half = Allocate(pool, kPoolGranule / 2, a);
  EXPECT_EQ(half, first);
  EXPECT_EQ(Used(pool), kPoolGranule);  // the other half is not freed yet
  EXPECT_EQ(Allocate(pool, kPoolGranule / 2, a), first + kPoolGranule / 2);
  EXPECT_EQ(Reserved(pool), kPoolGranule);
  ASSERT_CU(cuStreamSynchronize(a));
  EXPECT_EQ(Used(pool), kPoolGranule);
  EXPECT_EQ(Get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), kPoolGranule);
}

TEST_F(PoolTest, FreeGranulesApartFromEachOtherMakeOneRange) {
  const CUstream a = NewStream();
  const CUmemoryPool pool = NewPool();
  CUdeviceptr apart[5];
  for (CUdeviceptr& one : apart) one = Allocate(pool, kPoolGranule, a);
  for (int i : {0, 2, 4}) ASSERT_CU(cuMemFreeAsync(apart[i], a));
  Allocate(pool, 3 * kPoolGranule, a);
  EXPECT_EQ(Reserved(pool), 5 * kPoolGranule);
  EXPECT_EQ(Charged(), 5 * kPoolGranule);
}

TEST_F(PoolTest, AnotherStreamReusesAFreeThatItWaitsFor) {
  const CUstream a = NewStream(), b = NewStream(), c = NewStream(), d = NewStream();
  const CUevent freed = NewEvent(), passed = NewEvent();
  const CUmemoryPool pool = NewPool();
  const CUdeviceptr pointer = Allocate(pool, kPoolGranule, a);
  ASSERT_CU(Spin(a, 10'000, 1));
  ASSERT_CU(cuMemFreeAsync(pointer, a));
  ASSERT_CU(cuEventRecord(freed, a));
  const CUdeviceptr unordered = Allocate(pool, kPoolGranule, b);
  EXPECT_NE(unordered, pointer);
  EXPECT_EQ(Reserved(pool), 2 * kPoolGranule);
  // By way of a third stream.
  ASSERT_CU(cuStreamWaitEvent(c, freed, 0));
  ASSERT_CU(cuEventRecord(passed, c));
  ASSERT_CU(cuStreamWaitEvent(d, passed, 0));
  Set(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 0);
  EXPECT_NE(Allocate(pool, kPoolGranule, d), pointer);
  Set(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 1);
  EXPECT_EQ(Allocate(pool, kPoolGranule, d), pointer);
  EXPECT_EQ(Reserved(pool), 3 * kPoolGranule);
}

TEST_F(PoolTest, TheDefaultStreamIsADependencyToo) {
  const CUstream blocking = NewStream(0, CU_STREAM_DEFAULT), free = NewStream();
  const CUmemoryPool pool = NewPool();
  const CUdeviceptr pointer = Allocate(pool, kPoolGranule, blocking);
  ASSERT_CU(Spin(blocking, 10'000, 1));
  ASSERT_CU(cuMemFreeAsync(pointer, blocking));
  EXPECT_NE(Allocate(pool, kPoolGranule, free), pointer);
  EXPECT_EQ(Allocate(pool, kPoolGranule, nullptr), pointer);
}

TEST_F(PoolTest, ACompletedFreeIsAnybodysUnlessThePoolSaysOtherwise) {
  const CUstream a = NewStream(), b = NewStream();
  const CUmemoryPool pool = NewPool();
  CUdeviceptr pointer = Allocate(pool, kPoolGranule, a);
  ASSERT_CU(cuMemFreeAsync(pointer, a));
  EXPECT_EQ(Allocate(pool, kPoolGranule, b), pointer);
  Set(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0);
  ASSERT_CU(cuMemFreeAsync(pointer, b));
  EXPECT_EQ(Used(pool), 0u);
  const CUdeviceptr grown = Allocate(pool, kPoolGranule, a);
  EXPECT_NE(grown, pointer);
  // After the host has waited for the stream, reuse does not depend on chance.
  Set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 2 * kPoolGranule);
  ASSERT_CU(cuStreamSynchronize(b));
  EXPECT_EQ(Allocate(pool, kPoolGranule, a), pointer);
  EXPECT_EQ(Reserved(pool), 2 * kPoolGranule);
}

TEST_F(PoolTest, WithoutRoomAStreamIsMadeToWaitForAFree) {
  const CUstream a = NewStream(), b = NewStream();
  const CUmemoryPool pool = NewPool(kPoolGranule);
  const CUdeviceptr pointer = Allocate(pool, kPoolGranule, a);
  ASSERT_CU(Spin(a, 10'000, 1));
  ASSERT_CU(cuMemFreeAsync(pointer, a));
  Set(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
  CUdeviceptr again = 0;
  EXPECT_EQ(cuMemAllocFromPoolAsync(&again, kPoolGranule, pool, b), CUDA_ERROR_OUT_OF_MEMORY);
  Set(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1);
  const uint64_t start = Now();
  EXPECT_EQ(Allocate(pool, kPoolGranule, b), pointer);
  ASSERT_CU(Spin(b, 1'000, 1));
  EXPECT_EQ(Now(), start);  // the stream waits, not the caller
  EXPECT_EQ(DoneAt(b, start), 11'000u);
}

TEST_F(PoolTest, APoolStaysBelowItsLimit) {
  const CUmemoryPool pool = NewPool(kPoolGranule + 4096);
  const CUstream a = NewStream();
  const CUdeviceptr first = Allocate(pool, kPoolGranule, a);
  CUdeviceptr none = 1234;
  EXPECT_EQ(cuMemAllocFromPoolAsync(&none, 4097, pool, a), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(none, 1234u);
  Allocate(pool, 4096, a);  // takes the rest, although it is smaller than a granule
  EXPECT_EQ(Reserved(pool), kPoolGranule + 4096);
  EXPECT_EQ(Charged(), kPoolGranule + 4096);
  EXPECT_EQ(cuMemAllocFromPoolAsync(&none, 1, pool, a), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CU(cuMemFreeAsync(first, a));
  ASSERT_CU(cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(Charged(), 4096u);
}

TEST_F(PoolTest, WhatAPoolHoldsUnusedIsThereForOthers) {
  const CUstream a = NewStream();
  const CUmemoryPool idle = NewPool(), pool = NewPool();
  Set(idle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, std::numeric_limits<uint64_t>::max());
  CUdeviceptr pointer = Allocate(idle, 20 * kPoolGranule, a);
  CUdeviceptr none = 0;
  EXPECT_EQ(cuMemAllocFromPoolAsync(&none, 20 * kPoolGranule, pool, a), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CU(cuMemFreeAsync(pointer, a));
  pointer = Allocate(pool, 20 * kPoolGranule, a);
  EXPECT_EQ(Reserved(idle), 0u);
  ASSERT_CU(cuMemFreeAsync(pointer, a));
  ASSERT_CU(cuMemAlloc(&pointer, 700 * kMiB));
  EXPECT_EQ(Charged(), 700 * kMiB);
  EXPECT_EQ(cuMemAllocAsync(&none, SIZE_MAX, a), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAllocAsync(&none, 512 * kMiB, a), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(PoolTest, EitherFamilyFreesWhatTheOtherGave) {
  const CUstream a = NewStream();
  const CUmemoryPool pool = NewPool();
  ASSERT_CU(Spin(a, 10'000, 1));
  const uint64_t start = Now();
  CUdeviceptr pointer = Allocate(pool, kMiB, a);
  ASSERT_CU(cuMemFree(pointer));
  EXPECT_EQ(Now(), start);  // the call does not wait for pool memory
  EXPECT_EQ(Used(pool), 0u);
  EXPECT_EQ(cuMemFree(pointer), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuMemPoolTrimTo(pool, 0));

  ASSERT_CU(cuMemAlloc(&pointer, kMiB));
  EXPECT_EQ(Charged(), kMiB);
  ASSERT_CU(cuMemFreeAsync(pointer, a));
  EXPECT_EQ(Charged(), kMiB);
  EXPECT_EQ(cuMemFreeAsync(pointer, a), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(pointer), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuStreamSynchronize(a));
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(PoolTest, CopiesBeforeAFreeFindTheirMemory) {
  const CUstream a = NewStream();
  const CUmemoryPool pool = NewPool();
  const CUdeviceptr pointer = Allocate(pool, kMiB, a);
  int32_t *in = nullptr, *out = nullptr;
  ASSERT_CU(cuMemAllocHost(reinterpret_cast<void**>(&in), kMiB));
  ASSERT_CU(cuMemAllocHost(reinterpret_cast<void**>(&out), kMiB));
  in[0] = 41;
  in[1000] = 42;
  ASSERT_CU(Spin(a, 10'000, 1));
  ASSERT_CU(cuMemcpyHtoDAsync(pointer, in, kMiB, a));
  ASSERT_CU(cuMemcpyDtoHAsync(out, pointer, kMiB, a));
  ASSERT_CU(cuMemFreeAsync(pointer, a));
  const CUdeviceptr part = Allocate(pool, 4096, a);
  EXPECT_EQ(part, pointer);
  EXPECT_EQ(cuMemcpyHtoDAsync(pointer, in, 8192, a), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuStreamSynchronize(a));
  EXPECT_EQ(out[0], 41);
  EXPECT_EQ(out[1000], 42);
}

TEST_F(PoolTest, WhatTheDriverKnowsOfAPointer) {
  const CUmemoryPool pool = NewPool();
  const CUdeviceptr pointer = Allocate(pool, 1000, nullptr);
  CUmemoryPool of = nullptr;
  EXPECT_CU(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer + 999));
  EXPECT_EQ(of, pool);
  CUcontext context = context_;
  EXPECT_CU(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, pointer));
  EXPECT_EQ(context, nullptr);  // stream-ordered memory belongs to no context
  int ordinal = -1;
  EXPECT_CU(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer));
  EXPECT_EQ(ordinal, 0);
  CUdeviceptr base = 0;
  size_t size = 0;
  EXPECT_CU(cuMemGetAddressRange(&base, &size, pointer + 500));
  EXPECT_EQ(base, pointer);
  EXPECT_EQ(size, 1000u);
  EXPECT_EQ(cuMemGetAddressRange(&base, &size, pointer + 1000), CUDA_ERROR_NOT_FOUND);
  CUdeviceptr plain = 0;
  ASSERT_CU(cuMemAlloc(&plain, 16));
  EXPECT_CU(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, plain));
  EXPECT_EQ(of, nullptr);
}

TEST_F(PoolTest, ADestroyedPoolGoesWithItsLastAllocation) {
  const CUstream a = NewStream();
  CUmemoryPool pool = NewPool(), standard = nullptr, current = nullptr;
  ASSERT_CU(cuDeviceGetDefaultMemPool(&standard, device_));
  ASSERT_CU(cuDeviceSetMemPool(device_, pool));
  ASSERT_CU(cuDeviceGetMemPool(&current, device_));
  EXPECT_EQ(current, pool);
  CUdeviceptr first = 0, second = 0;
  ASSERT_CU(cuMemAllocAsync(&first, 2 * kPoolGranule, a));
  ASSERT_CU(cuMemAllocAsync(&second, kPoolGranule, a));
  EXPECT_EQ(Used(pool), 3 * kPoolGranule);
  ASSERT_CU(Spin(a, 10'000, 1));
  ASSERT_CU(cuMemFreeAsync(first, a));
  ASSERT_CU(cuMemPoolDestroy(pool));
  ASSERT_CU(cuDeviceGetMemPool(&current, device_));
  EXPECT_EQ(current, standard);
  EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAllocFromPoolAsync(&first, 1, pool, a), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Charged(), 3 * kPoolGranule);
  ASSERT_CU(cuStreamSynchronize(a));
  EXPECT_EQ(Charged(), kPoolGranule);
  ASSERT_CU(Spin(a, 10'000, 1));
  ASSERT_CU(cuMemFreeAsync(second, a));
  gpushare_sim_spend(9'999);
  EXPECT_EQ(Charged(), kPoolGranule);
  gpushare_sim_spend(1);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(PoolTest, AllocationsOutliveContextsButNotTheirReset) {
  CUcontext other = nullptr;
  CUstream stream = nullptr;
  ASSERT_CU(cuCtxCreate_v2(&other, 0, device_));
  ASSERT_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUmemoryPool pool = NewPool();
  const CUdeviceptr kept = Allocate(pool, kPoolGranule, stream);
  const CUdeviceptr freed = Allocate(pool, kPoolGranule, stream);
  ASSERT_CU(cuMemFreeAsync(freed, stream));
  ASSERT_CU(cuCtxDestroy(other));
  EXPECT_EQ(Used(pool), kPoolGranule);
  const CUstream a = NewStream();
  ASSERT_CU(cuMemFreeAsync(kept, a));
  EXPECT_EQ(Used(pool), 0u);
  CUmemoryPool standard = nullptr, again = nullptr;
  ASSERT_CU(cuDeviceGetDefaultMemPool(&standard, device_));
  Allocate(standard, kPoolGranule, a);
  Allocate(pool, kPoolGranule, a);
  ASSERT_CU(cuDevicePrimaryCtxReset(device_));
  EXPECT_EQ(gpushare_sim_memory_used(0), 0u);
  EXPECT_EQ(cuMemPoolTrimTo(pool, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuDeviceGetDefaultMemPool(&again, device_));
  EXPECT_EQ(again, standard);
  EXPECT_EQ(Used(standard), 0u);
}

TEST_F(PoolTest, AResetWhileAnotherContextFrees) {
  CUcontext other = nullptr;
  ASSERT_CU(cuCtxCreate_v2(&other, 0, device_));
  CUstream stream = nullptr;
  ASSERT_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUevent never = NewEvent();
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  ASSERT_CU(cuModuleLoadData(&module, kPtx));
  ASSERT_CU(cuModuleGetFunction(&spin, module, "spin"));
  uint64_t ns = 10'000;
  void* parameters[] = {&ns};
  ASSERT_CU(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
  CUdeviceptr pointer = 0;
  ASSERT_CU(cuMemAllocAsync(&pointer, kMiB, stream));
  ASSERT_CU(cuMemFreeAsync(pointer, stream));
  ASSERT_CU(cuEventRecord(never, stream));
  ASSERT_CU(cuDevicePrimaryCtxReset(device_));
  EXPECT_CU(cuStreamSynchronize(stream));
  EXPECT_EQ(Charged(), 0u);
  EXPECT_CU(cuCtxDestroy(other));
}

TEST_F(PoolTest, AnIllegalAddressEndsTheStreamsFrees) {
  const CUstream a = NewStream();
  const CUmemoryPool pool = NewPool();
  const CUdeviceptr pointer = Allocate(pool, kMiB, a);
  char error[128];
  ASSERT_EQ(0, gpushare_sim_inject("illegal_address kernel=k_10us", error, sizeof(error)));
  ASSERT_CU(cuLaunchKernel(k_10us_, 1, 1, 1, 32, 1, 1, 0, a, nullptr, nullptr));
  ASSERT_CU(cuMemFreeAsync(pointer, a));
  EXPECT_EQ(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(Used(pool), 0u);
  CUdeviceptr none = 0;
  EXPECT_EQ(cuMemAllocFromPoolAsync(&none, 1, pool, a), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(PoolTest, FaultsReachThem) {
  char error[128];
  const CUstream a = NewStream();
  CUdeviceptr pointer = 0;
  ASSERT_EQ(0, gpushare_sim_inject("oom after=1", error, sizeof(error)));
  EXPECT_CU(cuMemAllocAsync(&pointer, 1, a));
  EXPECT_EQ(cuMemAllocAsync(&pointer, 1, a), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(0, gpushare_sim_inject("clear", error, sizeof(error)));
  ASSERT_EQ(0,
            gpushare_sim_inject("error call=cuMemFreeAsync code=999 nth=1", error, sizeof(error)));
  EXPECT_EQ(cuMemFreeAsync(pointer, a), CUDA_ERROR_UNKNOWN);
  EXPECT_CU(cuMemFreeAsync(pointer, a));
}

TEST_F(PoolTest, NonsenseIsRefused) {
  const CUstream a = NewStream();
  const CUmemoryPool pool = NewPool();
  CUdeviceptr pointer = 0;
  EXPECT_EQ(cuMemAllocAsync(&pointer, 0, a), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAllocAsync(nullptr, 1, a), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAllocFromPoolAsync(&pointer, 1, nullptr, a), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAllocAsync(&pointer, 1, reinterpret_cast<CUstream>(pool)),
            CUDA_ERROR_INVALID_HANDLE);
  pointer = Allocate(pool, 1024, a);
  EXPECT_EQ(cuMemFreeAsync(pointer + 512, a), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFreeAsync(0, a), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(pointer + 512), CUDA_ERROR_INVALID_VALUE);
  // Memory that a pool keeps after a free is not a valid pointer.
  ASSERT_CU(cuMemFreeAsync(pointer, a));
  EXPECT_EQ(cuMemFree(pointer), CUDA_ERROR_INVALID_VALUE);

  CUmemoryPool made = nullptr;
  const auto refused = [&](CUmemPoolProps properties, CUresult code) {
    EXPECT_EQ(cuMemPoolCreate(&made, &properties), code);
  };
  CUmemPoolProps properties = Properties();
  EXPECT_EQ(cuMemPoolCreate(nullptr, &properties), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemPoolCreate(&made, nullptr), CUDA_ERROR_INVALID_VALUE);
  properties.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
  refused(properties, CUDA_ERROR_INVALID_VALUE);
  properties = Properties();
  properties.location.id = 1;
  refused(properties, CUDA_ERROR_INVALID_VALUE);
  properties = Properties();
  properties.location.type = CU_MEM_LOCATION_TYPE_INVALID;
  refused(properties, CUDA_ERROR_INVALID_VALUE);
  properties = Properties();
  properties.reserved[3] = 1;
  refused(properties, CUDA_ERROR_INVALID_VALUE);
  properties = Properties();
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  refused(properties, CUDA_ERROR_NOT_SUPPORTED);

  uint64_t value = 1;
  EXPECT_EQ(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(0), &value),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemPoolGetAttribute(nullptr, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemPoolTrimTo(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemPoolDestroy(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceGetDefaultMemPool(&made, 1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuDeviceSetMemPool(0, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(PoolTest, AccessIsPerDevice) {
  Restart(std::string(kPlain) + ",devices=2");
  const CUmemoryPool pool = NewPool();
  CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, 0}, there{CU_MEM_LOCATION_TYPE_DEVICE, 1};
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  EXPECT_CU(cuMemPoolGetAccess(&flags, pool, &here));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_CU(cuMemPoolGetAccess(&flags, pool, &there));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  CUmemAccessDesc description{there, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_CU(cuMemPoolSetAccess(pool, &description, 1));
  EXPECT_CU(cuMemPoolGetAccess(&flags, pool, &there));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  description = {here, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  EXPECT_EQ(cuMemPoolSetAccess(pool, &description, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceSetMemPool(1, pool), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(PoolTest, LiveAllocationsNeverOverlapAndTheBooksAreExact) {
  std::mt19937 random(7);
  const CUstream streams[] = {NewStream(), NewStream(), NewStream(0, CU_STREAM_DEFAULT), nullptr};
  const CUmemoryPool pool = NewPool(8 * kPoolGranule);
  Set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 2 * kPoolGranule);
  struct Live {
    CUdeviceptr pointer;
    size_t bytes;
  };
  std::vector<Live> live;
  uint64_t used = 0;
  for (int i = 0; i < 4000; ++i) {
    const CUstream stream = streams[random() % 4];
    const unsigned what = random() % 16;
    if (what < 7) {
      const size_t bytes = 1 + random() % (random() % 4 == 0 ? 40 * kMiB : 64'000);
      CUdeviceptr pointer = 0;
      const CUresult result = cuMemAllocFromPoolAsync(&pointer, bytes, pool, stream);
      if (result == CUDA_ERROR_OUT_OF_MEMORY) continue;
      ASSERT_CU(result);
      for (const Live& other : live) {
        ASSERT_TRUE(pointer + bytes <= other.pointer || other.pointer + other.bytes <= pointer);
      }
      live.push_back({pointer, bytes});
      used += (bytes + 511) / 512 * 512;
    } else if (what < 13 && !live.empty()) {
      const size_t which = random() % live.size();
      ASSERT_CU(random() % 8 == 0 ? cuMemFree(live[which].pointer)
                                  : cuMemFreeAsync(live[which].pointer, stream));
      used -= (live[which].bytes + 511) / 512 * 512;
      live[which] = live.back();
      live.pop_back();
    } else if (what == 13) {
      ASSERT_CU(cuStreamSynchronize(stream));
    } else {
      ASSERT_CU(Spin(stream, random() % 20'000, 1));
    }
    ASSERT_GE(Used(pool), used);
    ASSERT_GE(Reserved(pool), Used(pool));
    ASSERT_LE(Reserved(pool), 8 * kPoolGranule);
    ASSERT_EQ(Charged(), Reserved(pool));
  }
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Used(pool), used);
  for (const Live& one : live) ASSERT_CU(cuMemFreeAsync(one.pointer, streams[0]));
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Used(pool), 0u);
  EXPECT_EQ(Reserved(pool), 2 * kPoolGranule);
  ASSERT_CU(cuMemPoolDestroy(pool));
  EXPECT_EQ(Charged(), 0u);
}

}  // namespace
}  // namespace gpushare::sim_test
