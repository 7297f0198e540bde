// SPDX-License-Identifier: Apache-2.0
// Green contexts: where their kernels run, what orders them, and what they share with the primary context.
#include <random>

#include "tests/sim/green_test.h"

namespace gpushare::sim_test {
namespace {

using GreenContextTest = GreenTest;

TEST_F(GreenContextTest, KernelsKeepToTheirSms) {
  const CUstream own = NewStream(Green(24));
  const uint64_t start = Now();
  EXPECT_CU(Spin(own, 10'000, 24));
  EXPECT_EQ(10'000u, DoneAt(own, start));
  EXPECT_CU(Spin(own, 10'000, 60));  // 24, 24 and 12 of its groups
  EXPECT_EQ(40'000u, DoneAt(own, start));
}

TEST_F(GreenContextTest, TwoPartitionsRunBesideEachOther) {
  const std::vector<CUgreenCtx> greens = Greens(48, 2);
  const CUstream a = NewStream(greens[0]), b = NewStream(greens[1]);
  const uint64_t start = Now();
  EXPECT_CU(Spin(a, 50'000, 96));  // two rounds
  EXPECT_CU(Spin(b, 10'000, 48));
  EXPECT_EQ(10'000u, DoneAt(b, start)) << "it does not wait for the other's queue";
  EXPECT_EQ(100'000u, DoneAt(a, start));
}

TEST_F(GreenContextTest, TheSmsAreNotKeptFreeOfOthers) {
  const CUstream own = NewStream(Green(24)), other = SimTest::NewStream();
  const uint64_t start = Now();
  EXPECT_CU(Spin(other, 10'000, 76));  // all SMs outside the partition
  EXPECT_CU(Spin(own, 2'000, 24));
  EXPECT_EQ(2'000u, DoneAt(own, start));
  EXPECT_EQ(10'000u, DoneAt(other, start));
  EXPECT_CU(Spin(other, 10'000, 100));
  EXPECT_CU(Spin(own, 2'000, 24));
  EXPECT_EQ(22'000u, DoneAt(own, start));
}

TEST_F(GreenContextTest, TwoOfTheSameSmsShareThem) {
  const CUstream a = NewStream(Green(24)), b = NewStream(Green(24));
  const uint64_t start = Now();
  EXPECT_CU(Spin(a, 10'000, 24));
  EXPECT_CU(Spin(b, 10'000, 24));
  EXPECT_EQ(20'000u, DoneAt(b, start));
}

TEST_F(GreenContextTest, AKernelThatRunsWhenTheFirstIsMadeHoldsTheLastSms) {
  const CUstream other = SimTest::NewStream();
  const uint64_t start = Now();
  EXPECT_CU(Spin(other, 10'000, 84));  // 16 SMs are free
  const CUstream own = NewStream(Green(24));
  EXPECT_CU(Spin(own, 1'000, 16));
  EXPECT_EQ(1'000u, DoneAt(own, start));
  EXPECT_CU(Spin(own, 1'000, 24));  // 16 groups now, then the other 8 in the partition
  EXPECT_EQ(3'000u, DoneAt(own, start));
  EXPECT_EQ(10'000u, DoneAt(other, start));
  EXPECT_CU(Spin(own, 1'000, 24));
  EXPECT_EQ(11'000u, DoneAt(own, start));
}

TEST_F(GreenContextTest, GroundTruthIsBySms) {
  const CUstream a = NewStream(Green(24)), b = SimTest::NewStream();
  ASSERT_EQ(0, gpushare_sim_set_account(a, 1));
  ASSERT_EQ(0, gpushare_sim_set_account(b, 2));
  const uint64_t start = Now();
  EXPECT_CU(Spin(a, 25'000, 96));  // 24 SMs for 100 us
  EXPECT_CU(Spin(b, 50'000, 72));  // 72 for 50
  EXPECT_EQ(100'000u, DoneAt(a, start));
  EXPECT_DOUBLE_EQ(50'000 * 0.25 + 50'000, Truth(1).used_ns);
  EXPECT_DOUBLE_EQ(50'000 * 0.75, Truth(2).used_ns);
  EXPECT_EQ(1u, Truth(1).kernels);
  double busy = 0, sms = 0;
  ASSERT_EQ(0, gpushare_sim_device_busy(0, &busy, &sms));
  EXPECT_DOUBLE_EQ(100'000, busy);
  EXPECT_DOUBLE_EQ(50'000 * 0.96 + 50'000 * 0.24, sms);
}

TEST_F(GreenContextTest, PriorityHoldsWithinAPartition) {
  const CUgreenCtx green = Green(24);
  const CUstream low = NewStream(green), high = NewStream(green, -5);
  const uint64_t start = Now();
  EXPECT_CU(Spin(low, 10'000, 72));
  EXPECT_CU(Spin(high, 10'000, 24));
  EXPECT_EQ(20'000u, DoneAt(high, start));
  EXPECT_EQ(40'000u, DoneAt(low, start));
}

TEST_F(GreenContextTest, ACooperativeKernelMustFitThePartition) {
  const CUstream own = NewStream(Green(24));
  uint64_t ns = 1'000;
  void* parameters[] = {&ns};
  EXPECT_CU(cuLaunchCooperativeKernel(spin_, 24, 1, 1, 32, 1, 1, 0, own, parameters));
  EXPECT_EQ(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
            cuLaunchCooperativeKernel(spin_, 25, 1, 1, 32, 1, 1, 0, own, parameters));
}

TEST_F(GreenContextTest, AsAContextItIsThePrimaryWithItsSms) {
  const CUgreenCtx green = Green(24);
  CUcontext as_context = nullptr, current = nullptr;
  ASSERT_CU(cuCtxFromGreenCtx(&as_context, green));
  EXPECT_NE(context_, as_context);
  ASSERT_CU(cuCtxSetCurrent(as_context));
  EXPECT_CU(cuCtxGetCurrent(&current));
  EXPECT_EQ(as_context, current);
  CUdevResource resource;
  EXPECT_CU(cuCtxGetDevResource(as_context, &resource, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(24u, resource.sm.smCount);
  const CUstream stream = SimTest::NewStream();  // created while the green context is current
  CUgreenCtx of = nullptr;
  EXPECT_CU(cuStreamGetGreenCtx(stream, &of));
  EXPECT_EQ(green, of);
  EXPECT_CU(cuStreamGetGreenCtx(nullptr, &of));
  EXPECT_EQ(green, of);
  EXPECT_CU(cuStreamGetCtx(stream, &current));
  EXPECT_EQ(as_context, current);
  EXPECT_CU(cuStreamGetCtx_v2(stream, &current, &of));
  EXPECT_EQ(context_, current);
  EXPECT_EQ(green, of);
  const uint64_t start = Now();
  EXPECT_CU(Spin(nullptr, 10'000, 48));  // its default stream; the module is the primary's
  EXPECT_EQ(20'000u, DoneAt(nullptr, start));
  CUdeviceptr pointer = 0;
  EXPECT_CU(cuMemAlloc(&pointer, kMiB));
  ASSERT_CU(cuCtxSetCurrent(context_));
  EXPECT_CU(cuMemFree(pointer));
  EXPECT_CU(cuStreamGetGreenCtx(nullptr, &of));
  EXPECT_EQ(nullptr, of);
}

TEST_F(GreenContextTest, ItsDefaultStreamOrdersItsOwnStreams) {
  const CUgreenCtx green = Green(24);
  CUcontext as_context = nullptr;
  ASSERT_CU(cuCtxFromGreenCtx(&as_context, green));
  const CUstream outside = SimTest::NewStream(0, CU_STREAM_DEFAULT);
  ASSERT_CU(cuCtxSetCurrent(as_context));
  const CUstream inside = SimTest::NewStream(0, CU_STREAM_DEFAULT);
  const uint64_t start = Now();
  EXPECT_CU(Spin(outside, 50'000, 1));
  EXPECT_CU(Spin(nullptr, 10'000, 1));
  EXPECT_CU(Spin(inside, 10'000, 1));
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(20'000u, Now() - start) << "what is outside is not waited for";
  ASSERT_CU(cuCtxSetCurrent(context_));
  EXPECT_CU(Spin(inside, 60'000, 1));
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(80'000u, Now() - start) << "the primary context waits for its green ones";
}

TEST_F(GreenContextTest, ANodeRunsWhereItWasMade) {
  const CUstream own = NewStream(Green(24)), other = SimTest::NewStream();
  const auto captured = [&](CUstream stream) {
    CUgraph graph = nullptr;
    EXPECT_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT_CU(Spin(stream, 10'000, 48));
    EXPECT_CU(cuStreamEndCapture(stream, &graph));
    return Make(graph);
  };
  const CUgraphExec inside = captured(own), outside = captured(other);
  uint64_t start = Now();
  EXPECT_CU(cuGraphLaunch(inside, own));
  EXPECT_EQ(20'000u, DoneAt(own, start));
  EXPECT_CU(cuGraphLaunch(inside, other));
  EXPECT_EQ(40'000u, DoneAt(other, start));
  EXPECT_CU(cuGraphLaunch(outside, own));
  EXPECT_EQ(50'000u, DoneAt(own, start));
}

TEST_F(GreenContextTest, EventsOfAllThatItDoes) {
  const CUgreenCtx green = Green(24);
  const CUstream a = NewStream(green), b = NewStream(green), other = SimTest::NewStream();
  const CUevent event = NewEvent();
  const uint64_t start = Now();
  EXPECT_CU(Spin(a, 10'000, 1));
  EXPECT_CU(Spin(b, 30'000, 1));
  EXPECT_CU(Spin(other, 90'000, 1));
  EXPECT_CU(cuGreenCtxRecordEvent(green, event));
  EXPECT_CU(cuEventSynchronize(event));
  EXPECT_EQ(30'000u, Now() - start);
  const CUevent later = NewEvent();
  EXPECT_CU(cuEventRecord(later, other));
  EXPECT_CU(cuGreenCtxWaitEvent(green, later));
  EXPECT_CU(Spin(a, 1'000, 1));
  const CUstream made_later = NewStream(green);
  EXPECT_CU(Spin(made_later, 2'000, 1));
  EXPECT_EQ(91'000u, DoneAt(a, start));
  EXPECT_EQ(92'000u, DoneAt(made_later, start));
  // Neither is allowed in a capture.
  EXPECT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuGreenCtxRecordEvent(green, event));
  CUgraph graph = nullptr;
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(a, &graph));
}

TEST_F(GreenContextTest, OneThatIsGoneAnswersSo) {
  const CUgreenCtx green = Green(24);
  CUcontext as_context = nullptr;
  ASSERT_CU(cuCtxFromGreenCtx(&as_context, green));
  const CUstream stream = NewStream(green), other = SimTest::NewStream();
  const uint64_t start = Now();
  EXPECT_CU(Spin(stream, 10'000, 24));
  EXPECT_CU(cuGreenCtxDestroy(green));
  EXPECT_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamSynchronize(stream));
  EXPECT_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamDestroy(stream));
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(as_context));
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxDestroy(green));
  EXPECT_CU(Spin(other, 10'000,
                 100));  // 24 of its groups wait for the kernel that still runs in the partition
  EXPECT_EQ(20'000u, DoneAt(other, start));
}

TEST_F(GreenContextTest, AFaultTakesThePrimaryContextAndAllItsGreenOnes) {
  char error[256] = "";
  const std::vector<CUgreenCtx> greens = Greens(48, 2);
  const CUstream a = NewStream(greens[0]), b = NewStream(greens[1]);
  ASSERT_EQ(0, gpushare_sim_inject("illegal_address kernel=k_10us", error, sizeof(error))) << error;
  EXPECT_CU(cuLaunchKernel(k_10us_, 1, 1, 1, 32, 1, 1, 0, a, nullptr, nullptr));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(a));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, Spin(b, 1'000, 1));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST_F(GreenContextTest, AKernelThatNeverEndsKeepsItsPartitionOnly) {
  char error[256] = "";
  const std::vector<CUgreenCtx> greens = Greens(48, 2);
  const CUstream a = NewStream(greens[0]), b = NewStream(greens[1]);
  ASSERT_EQ(0, gpushare_sim_inject("hang kernel=k_10us", error, sizeof(error))) << error;
  EXPECT_CU(cuLaunchKernel(k_10us_, 960, 1, 1, 32, 1, 1, 0, a, nullptr, nullptr));
  const uint64_t start = Now();
  EXPECT_CU(Spin(b, 10'000, 48));
  EXPECT_EQ(10'000u, DoneAt(b, start));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
}

// Wherever kernels run: at every instant the accounts add up to the device's time, and every kernel takes at least as
// long as its partition implies.
TEST_F(GreenContextTest, RandomKernelsAddUp) {
  std::mt19937 random(7);
  const std::vector<CUgreenCtx> greens = Greens(32, 3);
  std::vector<CUstream> streams;
  for (uint32_t i = 0; i < 8; ++i) {
    streams.push_back(i < 6 ? NewStream(greens[i % 3], -static_cast<int>(i % 2))
                            : SimTest::NewStream());
    ASSERT_EQ(0, gpushare_sim_set_account(streams[i], i));
  }
  double work[8] = {};
  const uint64_t start = Now();
  for (int n = 0; n < 400; ++n) {
    const size_t i = random() % 8;
    const uint64_t ns = 1'000 + random() % 20'000;
    const auto sms = static_cast<unsigned>(1 + random() % 150);
    EXPECT_CU(Spin(streams[i], ns, sms));
    work[i] += static_cast<double>(ns);
    if (random() % 4 == 0) gpushare_sim_spend(random() % 10'000);
  }
  EXPECT_CU(cuCtxSynchronize());
  double used = 0, busy = 0, sms = 0;
  uint64_t kernels = 0;
  for (uint32_t i = 0; i < 8; ++i) {
    used += Truth(i).used_ns;
    kernels += Truth(i).kernels;
    EXPECT_NEAR(work[i], Truth(i).work_ns, 1) << i;
  }
  ASSERT_EQ(0, gpushare_sim_device_busy(0, &busy, &sms));
  EXPECT_NEAR(busy, used, 1);
  EXPECT_LE(sms, busy);
  EXPECT_LE(busy, static_cast<double>(Now() - start));
  EXPECT_EQ(400u, kernels);
}

}  // namespace
}  // namespace gpushare::sim_test
