// SPDX-License-Identifier: Apache-2.0
// Finding entry points: by dlsym, and through cuGetProcAddress by version and flags.
#include <dlfcn.h>

#include <regex>
#include <string>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

// The single list of entry points, with their names as exported: cuda.h's macros do not expand inside `#name`.
struct Entry {
  const char* symbol;
  int since;
  bool simulated;
};
constexpr Entry kEntries[] = {
#define X(name, version, klass, hooked, simulated) {#name, version, simulated != 0},
#include "src/driver/symbols.def"
#undef X
};

class ProcAddressTest : public SimTest {
 protected:
  static void* Symbol(const char* name) { return dlsym(RTLD_DEFAULT, name); }
  static void* Ask(const char* name, int version, cuuint64_t flags = 0) {
    void* address = reinterpret_cast<void*>(1);
    status_ = static_cast<CUdriverProcAddressQueryResult>(3);
    result_ = cuGetProcAddress_v2(name, &address, version, flags, &status_);
    return address;
  }
  static inline CUdriverProcAddressQueryResult status_;
  static inline CUresult result_;
};

TEST_F(ProcAddressTest, EveryEntryPointIsExportedAndFound) {
  const std::regex form("(cu.*?)(_v[0-9])?(_pt[ds][sz])?");
  for (const Entry& entry : kEntries) {
    void* const symbol = Symbol(entry.symbol);
    ASSERT_NE(symbol, nullptr) << entry.symbol;
    std::cmatch parts;
    ASSERT_TRUE(std::regex_match(entry.symbol, parts, form)) << entry.symbol;
    const cuuint64_t flags = parts[3].matched ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
    EXPECT_EQ(Ask(parts[1].str().c_str(), entry.since, flags), symbol) << entry.symbol;
    EXPECT_EQ(status_, CU_GET_PROC_ADDRESS_SUCCESS) << entry.symbol;
    EXPECT_EQ(result_, CUDA_SUCCESS);
  }
}

TEST_F(ProcAddressTest, WhatIsNotMarkedAsSimulatedIsNotSupported) {
  int stubs = 0;
  for (const Entry& entry : kEntries) {
    if (entry.simulated) continue;
    // Called without arguments: a stub reads none.
    const auto call = reinterpret_cast<CUresult (*)()>(Symbol(entry.symbol));
    ASSERT_NE(call, nullptr) << entry.symbol;
    const uint64_t before = gpushare_sim_calls(entry.symbol);
    EXPECT_EQ(call(), CUDA_ERROR_NOT_SUPPORTED) << entry.symbol;
    EXPECT_EQ(gpushare_sim_calls(entry.symbol), before + 1) << entry.symbol;
    ++stubs;
  }
  EXPECT_GT(stubs, 0);
}

TEST_F(ProcAddressTest, TheVersionSelectsTheAbi) {
  EXPECT_EQ(Ask("cuMemAlloc", 13000), Symbol("cuMemAlloc_v2"));
  EXPECT_EQ(Ask("cuMemAlloc", 2000), Symbol("cuMemAlloc"));
  EXPECT_EQ(Ask("cuCtxCreate", 13000), Symbol("cuCtxCreate_v4"));
  EXPECT_EQ(Ask("cuCtxCreate", 12040), Symbol("cuCtxCreate_v3"));
  EXPECT_EQ(Ask("cuCtxCreate", 11030), Symbol("cuCtxCreate_v2"));
  EXPECT_EQ(Ask("cuStreamGetCaptureInfo", 12030), Symbol("cuStreamGetCaptureInfo_v3"));
  EXPECT_EQ(Ask("cuStreamGetCaptureInfo", 12020), Symbol("cuStreamGetCaptureInfo_v2"));
  EXPECT_EQ(Ask("cuEventElapsedTime", 13000), Symbol("cuEventElapsedTime_v2"));
  EXPECT_EQ(Ask("cuEventElapsedTime", 12000), Symbol("cuEventElapsedTime"));
  EXPECT_EQ(Ask("cuGetProcAddress", 12000), Symbol("cuGetProcAddress_v2"));
  EXPECT_EQ(Ask("cuGetProcAddress", 11030), Symbol("cuGetProcAddress"));
}

