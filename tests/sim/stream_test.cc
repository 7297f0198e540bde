// SPDX-License-Identifier: Apache-2.0
// Streams: the legacy stream, per-thread streams, destruction, waiting.
#include <memory>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

using StreamTest = SimTest;

TEST_F(StreamTest, TheLegacyStreamWaitsForBlockingStreamsAndTheyForIt) {
  const CUstream a = NewStream(0, CU_STREAM_DEFAULT), b = NewStream(0, CU_STREAM_DEFAULT);
  const uint64_t start = Now();
  ASSERT_CU(Spin(a, 10'000, 10));
  ASSERT_CU(Spin(nullptr, 10'000, 10));
  ASSERT_CU(Spin(b, 10'000, 10));
  EXPECT_EQ(DoneAt(a, start), 10'000u);
  EXPECT_EQ(DoneAt(b, start), 30'000u);
}

TEST_F(StreamTest, NonBlockingStreamsIgnoreTheLegacyStream) {
  const CUstream a = NewStream(), b = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(Spin(a, 10'000, 10));
  ASSERT_CU(Spin(CU_STREAM_LEGACY, 10'000, 10));
  ASSERT_CU(Spin(b, 10'000, 10));
  EXPECT_EQ(DoneAt(a, start), 10'000u);
  EXPECT_EQ(DoneAt(b, start), 10'000u);
  EXPECT_EQ(DoneAt(nullptr, start), 10'000u);
}

TEST_F(StreamTest, SynchronisingTheLegacyStreamWaitsForBlockingStreams) {
  const CUstream a = NewStream(0, CU_STREAM_DEFAULT);
  const uint64_t start = Now();
  ASSERT_CU(Spin(a, 10'000, 10));
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(DoneAt(nullptr, start), 10'000u);
  EXPECT_CU(cuStreamQuery(nullptr));
}

TEST_F(StreamTest, SynchronisingIsNoBarrierForOthers) {
  const CUstream a = NewStream(0, CU_STREAM_DEFAULT), b = NewStream(0, CU_STREAM_DEFAULT);
  const uint64_t start = Now();
  ASSERT_CU(Spin(a, 50'000, 10));
  SimThread waiter("waiter", [&] {
    EXPECT_CU(cuCtxSetCurrent(context_));
    EXPECT_CU(cuStreamSynchronize(nullptr));
    EXPECT_EQ(Now() - start, 50'000u);
  });
  gpushare_sim_spend(1'000);
  ASSERT_CU(Spin(b, 10'000, 10));
  EXPECT_EQ(DoneAt(b, start), 11'000u);
}

TEST_F(StreamTest, SynchronisingAContextDoesNotWaitForLaterWork) {
  const CUstream a = NewStream(), b = NewStream();
  ASSERT_CU(Spin(a, 10'000, 10));
  ASSERT_CU(Spin(b, 20'000, 10));
  const uint64_t start = Now();
  SimThread feeder("feeder", [&] {
    EXPECT_CU(cuCtxSetCurrent(context_));
    for (int i = 0; i < 20; ++i) {
      EXPECT_CU(Spin(a, 10'000, 10));
      gpushare_sim_spend(5'000);
    }
  });
  gpushare_sim_spend(1);
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Now() - start, 20'000u);  // b is done; a's first and second kernels ended before that
}

TEST_F(StreamTest, WaitersForSpaceFindTheStreamGone) {
  Restart(std::string(kPlain) + ",queue_depth=1");
  const CUstream a = NewStream();
  ASSERT_CU(Spin(a, 10'000, 10));
  std::vector<CUresult> results;
  std::vector<std::unique_ptr<SimThread>> threads;
  for (int i = 0; i < 3; ++i) {
    threads.push_back(std::make_unique<SimThread>("launcher", [&] {
      EXPECT_CU(cuCtxSetCurrent(context_));
      results.push_back(Spin(a, 10'000, 10));
    }));
  }
  gpushare_sim_spend(1'000);
  ASSERT_CU(cuStreamDestroy(a));
  threads.clear();
  EXPECT_EQ(results, std::vector<CUresult>(3, CUDA_ERROR_INVALID_HANDLE));
}

TEST_F(StreamTest, EachThreadHasADefaultStreamOfItsOwn) {
  unsigned long long mine = 0, other = 0, legacy = 0, again = 0;
  EXPECT_CU(cuStreamGetId(CU_STREAM_PER_THREAD, &mine));
  EXPECT_CU(cuStreamGetId(CU_STREAM_PER_THREAD, &again));
  EXPECT_CU(cuStreamGetId(nullptr, &legacy));
  SimThread thread("other", [&] {
    EXPECT_CU(cuCtxSetCurrent(context_));
    EXPECT_CU(cuStreamGetId(CU_STREAM_PER_THREAD, &other));
  });
  thread.Join();
  EXPECT_EQ(mine, again);
  EXPECT_NE(mine, other);
  EXPECT_NE(mine, legacy);
}

TEST_F(StreamTest, SynchroniseWaitsForWhatIsThereAtTheCall) {
  const CUstream a = NewStream();
  ASSERT_CU(Spin(a, 10'000, 10));
  const uint64_t start = Now();
  SimThread adder("adder", [&] {
    EXPECT_CU(cuCtxSetCurrent(context_));
    gpushare_sim_spend(5'000);
    EXPECT_CU(Spin(a, 10'000, 10));
  });
  EXPECT_EQ(DoneAt(a, start), 10'000u);
  adder.Join();
  EXPECT_EQ(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
}

TEST_F(StreamTest, SynchroniseReturnsLaterByWhatItCosts) {
  Restart(std::string(kPlain) + ",sync_return=3us");
  const CUstream a = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(Spin(a, 10'000, 10));
  EXPECT_EQ(DoneAt(a, start), 13'000u);
}

TEST_F(StreamTest, ADestroyedStreamFinishesItsWork) {
  const CUstream a = NewStream();
  ASSERT_EQ(0, gpushare_sim_set_account(a, 5));
  for (int i = 0; i < 3; ++i) ASSERT_CU(Spin(a, 10'000, 10));
  ASSERT_CU(cuStreamDestroy(a));
  EXPECT_EQ(cuStreamQuery(a), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Spin(a, 10'000, 10), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamDestroy(a), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Truth(5).kernels, 3u);
}

TEST_F(StreamTest, GettersGiveWhatCreationSaid) {
  const CUstream high = NewStream(-3), clamped = NewStream(-99, CU_STREAM_DEFAULT);
  int priority = 0, least = 1, greatest = 1;
  unsigned flags = 9;
  EXPECT_CU(cuCtxGetStreamPriorityRange(&least, &greatest));
  EXPECT_EQ(least, 0);
  EXPECT_EQ(greatest, -5);
  EXPECT_CU(cuStreamGetPriority(high, &priority));
  EXPECT_EQ(priority, -3);
  EXPECT_CU(cuStreamGetPriority(clamped, &priority));
  EXPECT_EQ(priority, -5);
  EXPECT_CU(cuStreamGetFlags(high, &flags));
  EXPECT_EQ(flags, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  EXPECT_CU(cuStreamGetFlags(clamped, &flags));
  EXPECT_EQ(flags, 0u);
  CUcontext context = nullptr;
  EXPECT_CU(cuStreamGetCtx(high, &context));
  EXPECT_EQ(context, context_);
}

TEST_F(StreamTest, CreatedContextsAreIndependent) {
  CUcontext other;
  ASSERT_CU(cuCtxCreate_v2(&other, 0, device_));
  CUstream stream;
  ASSERT_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  // A kernel of the other context's module is rejected on this context's stream.
  EXPECT_EQ(Spin(stream, 1000, 1), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_CU(cuCtxDestroy(other));
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
  CUcontext current;
  EXPECT_CU(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, context_);
}

TEST_F(StreamTest, DestroyingAContextEndsItsWorkAndItsWaiters) {
  CUcontext other;
  ASSERT_CU(cuCtxCreate_v2(&other, 0, device_));
  CUmodule module;
  CUfunction spin;
  ASSERT_CU(cuModuleLoadData(&module, kPtx));
  ASSERT_CU(cuModuleGetFunction(&spin, module, "spin"));
  const CUstream stream = NewStream();
  uint64_t ns = 1'000'000;
  void* parameters[] = {&ns};
  for (int i = 0; i < 3; ++i) {
    ASSERT_CU(cuLaunchKernel(spin, 250, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
  }
  CUresult waited = CUDA_SUCCESS;
  SimThread waiter("waiter", [&] {
    EXPECT_CU(cuCtxSetCurrent(other));
    waited = cuStreamSynchronize(stream);
  });
  gpushare_sim_spend(100'000);
  ASSERT_CU(cuCtxDestroy(other));
  waiter.Join();
  EXPECT_EQ(waited, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  // The SMs are free again.
  const CUstream mine = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(Spin(mine, 10'000, 100));
  EXPECT_EQ(DoneAt(mine, start), 10'000u);
}

TEST_F(StreamTest, ThePrimaryContextLivesWhileItIsRetained) {
  CUcontext again;
  ASSERT_CU(cuDevicePrimaryCtxRetain(&again, device_));
  EXPECT_EQ(again, context_);
  unsigned flags;
  int active = 0;
  ASSERT_CU(cuDevicePrimaryCtxRelease(device_));
  EXPECT_CU(cuDevicePrimaryCtxGetState(device_, &flags, &active));
  EXPECT_EQ(active, 1);
  CUdeviceptr pointer;
  ASSERT_CU(cuMemAlloc(&pointer, 4096));
  ASSERT_CU(cuDevicePrimaryCtxReset(device_));
  EXPECT_CU(cuDevicePrimaryCtxGetState(device_, &flags, &active));
  EXPECT_EQ(active, 0);
  EXPECT_EQ(gpushare_sim_memory_used(0), 0u);
  EXPECT_EQ(cuMemAlloc(&pointer, 4096), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

// cuda.core and others retain the primary context once and keep its handle for ever.
TEST_F(StreamTest, ThePrimaryContextKeepsItsHandle) {
  const CUcontext first = context_;
  ASSERT_CU(cuDevicePrimaryCtxReset(device_));
  EXPECT_EQ(cuCtxPushCurrent(first), CUDA_ERROR_INVALID_CONTEXT);
  CUcontext other, again;
  ASSERT_CU(cuCtxCreate_v2(&other, 0, device_));
  EXPECT_NE(other, first);
  ASSERT_CU(cuDevicePrimaryCtxRetain(&again, device_));
  EXPECT_EQ(again, first);
  ASSERT_CU(cuCtxDestroy(other));

  ASSERT_EQ(0, gpushare_sim_reset());
  ASSERT_CU(cuInit(0));
  EXPECT_EQ(cuCtxSetCurrent(first), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_CU(cuDevicePrimaryCtxRetain(&again, device_));
  EXPECT_EQ(again, first);
  ASSERT_CU(cuCtxSetCurrent(first));
  CUdeviceptr pointer;
  EXPECT_CU(cuMemAlloc(&pointer, 4096));
}

}  // namespace
}  // namespace gpushare::sim_test
