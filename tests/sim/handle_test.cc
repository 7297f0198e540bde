// SPDX-License-Identifier: Apache-2.0
// Null, destroyed and invented handles: every call returns an error and none crashes.
#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class HandleTest : public SimTest {
 protected:
  // Invalid handles of any type.
  template <typename Handle>
  std::vector<Handle> Bad(Handle destroyed) {
    static int local = 0;
    std::vector<Handle> bad = {destroyed};
    for (uint64_t value : {uint64_t{0x1000}, uint64_t{8}, UINT64_MAX, uint64_t{1} << 63,
                           reinterpret_cast<uint64_t>(&local), uint64_t{0x1234567812345678}}) {
      bad.push_back(reinterpret_cast<Handle>(value));
    }
    // Handles that differ from a live one by one bit, and live handles of other types.
    for (uint64_t live : {reinterpret_cast<uint64_t>(context_), reinterpret_cast<uint64_t>(module_),
                          reinterpret_cast<uint64_t>(spin_)}) {
      for (uint64_t flip : {uint64_t{1}, uint64_t{1} << 20, uint64_t{1} << 40}) {
        bad.push_back(reinterpret_cast<Handle>(live ^ flip));
      }
    }
    return bad;
  }
};

TEST_F(HandleTest, Streams) {
  CUstream destroyed = NewStream();
  const CUevent event = NewEvent();
  ASSERT_CU(cuStreamDestroy(destroyed));
  CUstreamCaptureStatus status;
  CUgraph graph;
  int priority;
  unsigned flags;
  for (CUstream stream : Bad(destroyed)) {
    EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuEventRecord(event, stream), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuStreamIsCapturing(stream, &status), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
              CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuStreamGetPriority(stream, &priority), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuStreamGetFlags(stream, &flags), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(Spin(stream, 10, 1), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(-1, gpushare_sim_set_account(stream, 1));
  }
  EXPECT_EQ(cuStreamDestroy(nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamCreate(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamCreate(&destroyed, 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamGetPriority(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HandleTest, Events) {
  const CUevent destroyed = NewEvent(), event = NewEvent();
  const CUstream stream = NewStream();
  ASSERT_CU(cuEventDestroy(destroyed));
  float ms;
  auto bad = Bad(destroyed);
  bad.push_back(nullptr);
  for (CUevent one : bad) {
    EXPECT_EQ(cuEventQuery(one), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuEventSynchronize(one), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuEventDestroy(one), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuEventRecord(one, stream), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuStreamWaitEvent(stream, one, 0), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuEventElapsedTime(&ms, one, event), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuEventElapsedTime(&ms, event, one), CUDA_ERROR_INVALID_HANDLE);
  }
  EXPECT_EQ(cuEventCreate(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HandleTest, Contexts) {
  CUcontext destroyed;
  ASSERT_CU(cuCtxCreate_v2(&destroyed, 0, 0));
  ASSERT_CU(cuCtxDestroy(destroyed));
  for (CUcontext one : Bad(destroyed)) {
    EXPECT_EQ(cuCtxSetCurrent(one), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuCtxPushCurrent(one), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuCtxDestroy(one), CUDA_ERROR_INVALID_CONTEXT);
  }
  EXPECT_EQ(cuCtxDestroy(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxPushCurrent(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxDestroy(context_), CUDA_ERROR_INVALID_CONTEXT);  // it is the primary context
  EXPECT_EQ(cuCtxCreate_v2(&destroyed, 0, 9), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuCtxCreate_v2(nullptr, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&destroyed, -1), CUDA_ERROR_INVALID_DEVICE);
  ASSERT_CU(cuCtxSetCurrent(nullptr));
  EXPECT_EQ(cuCtxPopCurrent(&destroyed), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(HandleTest, ModulesAndFunctions) {
  CUmodule destroyed;
  CUfunction function;
  ASSERT_CU(cuModuleLoadData(&destroyed, kPtx));
  ASSERT_CU(cuModuleGetFunction(&function, destroyed, "spin"));
  ASSERT_CU(cuModuleUnload(destroyed));
  auto modules = Bad(destroyed);
  modules.push_back(nullptr);
  for (CUmodule one : modules) {
    if (one == module_) continue;
    EXPECT_EQ(cuModuleUnload(one), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuModuleGetFunction(&function, one, "spin"), CUDA_ERROR_INVALID_HANDLE);
  }
  auto functions = Bad(function);
  functions.push_back(nullptr);
  int value;
  for (CUfunction one : functions) {
    EXPECT_EQ(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, one),
              CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuLaunchKernel(one, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
              CUDA_ERROR_INVALID_HANDLE);
  }
}

TEST_F(HandleTest, AHandleNeverComesBackForAnotherObject) {
  const CUstream first = NewStream();
  ASSERT_CU(cuStreamDestroy(first));
  for (int i = 0; i < 1000; ++i) {
    const CUstream next = NewStream();
    ASSERT_NE(next, first);
    ASSERT_CU(cuStreamDestroy(next));
  }
}

TEST_F(HandleTest, ErrorsHaveNamesAndTexts) {
  const char* text = nullptr;
  EXPECT_CU(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_CU(cuGetErrorString(CUDA_SUCCESS, &text));
  EXPECT_STREQ(text, "no error");
  EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(998), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
  EXPECT_EQ(cuGetErrorName(CUDA_SUCCESS, nullptr), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace gpushare::sim_test
