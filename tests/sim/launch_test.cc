// SPDX-License-Identifier: Apache-2.0
// Launches: shapes, parameters, attributes, occupancy.
#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

using LaunchTest = SimTest;

TEST_F(LaunchTest, ShapesOutOfRangeAreRefused) {
  const CUstream a = NewStream();
  const auto launch = [&](unsigned gx, unsigned gy, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared) {
    return cuLaunchKernel(k_10us_, gx, gy, 1, bx, by, bz, shared, a, nullptr, nullptr);
  };
  EXPECT_EQ(launch(0, 1, 32, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 0, 32, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 0, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 70000, 32, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 1025, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 1024, 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 1, 1, 65, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 32, 1, 1, (48 << 10) + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(launch(1, 1, 1024, 1, 1, 48 << 10));
  EXPECT_EQ(Truth(0).queued, 1u);
}

TEST_F(LaunchTest, MoreDynamicSharedMemoryMustBeAskedFor) {
  const CUstream a = NewStream();
  EXPECT_EQ(cuFuncSetAttribute(k_10us_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 228 << 10),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(
      cuFuncSetAttribute(k_10us_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 << 10));
  int value = 0;
  EXPECT_CU(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, k_10us_));
  EXPECT_EQ(value, 227 << 10);
  EXPECT_CU(cuLaunchKernel(k_10us_, 1, 1, 1, 32, 1, 1, 227 << 10, a, nullptr, nullptr));
}

TEST_F(LaunchTest, ParametersMayBePackedInABuffer) {
  const CUstream a = NewStream();
  uint64_t ns = 7'000;
  size_t size = sizeof(ns);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &ns, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  const uint64_t start = Now();
  ASSERT_CU(cuLaunchKernel(spin_, 1, 1, 1, 32, 1, 1, 0, a, nullptr, extra));
  EXPECT_EQ(DoneAt(a, start), 7'000u);
  size = 4;  // too short for the parameter
  EXPECT_EQ(cuLaunchKernel(spin_, 1, 1, 1, 32, 1, 1, 0, a, nullptr, extra),
            CUDA_ERROR_INVALID_VALUE);
  void* parameters[] = {&ns};
  EXPECT_EQ(cuLaunchKernel(spin_, 1, 1, 1, 32, 1, 1, 0, a, parameters, extra),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(spin_, 1, 1, 1, 32, 1, 1, 0, a, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchTest, FootprintFollowsFromThreadsAndSharedMemory) {
  int blocks = 0;
  EXPECT_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, k_default_, 256, 0));
  EXPECT_EQ(blocks, 8);  // 2048 threads
  EXPECT_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, k_default_, 33, 0));
  EXPECT_EQ(blocks, 32);  // 2048 / 64, and the maximum
  EXPECT_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, k_default_, 32, 40 << 10));
  EXPECT_EQ(blocks, 5);  // 228 KiB / 41 KiB
  EXPECT_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, k_10us_, 32, 0));
  EXPECT_EQ(blocks, 1);  // declared
  EXPECT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, k_10us_, 0, 0),
            CUDA_ERROR_INVALID_VALUE);
  // 5 us per wave of 8 blocks on each of 100 SMs.
  const CUstream a = NewStream();
  uint64_t p0 = 0;
  uint32_t p1 = 0;
  char p2[24] = {};
  void* parameters[] = {&p0, &p1, p2};
  const uint64_t start = Now();
  ASSERT_CU(cuLaunchKernel(k_default_, 801, 1, 1, 256, 1, 1, 0, a, parameters, nullptr));
  EXPECT_EQ(DoneAt(a, start), 10'000u);
}

TEST_F(LaunchTest, CooperativeLaunchesMustFit) {
  const CUstream a = NewStream();
  EXPECT_CU(cuLaunchCooperativeKernel(k_10us_, 100, 1, 1, 32, 1, 1, 0, a, nullptr));
  EXPECT_EQ(cuLaunchCooperativeKernel(k_10us_, 101, 1, 1, 32, 1, 1, 0, a, nullptr),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  Restart(std::string(kPlain) + ",overlap=serial");
  EXPECT_EQ(cuLaunchCooperativeKernel(k_10us_, 101, 1, 1, 32, 1, 1, 0, nullptr, nullptr),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

TEST_F(LaunchTest, ExtendedLaunchesTakeAttributes) {
  const CUstream a = NewStream(), b = NewStream();
  CUlaunchAttribute attributes[2] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attributes[0].value.priority = -4;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attributes[1].value.cooperative = 1;
  CUlaunchConfig config{};
  config.gridDimX = 100;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 32;
  config.hStream = b;
  config.attrs = attributes;
  config.numAttrs = 2;
  const uint64_t start = Now();
  ASSERT_CU(Spin(NewStream(), 10'000, 100));
  ASSERT_CU(Spin(a, 10'000, 100));
  ASSERT_CU(cuLaunchKernelEx(&config, k_10us_, nullptr, nullptr));
  EXPECT_EQ(DoneAt(b, start), 20'000u);  // before a's, by its priority
  EXPECT_EQ(DoneAt(a, start), 30'000u);
  config.gridDimX = 101;
  EXPECT_EQ(cuLaunchKernelEx(&config, k_10us_, nullptr, nullptr),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  EXPECT_EQ(cuLaunchKernelEx(&config, k_10us_, nullptr, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuLaunchKernelEx(nullptr, k_10us_, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchTest, AThreadNeedsAContext) {
  CUcontext popped;
  ASSERT_CU(cuCtxPopCurrent(&popped));
  EXPECT_EQ(cuLaunchKernel(k_10us_, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_CU(cuCtxPushCurrent(popped));
  EXPECT_CU(cuLaunchKernel(k_10us_, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr));
}

TEST_F(LaunchTest, CallsAreCountedByTheirExportedName) {
  const uint64_t before = gpushare_sim_calls("cuLaunchKernel");
  ASSERT_CU(Spin(nullptr, 10, 1));
  ASSERT_CU(Spin(nullptr, 10, 1));
  EXPECT_EQ(gpushare_sim_calls("cuLaunchKernel"), before + 2);
  EXPECT_EQ(gpushare_sim_calls("cuNoSuchThing"), UINT64_MAX);
}

}  // namespace
}  // namespace gpushare::sim_test
