// SPDX-License-Identifier: Apache-2.0
// Faults that tests can inject.
#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class FaultTest : public SimTest {
 protected:
  void Inject(const char* text) {
    char error[128] = "";
    EXPECT_EQ(0, gpushare_sim_inject(text, error, sizeof(error))) << error;
  }
  std::string Refused(const char* text) {
    char error[128] = "";
    EXPECT_EQ(-1, gpushare_sim_inject(text, error, sizeof(error)));
    return error;
  }
};

TEST_F(FaultTest, OutOfMemoryAfterSoMany) {
  Inject("oom after=2");
  CUdeviceptr pointer;
  EXPECT_CU(cuMemAlloc(&pointer, 10));
  EXPECT_CU(cuMemAlloc(&pointer, 10));
  EXPECT_EQ(cuMemAlloc(&pointer, 10), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc(&pointer, 10), CUDA_ERROR_OUT_OF_MEMORY);
  Inject("clear");
  EXPECT_CU(cuMemAlloc(&pointer, 10));
}

TEST_F(FaultTest, AnErrorInTheNthCall) {
  CUdeviceptr pointer;
  ASSERT_CU(cuMemAlloc(&pointer, 16));
  Inject("error call=cuMemsetD8_v2 code=719 nth=2");
  EXPECT_CU(cuMemsetD8(pointer, 0, 16));
  EXPECT_EQ(cuMemsetD8(pointer, 0, 16), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_CU(cuMemsetD8(pointer, 0, 16));
  Inject("error call=cuStreamCreate code=2");
  CUstream stream;
  EXPECT_EQ(cuStreamCreate(&stream, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuStreamCreate(&stream, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(FaultTest, ASlowCallCostsItsCaller) {
  Inject("slow call=cuLaunchKernel host=1ms");
  const uint64_t start = Now();
  EXPECT_CU(Spin(NewStream(), 10, 1));
  EXPECT_EQ(Now() - start, 1'000'000u);
}

TEST_F(FaultTest, AnIllegalAddressTakesTheContextDown) {
  Inject("illegal_address kernel=k_10us");
  const CUstream a = NewStream(), b = NewStream();
  const CUevent event = NewEvent();
  ASSERT_CU(Spin(b, 1'000'000, 10));
  ASSERT_CU(cuLaunchKernel(k_10us_, 1, 1, 1, 32, 1, 1, 0, a, nullptr, nullptr));
  ASSERT_CU(cuEventRecord(event, a));
  CUdeviceptr pointer;
  EXPECT_CU(cuMemAlloc(&pointer, 10));  // the fault has not happened yet
  EXPECT_EQ(cuEventSynchronize(event), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuStreamSynchronize(b), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(Spin(b, 10, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuMemAlloc(&pointer, 10), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(Truth(0).queued, 0u);
  // Another context survives; the primary one can be reset.
  Inject("clear");
  CUcontext other;
  ASSERT_CU(cuCtxCreate_v2(&other, 0, device_));
  EXPECT_CU(cuMemAlloc(&pointer, 10));
  ASSERT_CU(cuDevicePrimaryCtxReset(device_));
  CUcontext again;
  ASSERT_CU(cuDevicePrimaryCtxRetain(&again, device_));
  ASSERT_CU(cuCtxSetCurrent(again));
  EXPECT_CU(cuMemAlloc(&pointer, 10));
}

TEST_F(FaultTest, AKernelThatNeverEndsKeepsItsSms) {
  Inject("hang kernel=k_10us");
  const CUstream a = NewStream(), b = NewStream();
  ASSERT_CU(cuLaunchKernel(k_10us_, 60, 1, 1, 32, 1, 1, 0, a, nullptr, nullptr));
  const uint64_t start = Now();
  ASSERT_CU(Spin(b, 10'000, 80));  // on the 40 free SMs
  EXPECT_EQ(DoneAt(b, start), 20'000u);
  gpushare_sim_spend(1'000'000'000);
  EXPECT_EQ(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
  // The kernel ends with its context.
  ASSERT_CU(cuDevicePrimaryCtxReset(device_));
  double busy_before = 0, busy_after = 0;
  gpushare_sim_device_busy(0, &busy_before, nullptr);
  gpushare_sim_spend(1'000'000);
  gpushare_sim_device_busy(0, &busy_after, nullptr);
  EXPECT_EQ(busy_before, busy_after);
}

TEST_F(FaultTest, NonsenseIsRefusedWithAReason) {
  EXPECT_NE(Refused("explode").find("explode"), std::string::npos);
  EXPECT_NE(Refused("error call=cuNothing code=1").find("cuNothing"), std::string::npos);
  EXPECT_NE(Refused("error call=cuInit").find("code"), std::string::npos);
  EXPECT_NE(Refused("hang").find("kernel"), std::string::npos);
  EXPECT_NE(Refused("oom after=x").find("after"), std::string::npos);
  EXPECT_NE(Refused("slow call=cuInit").find("host"), std::string::npos);
  EXPECT_NE(Refused("oom now=1").find("now"), std::string::npos);
  EXPECT_EQ(-1, gpushare_sim_inject(nullptr, nullptr, 0));
}

TEST_F(FaultTest, AKernelThatHangsEndsWhenFaultsAreCleared) {
  Inject("hang kernel=k_10us");
  const CUstream a = NewStream(), b = NewStream();
  ASSERT_CU(cuLaunchKernel(k_10us_, 1, 1, 1, 32, 1, 1, 0, a, nullptr, nullptr));
  ASSERT_CU(cuLaunchKernel(k_10us_, 1, 1, 1, 32, 1, 1, 0, a, nullptr,
                           nullptr));  // behind the hanging kernel
  ASSERT_CU(Spin(b, 1'000'000, 1));
  ASSERT_CU(cuStreamSynchronize(b));
  EXPECT_EQ(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
  Inject("oom after=100");  // another fault does not end it
  EXPECT_EQ(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
  const uint64_t start = Now();
  Inject("clear");
  ASSERT_CU(cuStreamSynchronize(a));
  EXPECT_GE(Now() - start, 20'000u);
  EXPECT_LE(Now() - start, 60'000u);
  // Clearing the earlier fault does not release a kernel that hangs later.
  Inject("hang kernel=k_10us");
  ASSERT_CU(cuLaunchKernel(k_10us_, 1, 1, 1, 32, 1, 1, 0, a, nullptr, nullptr));
  ASSERT_CU(Spin(b, 1'000'000, 1));
  ASSERT_CU(cuStreamSynchronize(b));
  EXPECT_EQ(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
}

}  // namespace
}  // namespace gpushare::sim_test