TEST_F(ProcAddressTest, TheFlagSelectsThePerThreadVariant) {
  constexpr cuuint64_t kPerThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  EXPECT_EQ(Ask("cuLaunchKernel", 13000, kPerThread), Symbol("cuLaunchKernel_ptsz"));
  EXPECT_EQ(Ask("cuLaunchKernel", 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM),
            Symbol("cuLaunchKernel"));
  EXPECT_EQ(Ask("cuMemcpyHtoD", 13000, kPerThread), Symbol("cuMemcpyHtoD_v2_ptds"));
  EXPECT_EQ(Ask("cuMemAlloc", 13000, kPerThread), Symbol("cuMemAlloc_v2"));  // has none
  Ask("cuLaunchKernel", 13000, 4);
  EXPECT_EQ(result_, CUDA_ERROR_INVALID_VALUE);
  Ask("cuLaunchKernel", 13000, 3);
  EXPECT_EQ(result_, CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ProcAddressTest, TheStatusIsAlwaysSet) {
  EXPECT_EQ(Ask("cuNoSuchThing", 13000), nullptr);
  EXPECT_EQ(status_, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(result_, CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(Ask("cuMemAlloc_v2", 13000), nullptr);  // names have no suffix
  EXPECT_EQ(status_, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(Ask("cuLaunchKernelEx", 11000), nullptr);
  EXPECT_EQ(status_, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(Ask("", 13000), nullptr);
  EXPECT_EQ(status_, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  Ask(nullptr, 13000);
  EXPECT_EQ(result_, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGetProcAddress_v2("cuInit", nullptr, 13000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ProcAddressTest, WhatIsFoundCanBeCalled) {
  CUdeviceptr pointer = 0;
  const auto allocate =
      reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t)>(Ask("cuMemAlloc", 13000));
  EXPECT_CU(allocate(&pointer, 100));
  const auto id = reinterpret_cast<CUresult (*)(CUstream, unsigned long long*)>(
      Ask("cuStreamGetId", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
  unsigned long long found = 0, own = 0, legacy = 0;
  EXPECT_CU(id(nullptr, &found));
  EXPECT_CU(cuStreamGetId(CU_STREAM_PER_THREAD, &own));
  EXPECT_CU(cuStreamGetId(nullptr, &legacy));
  EXPECT_EQ(found, own);
  EXPECT_NE(found, legacy);
}

TEST_F(ProcAddressTest, WhatIsNotModelledSaysSoAndIsCounted) {
  const auto share = reinterpret_cast<CUresult (*)(void*, void*)>(Symbol("cuMemPoolExportPointer"));
  ASSERT_NE(share, nullptr);
  const uint64_t before = gpushare_sim_calls("cuMemPoolExportPointer");
  EXPECT_EQ(share(nullptr, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(gpushare_sim_calls("cuMemPoolExportPointer"), before + 1);
}

TEST_F(ProcAddressTest, ThePrivateTablesAreNeverAnswered) {
  const auto get =
      reinterpret_cast<CUresult (*)(const void**, const CUuuid*)>(Symbol("cuGetExportTable"));
  for (int i = 0; i < 256; ++i) {
    CUuuid id{};
    for (char& byte : id.bytes) byte = static_cast<char>(i * 37 + (&byte - id.bytes) * i);
    const void* table = &id;
    EXPECT_NE(get(&table, &id), CUDA_SUCCESS);
    EXPECT_EQ(table, nullptr);
  }
}

TEST_F(ProcAddressTest, NothingElseIsExported) {
  // Private names could collide with those of a program that links another copy.
  EXPECT_EQ(Symbol("gpushare_sim_no_such"), nullptr);
  EXPECT_NE(Symbol("gpushare_sim_abi_version"), nullptr);
  EXPECT_EQ(Symbol("_ZN8gpushare3sim7g_stateE"), nullptr);
  EXPECT_EQ(Symbol("_ZN8gpushare3sim8t_threadE"), nullptr);
}

}  // namespace
}  // namespace gpushare::sim_test
