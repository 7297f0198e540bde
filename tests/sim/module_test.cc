// SPDX-License-Identifier: Apache-2.0
// Modules: which parts of PTX are read, and what is rejected.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class ModuleTest : public SimTest {
 protected:
  CUresult Load(const std::string& text) {
    CUmodule module = reinterpret_cast<CUmodule>(7);
    const CUresult result = cuModuleLoadData(&module, text.c_str());
    if (result == CUDA_SUCCESS) {
      EXPECT_CU(cuModuleUnload(module));
    } else {
      EXPECT_EQ(module, reinterpret_cast<CUmodule>(7));
    }
    return result;
  }
  static std::string WithHead(const std::string& rest) {
    return ".version 7.5\n.target sm_90\n.address_size 64\n" + rest;
  }
};

TEST_F(ModuleTest, BrokenPtxIsRefused) {
  EXPECT_CU(Load(WithHead(".visible .entry k() { ret; }")));
  for (const char* text : {
           ".visible .entry k() { ret;",                       // no end
           ".visible .entry () { ret; }",                      // no name
           ".visible .entry k(.param .u64) { ret; }",          // no parameter name
           ".visible .entry k(.param .u63 a) { ret; }",        // no such type
           ".visible .entry k(.param .u64 a { ret; }",         // list does not end
           ".visible .entry k(int a) { ret; }",                //
           ".visible .entry k() } ",                           //
           ".func (.reg .b32 r) f(.reg .b32 a { ret; }",       //
           "}",                                                //
           ".visible .entry k() { } .visible .entry k() { }",  // twice
           ".global .b8 x[99999999999999];",                   //
           ".global .b8 x[3",                                  //
           "/* no end",                                        //
           ".file 1 \"no end",                                 //
           ".visible .entry k(.param .align 3 .b8 a[4]) { }",  //
           ".visible .entry k(.param .b8 a[40000]) { }",       //
           ".visible .entry k() .maxntid 4096 { }",            //
           "//gpushare.sim cost=fast\n.entry k() { }",         //
           "//gpushare.sim cost=param:0\n.entry k() { }",      // there is none
           "//gpushare.sim cost=param:0\n.entry k(.param .u32 a) { }",
           "//gpushare.sim blocks_per_sm=0\n.entry k() { }",
           "//gpushare.sim stamps=param:0\n.entry k() { }",
           "//gpushare.sim stamps=param:0\n.entry k(.param .u32 a) { }",
           "//gpushare.sim stamps=here\n.entry k(.param .u64 a) { }",
           "//gpushare.sim away=yes\n.entry k(.param .u64 a) { }",
           "//gpushare.sim stamps=param:0 away=no\n.entry k(.param .u64 a) { }",
           "//gpushare.sim speed=9\n.entry k() { }",
           "//gpushare.sim cost=3us\n",  // for nothing
       }) {
    EXPECT_EQ(Load(WithHead(text)), CUDA_ERROR_INVALID_PTX) << text;
  }
  EXPECT_EQ(Load("hello"), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(Load(".version seven\n"), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(Load(".version 7.5\n"), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(Load(".version 7.5\n.target gfx90a\n"), CUDA_ERROR_INVALID_PTX);
}

TEST_F(ModuleTest, EveryPrefixOfAModuleIsAnsweredWithoutACrash) {
  const std::string text = kPtx;
  for (size_t length = 0; length < text.size(); ++length) {
    const CUresult result = Load(text.substr(0, length));
    EXPECT_TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_PTX ||
                (result == CUDA_ERROR_INVALID_IMAGE && length == 0))
        << length;
  }
}

TEST_F(ModuleTest, TheErrorLogSaysWhatIsWrongAndWhere) {
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
  char error[256], info[16];
  const auto load = [&](const char* text, uintptr_t room) {
    std::memset(error, 'x', sizeof(error));
    std::memset(info, 'x', sizeof(info));
    void* values[] = {error, reinterpret_cast<void*>(room), info,
                      reinterpret_cast<void*>(uintptr_t{sizeof(info)})};
    CUmodule module;
    const CUresult result = cuModuleLoadDataEx(&module, text, 4, options, values);
    return std::pair(result, reinterpret_cast<uintptr_t>(values[1]));
  };
  const char* const broken = ".version 7.5\n.target gfx90a\n";
  const auto [result, written] = load(broken, sizeof(error));
  EXPECT_EQ(result, CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(std::string(error).find("line 2"), std::string::npos) << error;
  EXPECT_EQ(written, std::strlen(error));
  EXPECT_STREQ(info, "");
  // A short buffer gets the beginning of the text, and nothing is written beyond it.
  EXPECT_EQ(load(broken, 5).second, 4u);
  EXPECT_STREQ(error, "ptx ");
  EXPECT_EQ(error[5], 'x');
  EXPECT_EQ(load(broken, 0).second, 0u);
  EXPECT_EQ(error[0], 'x');
  EXPECT_EQ(load(kPtx, sizeof(error)), std::pair(CUDA_SUCCESS, uintptr_t{0}));
  EXPECT_STREQ(error, "");
}

TEST_F(ModuleTest, OtherImagesAreToldApart) {
  EXPECT_EQ(Load(""), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(Load("\x01\x02\x03\x04"), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(Load("\x7f"
                 "ELF" +
                 std::string(60, '.')),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(Load("\x50\xed\x55\xba...."), CUDA_ERROR_NO_BINARY_FOR_GPU);
  CUmodule module;
  EXPECT_EQ(cuModuleLoadData(&module, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuModuleLoadData(nullptr, kPtx), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuModuleLoad(&module, "/no/such/file"), CUDA_ERROR_FILE_NOT_FOUND);
}

TEST_F(ModuleTest, ReferencesToTexturesAreHandles) {
  CUmodule module = nullptr;
  const std::string text = WithHead(R"(
.global .texref picture;
.global .samplerref how;
.global .surfref[2];
)");
  EXPECT_EQ(cuModuleLoadData(&module, text.c_str()),
            CUDA_ERROR_INVALID_PTX);  // the text has no name
  const std::string named = WithHead(".global .texref picture;\n.global .surfref target[2];\n");
  ASSERT_EQ(cuModuleLoadData(&module, named.c_str()), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
}

// Most comments are written like this. Otherwise the kernel would silently cost 5 us.
TEST_F(ModuleTest, ACostLineMayBeginWithBlanks) {
  const std::string text = WithHead("// \t gpushare.sim cost=70us\n.visible .entry k() { ret; }\n");
  CUmodule module;
  ASSERT_CU(cuModuleLoadData(&module, text.c_str()));
  CUfunction k;
  ASSERT_CU(cuModuleGetFunction(&k, module, "k"));
  const CUstream s = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(cuLaunchKernel(k, 1, 1, 1, 32, 1, 1, 0, s, nullptr, nullptr));
  EXPECT_EQ(DoneAt(s, start), 70'000u);
}

TEST_F(ModuleTest, CostLinesSayWhatAKernelCosts) {
  const std::string text = WithHead(R"(
// an ordinary comment
//gpushare.sim cost=1.5ms blocks_per_sm=2
.visible .entry a() { { } ret; }
.visible .entry b(
  .param .align 8 .b8 first[12],
  .param .u8 second,
  .param .u64 third,
  .param .u64 .ptr .global .align 1 fourth
)
.maxntid 128, 2, 1
{ .reg .b32 %r<4>; /* } */ ret; }
)");
  CUmodule module;
  ASSERT_CU(cuModuleLoadData(&module, text.c_str()));
  CUfunction a, b;
  ASSERT_CU(cuModuleGetFunction(&a, module, "a"));
  ASSERT_CU(cuModuleGetFunction(&b, module, "b"));
  EXPECT_EQ(cuModuleGetFunction(&b, module, "c"), CUDA_ERROR_NOT_FOUND);
  const CUstream s = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(cuLaunchKernel(a, 200, 1, 1, 32, 1, 1, 0, s, nullptr, nullptr));
  EXPECT_EQ(DoneAt(s, start), 1'500'000u);
  size_t offset = 0, size = 0;
  EXPECT_CU(cuFuncGetParamInfo(b, 1, &offset, &size));
  EXPECT_EQ(offset, 12u);
  EXPECT_EQ(size, 1u);
  EXPECT_CU(cuFuncGetParamInfo(b, 3, &offset, &size));
  EXPECT_EQ(offset, 24u);
  EXPECT_EQ(size, 8u);
  EXPECT_EQ(cuFuncGetParamInfo(b, 4, &offset, &size), CUDA_ERROR_INVALID_VALUE);
  int threads = 0;
  EXPECT_CU(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, b));
  EXPECT_EQ(threads, 256);
  const char* name = nullptr;
  EXPECT_CU(cuFuncGetName(&name, b));
  EXPECT_STREQ(name, "b");
  unsigned count = 0;
  EXPECT_CU(cuModuleGetFunctionCount(&count, module));
  EXPECT_EQ(count, 2u);
  ASSERT_CU(cuModuleUnload(module));
  EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLaunchKernel(a, 1, 1, 1, 32, 1, 1, 0, s, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(ModuleTest, FunctionsBesideTheEntriesAreSkipped) {
  EXPECT_CU(Load(WithHead(R"(
.extern .func (.param .b32 answer) vprintf(.param .b64 format, .param .b64 list);
.func none() ;
.func  (.param .b32 func_retval0) twice(
  .param .b32 twice_param_0
)
{
  { ret; }
}
.visible .entry k(.param .u64 a) { call.uni (retval0), twice, (param0); ret; }
)")));
}

TEST_F(ModuleTest, GlobalsAreDeviceMemory) {
  const uint64_t before = gpushare_sim_memory_used(0);
  CUmodule module;
  ASSERT_CU(cuModuleLoadData(&module, kPtx));
  EXPECT_EQ(gpushare_sim_memory_used(0) - before, 1024u);
  CUdeviceptr address = 0;
  size_t bytes = 0;
  ASSERT_CU(cuModuleGetGlobal(&address, &bytes, module, "table"));
  EXPECT_EQ(bytes, 1024u);
  uint32_t value = 77;
  EXPECT_CU(cuMemcpyHtoD(address + 4, &value, 4));
  value = 0;
  EXPECT_CU(cuMemcpyDtoH(&value, address + 4, 4));
  EXPECT_EQ(value, 77u);
  EXPECT_EQ(cuModuleGetGlobal(&address, &bytes, module, "chair"), CUDA_ERROR_NOT_FOUND);
  EXPECT_CU(cuModuleUnload(module));
  EXPECT_EQ(gpushare_sim_memory_used(0), before);
}

TEST_F(ModuleTest, AModuleMayComeFromAFile) {
  const std::string path =
      testing::TempDir() + "gpushare_sim_module." + std::to_string(getpid()) + ".ptx";
  std::ofstream(path) << kPtx;
  CUmodule module;
  EXPECT_CU(cuModuleLoad(&module, path.c_str()));
  std::remove(path.c_str());
}

TEST_F(ModuleTest, AModuleMayGoWhileItsKernelsRun) {
  CUmodule module;
  CUfunction function;
  ASSERT_CU(cuModuleLoadData(&module, kPtx));
  ASSERT_CU(cuModuleGetFunction(&function, module, "k_10us"));
  const CUstream s = NewStream();
  const uint64_t start = Now();
  for (int i = 0; i < 3; ++i) {
    ASSERT_CU(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, s, nullptr, nullptr));
  }
  ASSERT_CU(cuModuleUnload(module));
  EXPECT_EQ(DoneAt(s, start), 30'000u);
}

}  // namespace
}  // namespace gpushare::sim_test
