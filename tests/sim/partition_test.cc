// SPDX-License-Identifier: Apache-2.0
// SMs as a resource: splitting them, descriptors, and the answers of queries.
#include <string>

#include "tests/sim/green_test.h"

namespace gpushare::sim_test {
namespace {

using PartitionTest = GreenTest;

struct Result {
  CUresult code;
  unsigned groups, size, rest;
};

Result SplitUp(const CUdevResource& from, unsigned least, unsigned flags = 0,
               unsigned wanted = 64) {
  CUdevResource groups[64], rest{};
  unsigned made = wanted;
  const CUresult code = cuDevSmResourceSplitByCount(groups, &made, &from, &rest, flags, least);
  if (code != CUDA_SUCCESS) return {code, 0, 0, 0};
  return {code, made, groups[0].sm.smCount,
          rest.type == CU_DEV_RESOURCE_TYPE_SM ? rest.sm.smCount : 0};
}

void ExpectSplit(const Result& got, unsigned groups, unsigned size, unsigned rest) {
  EXPECT_CU(got.code);
  EXPECT_EQ(groups, got.groups);
  EXPECT_EQ(size, got.size);
  EXPECT_EQ(rest, got.rest);
}

TEST_F(PartitionTest, OnHopperInEights) {
  const CUdevResource all = DeviceSms();
  EXPECT_EQ(100u, all.sm.smCount);
  ExpectSplit(SplitUp(all, 0), 12, 8, 4);
  ExpectSplit(SplitUp(all, 8), 12, 8, 4);
  ExpectSplit(SplitUp(all, 9), 6, 16, 4);
  ExpectSplit(SplitUp(all, 20), 4, 24, 4);
  ExpectSplit(SplitUp(all, 96, 0, 1), 1, 96, 4);
  ExpectSplit(SplitUp(all, 8, 0, 2), 2, 8, 84);
  ExpectSplit(SplitUp(all, 3, 1), 25, 4, 0);   // the co-scheduling size is ignored: groups of two
  ExpectSplit(SplitUp(all, 20, 2), 3, 32, 4);  // clusters of 16
  EXPECT_EQ(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, SplitUp(all, 97).code);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, SplitUp(all, 101).code);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, SplitUp(all, 8, 4).code);
  unsigned groups = 0;
  EXPECT_CU(cuDevSmResourceSplitByCount(nullptr, &groups, &all, nullptr, 0, 20));
  EXPECT_EQ(4u, groups);
}

TEST_F(PartitionTest, ByComputeCapability) {
  Restart(std::string(kPlain) + ",compute_capability=8.6");
  ExpectSplit(SplitUp(DeviceSms(), 1), 25, 4, 0);
  ExpectSplit(SplitUp(DeviceSms(), 19), 5, 20, 0);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, SplitUp(DeviceSms(), 8, 2).code) << "clusters are newer";
  Restart(std::string(kPlain) + ",compute_capability=7.0");
  ExpectSplit(SplitUp(DeviceSms(), 1), 50, 2, 0);
}

TEST_F(PartitionTest, APartIsSplitAgainOnlyAsAContext) {
  CUdevResource group{}, of_green{};
  const CUdevResource all = DeviceSms();
  unsigned made = 1;
  ASSERT_CU(cuDevSmResourceSplitByCount(&group, &made, &all, nullptr, 0, 48));
  EXPECT_EQ(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, SplitUp(group, 8).code);
  const CUgreenCtx green = Make(&group, 1);
  ASSERT_CU(cuGreenCtxGetDevResource(green, &of_green, CU_DEV_RESOURCE_TYPE_SM));
  ExpectSplit(SplitUp(of_green, 20), 2, 24, 0);
  ASSERT_CU(cuGreenCtxDestroy(green));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, SplitUp(of_green, 20).code);
}

TEST_F(PartitionTest, ADescriptorTakesPartsOfOneSplit) {
  CUdevResource first[3], second[3], rest{};
  CUdevResource all = DeviceSms();
  unsigned made = 3;
  ASSERT_CU(cuDevSmResourceSplitByCount(first, &made, &all, &rest, 0, 8));
  ASSERT_CU(cuDevSmResourceSplitByCount(second, &made, &all, nullptr, 0, 16));
  CUdevResource joined[] = {first[0], first[2], rest};
  const CUgreenCtx green = Make(joined, 3);
  CUdevResource of_green{};
  ASSERT_CU(cuGreenCtxGetDevResource(green, &of_green, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(92u, of_green.sm.smCount);
  CUdevResourceDesc descriptor = nullptr;
  CUdevResource mixed[] = {first[0], second[1]}, twice[] = {first[0], first[0]},
                whole[] = {all, first[0]}, made_up[1] = {};
  for (CUdevResource* bad : {mixed, twice, whole}) {
    EXPECT_EQ(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
              cuDevResourceGenerateDesc(&descriptor, bad, 2));
  }
  EXPECT_EQ(CUDA_ERROR_INVALID_RESOURCE_TYPE, cuDevResourceGenerateDesc(&descriptor, made_up, 1));
  made_up[0].type = CU_DEV_RESOURCE_TYPE_SM;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuDevResourceGenerateDesc(&descriptor, made_up, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuDevResourceGenerateDesc(&descriptor, first, 0));
}

TEST_F(PartitionTest, WhatIsWrongIsRefused) {
  CUdevResource resource{};
  EXPECT_EQ(CUDA_ERROR_INVALID_RESOURCE_TYPE,
            cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_INVALID));
  EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE,
            cuDeviceGetDevResource(7, &resource, CU_DEV_RESOURCE_TYPE_SM));
  CUdevResource all = DeviceSms();
  CUdevResourceDesc descriptor = nullptr;
  CUgreenCtx green = nullptr;
  ASSERT_CU(cuDevResourceGenerateDesc(&descriptor, &all, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&green, descriptor, 0, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuGreenCtxCreate(&green, nullptr, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE,
            cuGreenCtxCreate(&green, descriptor, 7, CU_GREEN_CTX_DEFAULT_STREAM));
  ASSERT_CU(cuGreenCtxCreate(&green, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  CUstream stream = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGreenCtxStreamCreate(&stream, green, 0, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT,
            cuGreenCtxStreamCreate(&stream, nullptr, CU_STREAM_NON_BLOCKING, 0));
}

// A green context retains the primary context, which ends with the last green one.
TEST_F(PartitionTest, ItRetainsThePrimaryContext) {
  const CUgreenCtx green = Green(8);
  ASSERT_CU(cuDevicePrimaryCtxRelease(0));
  unsigned flags = 0;
  int active = 0;
  EXPECT_CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(1, active);
  const CUstream stream = NewStream(green);
  EXPECT_CU(Spin(stream, 1'000, 8));
  EXPECT_CU(cuStreamSynchronize(stream));
  EXPECT_CU(cuGreenCtxDestroy(green));
  EXPECT_CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(0, active);
}

}  // namespace
}  // namespace gpushare::sim_test
