// SPDX-License-Identifier: Apache-2.0
// The first launch of a function, when modules are loaded lazily.
#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class FirstLaunchTest : public SimTest {
 protected:
  void SetUp() override {
    Start(std::string(kPlain) + ",first_launch_host=2ms,first_launch_device=300us");
  }
};

TEST_F(FirstLaunchTest, CostsItsCallerMoreAndTakesLonger) {
  const CUstream stream = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(Spin(stream, 10'000, 1));
  EXPECT_EQ(Now() - start, 2'000'000u);
  EXPECT_EQ(DoneAt(stream, start), 2'310'000u);
  EXPECT_DOUBLE_EQ(Truth(0).used_ns, 310'000);
}

TEST_F(FirstLaunchTest, IsOncePerFunctionAndModule) {
  const CUstream stream = NewStream();
  ASSERT_CU(Spin(stream, 10'000, 1));
  ASSERT_CU(cuStreamSynchronize(stream));
  uint64_t start = Now();
  ASSERT_CU(Spin(stream, 10'000, 1));
  EXPECT_EQ(DoneAt(stream, start), 10'000u);
  start = Now();
  ASSERT_CU(cuLaunchKernel(k_10us_, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr));
  EXPECT_EQ(DoneAt(stream, start), 2'310'000u);
  CUmodule again = nullptr;
  CUfunction spin = nullptr;
  ASSERT_CU(cuModuleLoadData(&again, kPtx));
  ASSERT_CU(cuModuleGetFunction(&spin, again, "spin"));
  start = Now();
  uint64_t ns = 10'000;
  void* parameters[] = {&ns};
  ASSERT_CU(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
  EXPECT_EQ(DoneAt(stream, start), 2'310'000u);
}

TEST_F(FirstLaunchTest, TheModuleMayGoMeanwhile) {
  SimThread unload("unload", [&] {
    gpushare_sim_spend(1'000'000);
    EXPECT_CU(cuCtxSetCurrent(context_));
    EXPECT_CU(cuModuleUnload(module_));
  });
  const CUstream stream = NewStream();
  EXPECT_EQ(Spin(stream, 10'000, 1), CUDA_ERROR_INVALID_HANDLE);
  unload.Join();
}

}  // namespace
}  // namespace gpushare::sim_test
