// SPDX-License-Identifier: Apache-2.0
// The fixture for tests of green contexts: contexts with a given number of SMs, on the device of SimTest (100 SMs).
#ifndef GPUSHARE_TESTS_SIM_GREEN_TEST_H_
#define GPUSHARE_TESTS_SIM_GREEN_TEST_H_

#include <vector>

#include "tests/sim/sim_test.h"

// These are newer than the oldest supported header.
extern "C" CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream*, CUgreenCtx, unsigned, int);
extern "C" CUresult CUDAAPI cuStreamGetCtx_v2(CUstream, CUcontext*, CUgreenCtx*);

namespace gpushare::sim_test {

class GreenTest : public SimTest {
 protected:
  using SimTest::NewStream;

  static CUdevResource DeviceSms() {
    CUdevResource resource{};
    EXPECT_CU(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
    return resource;
  }
  static CUgreenCtx Make(CUdevResource* resources, unsigned count) {
    CUdevResourceDesc descriptor = nullptr;
    CUgreenCtx green = nullptr;
    EXPECT_CU(cuDevResourceGenerateDesc(&descriptor, resources, count));
    EXPECT_CU(cuGreenCtxCreate(&green, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
  }
  using SimTest::Make;
  // `count` contexts with `sms` SMs each, from one split.
  static std::vector<CUgreenCtx> Greens(unsigned sms, unsigned count) {
    const CUdevResource all = DeviceSms();
    std::vector<CUdevResource> groups(count);
    unsigned made = count;
    EXPECT_CU(cuDevSmResourceSplitByCount(groups.data(), &made, &all, nullptr, 0, sms));
    EXPECT_EQ(count, made);
    std::vector<CUgreenCtx> greens;
    for (CUdevResource& group : groups) greens.push_back(Make(&group, 1));
    return greens;
  }
  static CUgreenCtx Green(unsigned sms) { return Greens(sms, 1)[0]; }
  static CUstream NewStream(CUgreenCtx green, int priority = 0) {
    CUstream stream = nullptr;
    EXPECT_CU(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, priority));
    return stream;
  }
};

}  // namespace gpushare::sim_test

#endif  // GPUSHARE_TESTS_SIM_GREEN_TEST_H_
