// SPDX-License-Identifier: Apache-2.0
// Libraries: modules of every context, and kernels that are launched by their own handles.
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class LibraryTest : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    ASSERT_CU(LoadLibrary(kPtx, &library_));
    ASSERT_CU(cuLibraryGetKernel(&kernel_, library_, "k_10us"));
  }
  static CUresult LoadLibrary(const void* code, CUlibrary* library) {
    return cuLibraryLoadData(library, code, nullptr, nullptr, 0, nullptr, nullptr, 0);
  }
  CUfunction AsFunction() const { return reinterpret_cast<CUfunction>(kernel_); }
  static CUresult Launch(CUfunction function, CUstream stream) {
    return cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr);
  }
  CUcontext NewContext() const {
    CUcontext context = nullptr;
    EXPECT_CU(cuCtxCreate_v2(&context, 0, device_));
    return context;
  }

  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
};

TEST_F(LibraryTest, SaysWhatItHolds) {
  unsigned count = 0;
  ASSERT_CU(cuLibraryGetKernelCount(&count, library_));
  ASSERT_EQ(count, 4u);
  std::array<CUkernel, 5> kernels{};
  ASSERT_CU(cuLibraryEnumerateKernels(kernels.data(), 2, library_));
  EXPECT_EQ(kernels[2], nullptr);
  ASSERT_CU(cuLibraryEnumerateKernels(kernels.data(), 5, library_));
  EXPECT_EQ(kernels[1], kernel_);
  EXPECT_EQ(kernels[4], nullptr);
  const char* name = nullptr;
  EXPECT_CU(cuKernelGetName(&name, kernels[3]));
  EXPECT_STREQ(name, "k_default");
  size_t offset = 0, size = 0;
  EXPECT_CU(cuKernelGetParamInfo(kernels[3], 2, &offset, &size));
  EXPECT_EQ(offset, 16u);
  EXPECT_EQ(size, 24u);
  EXPECT_EQ(cuKernelGetParamInfo(kernels[3], 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
  CUlibrary library = nullptr;
  EXPECT_CU(cuKernelGetLibrary(&library, kernel_));
  EXPECT_EQ(library, library_);
  EXPECT_EQ(cuLibraryGetKernel(&kernel_, library_, "none"), CUDA_ERROR_NOT_FOUND);
}

TEST_F(LibraryTest, AKernelIsLaunchedByItsHandleAndByItsFunction) {
  const CUstream s = NewStream();
  uint64_t start = Now();
  ASSERT_CU(Launch(AsFunction(), s));
  EXPECT_EQ(DoneAt(s, start), 10'000u);
  CUfunction function = nullptr;
  ASSERT_CU(cuKernelGetFunction(&function, kernel_));
  start = Now();
  ASSERT_CU(Launch(function, s));
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = s;
  ASSERT_CU(cuLaunchKernelEx(&config, AsFunction(), nullptr, nullptr));
  ASSERT_CU(cuLaunchCooperativeKernel(AsFunction(), 1, 1, 1, 1, 1, 1, 0, s, nullptr));
  EXPECT_EQ(DoneAt(s, start), 30'000u);
  int blocks = 0;
  EXPECT_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, AsFunction(), 32, 0));
  EXPECT_EQ(blocks, 1);
}

TEST_F(LibraryTest, AGraphTakesItsKernels) {
  CUDA_KERNEL_NODE_PARAMS parameters = SpinParams(nullptr);
  parameters.func = nullptr;
  parameters.kern = kernel_;
  CUgraphNode node = nullptr;
  const CUgraph graph = NewGraph();
  ASSERT_CU(cuGraphAddKernelNode(&node, graph, nullptr, 0, &parameters));
  const CUgraphExec exec = Make(graph);
  const CUstream s = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(cuGraphLaunch(exec, s));
  EXPECT_EQ(DoneAt(s, start), 10'000u);
}

TEST_F(LibraryTest, EachContextHasItsOwnModuleFromItsFirstUseOn) {
  const uint64_t before = gpushare_sim_memory_used(0);  // an unused library
  CUdeviceptr here = 0, there = 0;
  size_t bytes = 0;
  ASSERT_CU(cuLibraryGetGlobal(&here, &bytes, library_, "table"));
  EXPECT_EQ(bytes, 1024u);
  EXPECT_EQ(gpushare_sim_memory_used(0) - before, 1024u);
  CUmodule module = nullptr, other = nullptr;
  ASSERT_CU(cuLibraryGetModule(&module, library_));
  CUfunction function = nullptr, same = nullptr;
  ASSERT_CU(cuModuleGetFunction(&function, module, "k_10us"));
  ASSERT_CU(cuKernelGetFunction(&same, kernel_));
  EXPECT_EQ(function, same);

  const CUcontext context = NewContext();
  ASSERT_CU(Launch(AsFunction(), nullptr));  // in the current context
  ASSERT_CU(cuLibraryGetModule(&other, library_));
  EXPECT_NE(module, other);
  ASSERT_CU(cuLibraryGetGlobal(&there, &bytes, library_, "table"));
  EXPECT_NE(here, there);
  EXPECT_EQ(Launch(function, nullptr),
            CUDA_ERROR_INVALID_HANDLE);  // the stream belongs to the other context

  // It ends with its context, while the library stays.
  ASSERT_CU(cuCtxDestroy(context));
  EXPECT_EQ(gpushare_sim_memory_used(0) - before, 1024u);
  ASSERT_CU(cuCtxSetCurrent(context_));
  EXPECT_CU(Launch(AsFunction(), nullptr));
  ASSERT_CU(cuLibraryUnload(library_));
  EXPECT_EQ(gpushare_sim_memory_used(0), before);
}

TEST_F(LibraryTest, NothingOfItIsLeftAfterItsEnd) {
  CUfunction function = nullptr;
  CUmodule module = nullptr;
  ASSERT_CU(cuKernelGetFunction(&function, kernel_));
  ASSERT_CU(cuLibraryGetModule(&module, library_));
  EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_NOT_PERMITTED);
  ASSERT_CU(cuLibraryUnload(library_));
  EXPECT_EQ(cuLibraryUnload(library_), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Launch(AsFunction(), nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Launch(function, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  unsigned count = 0;
  CUkernel kernel = nullptr;
  CUdeviceptr address = 0;
  int value = 0;
  const char* name = nullptr;
  EXPECT_EQ(cuLibraryGetKernelCount(&count, library_), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLibraryGetKernel(&kernel, library_, "k_10us"), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLibraryEnumerateKernels(&kernel, 1, library_), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLibraryGetModule(&module, library_), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLibraryGetGlobal(&address, nullptr, library_, "table"), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuKernelGetFunction(&function, kernel_), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuKernelGetName(&name, kernel_), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel_, device_),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuKernelSetCacheConfig(kernel_, CU_FUNC_CACHE_PREFER_L1, device_),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, AsFunction(), 32, 0),
            CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(LibraryTest, AttributesAreOfADeviceWhateverItsContexts) {
  constexpr auto kShared = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  CUfunction function = nullptr;
  ASSERT_CU(cuKernelGetFunction(&function, kernel_));
  int value = 0;
  EXPECT_CU(cuKernelGetAttribute(&value, kShared, kernel_, device_));
  EXPECT_EQ(value, 48 << 10);
  ASSERT_CU(cuKernelSetAttribute(kShared, 100 << 10, kernel_, device_));
  EXPECT_CU(cuKernelGetAttribute(&value, kShared, kernel_, device_));
  EXPECT_EQ(value, 100 << 10);
  EXPECT_CU(cuFuncGetAttribute(&value, kShared, function));
  EXPECT_EQ(value, 100 << 10);
  const CUcontext context = NewContext();
  ASSERT_CU(cuKernelGetFunction(&function, kernel_));
  EXPECT_CU(cuFuncGetAttribute(&value, kShared, function));
  EXPECT_EQ(value, 100 << 10);
  EXPECT_CU(cuCtxDestroy(context));
  EXPECT_EQ(cuKernelSetAttribute(kShared, -1, kernel_, device_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_NUM_REGS, 1, kernel_, device_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuKernelGetAttribute(&value, kShared, kernel_, 7), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuKernelSetAttribute(kShared, 1, kernel_, 7), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX, kernel_, device_),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LibraryTest, WithoutAContextItIsLoadedAndNotUsed) {
  ASSERT_CU(cuCtxSetCurrent(nullptr));
  CUlibrary library = nullptr;
  ASSERT_CU(LoadLibrary(kPtx, &library));
  CUkernel kernel = nullptr;
  ASSERT_CU(cuLibraryGetKernel(&kernel, library, "k_10us"));
  CUfunction function = nullptr;
  EXPECT_EQ(cuKernelGetFunction(&function, kernel), CUDA_ERROR_INVALID_CONTEXT);
  CUmodule module = nullptr;
  EXPECT_EQ(cuLibraryGetModule(&module, library), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_CU(cuLibraryUnload(library));
}

TEST_F(LibraryTest, NoRoomForItsVariablesIsSaidWhereItIsUsed) {
  const uint64_t before = gpushare_sim_memory_used(0);
  CUlibrary library = nullptr;
  ASSERT_CU(
      LoadLibrary(".version 7.5\n.target sm_90\n.global .b8 x[1073741824];\n"
                  ".visible .entry k() { ret; }",
                  &library));
  CUdeviceptr address = 0;
  EXPECT_EQ(cuLibraryGetGlobal(&address, nullptr, library, "x"), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(gpushare_sim_memory_used(0), before);
}

TEST_F(LibraryTest, WhatIsNoneIsRefusedWithItsLog) {
  CUlibrary library = reinterpret_cast<CUlibrary>(7);
  EXPECT_EQ(LoadLibrary("hello", &library), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(LoadLibrary("", &library), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(LoadLibrary(nullptr, &library), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(LoadLibrary(kPtx, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(library, reinterpret_cast<CUlibrary>(7));
  char log[256] = "x";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  EXPECT_EQ(cuLibraryLoadData(&library, ".version 7.5\n.target gfx90a\n", options, values, 2,
                              nullptr, nullptr, 0),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(std::string(log).find("line 2"), std::string::npos) << log;
  EXPECT_EQ(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 1, nullptr, nullptr, 0),
            CUDA_ERROR_INVALID_VALUE);
  CUlibraryOption preserved = CU_LIBRARY_BINARY_IS_PRESERVED;
  void* yes = reinterpret_cast<void*>(1);
  ASSERT_CU(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, &preserved, &yes, 1));
  EXPECT_CU(cuLibraryUnload(library));
  CUlibraryOption table = CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE;
  EXPECT_EQ(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, &table, &yes, 1),
            CUDA_ERROR_NOT_SUPPORTED);
  CUlibraryOption unknown = CU_LIBRARY_NUM_OPTIONS;
  EXPECT_EQ(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, &unknown, &yes, 1),
            CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuLibraryGetGlobal(&address, nullptr, library_, "none"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuLibraryGetManaged(&address, nullptr, library_, "table"), CUDA_ERROR_NOT_FOUND);
  void* pointer = nullptr;
  EXPECT_EQ(cuLibraryGetUnifiedFunction(&pointer, library_, "k_10us"), CUDA_ERROR_NOT_FOUND);
}

TEST_F(LibraryTest, MayComeFromAFile) {
  const std::string path =
      testing::TempDir() + "gpushare_sim_library." + std::to_string(getpid()) + ".ptx";
  std::ofstream(path) << kPtx;
  CUlibrary library = nullptr;
  const auto load = [&](const char* name) {
    return cuLibraryLoadFromFile(&library, name, nullptr, nullptr, 0, nullptr, nullptr, 0);
  };
  ASSERT_CU(load(path.c_str()));
  EXPECT_CU(cuLibraryUnload(library));
  EXPECT_EQ(load("/no/such/file"), CUDA_ERROR_FILE_NOT_FOUND);
  CUlibraryOption preserved = CU_LIBRARY_BINARY_IS_PRESERVED;
  void* yes = reinterpret_cast<void*>(1);
  EXPECT_EQ(cuLibraryLoadFromFile(&library, path.c_str(), nullptr, nullptr, 0, &preserved, &yes, 1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(load(nullptr), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace gpushare::sim_test
