// SPDX-License-Identifier: Apache-2.0
// Kernels through the layer `work`: shares, what is measured, and what is not charged.
#include "tests/contract/work_bed.h"

namespace gpushare::work {
namespace {

class KernelTest : public WorkTest {};

TEST_F(KernelTest, TwoTenantsShareByWeight) {
  const Tenant &a = Weighing(3), &b = Weighing(1);
  const std::vector<double> shares = Shares(
      Millis(1300), {[&] { return Spin(a, Micros(14)); }, [&] { return Spin(b, Millis(1)); }});
  EXPECT_NEAR(shares[0], 75, 1);
  EXPECT_GT(busy_percent_, 98);
}

TEST_F(KernelTest, EachFormIsChargedOnceAndWhatItTook) {
  const Tenant& t = Weighing(1);
  uint64_t ns = 100'000;
  void* params[] = {&ns};
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  CUlaunchConfig config{};
  config.gridDimX = 100;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 1024;
  config.hStream = t.stream;
  size_t size = sizeof ns;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &ns, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  for (int round = 0; round < 40; ++round) {
    ASSERT_CU(calls_->LaunchKernel(t.payer(), spin_, 100, 1, 1, 1024, 1, 1, 0, t.stream, params,
                                   nullptr));
    ASSERT_CU(
        calls_->LaunchKernel(t.payer(), spin_, 100, 1, 1, 1024, 1, 1, 0, t.stream, nullptr, extra));
    ASSERT_CU(calls_->LaunchKernelEx(t.payer(), &config, spin_, params, nullptr));
    ASSERT_CU(calls_->LaunchCooperativeKernel(t.payer(), spin_, 100, 1, 1, 1024, 1, 1, 0, t.stream,
                                              params));
    config.attrs = &attribute;
    config.numAttrs = round % 2 == 0 ? 1 : 0;
  }
  ASSERT_CU(cu_->StreamSynchronize(t.stream));
  Rest();
  EXPECT_EQ(Truth(t.account).kernels, 160u);
  EXPECT_EQ(t.gate->stats().launches, 160u);
  EXPECT_NEAR(MeasuredMs(t), UsedMs(t.account), 0.02 * UsedMs(t.account));
}

// A library's kernel has no context: its handle stands for the function in the current context.
TEST_F(KernelTest, ALibrarysKernelIsChargedByItsHandleAsAFunctionIs) {
  const auto symbol = [&]<typename F>(const char* name, F**) {
    return reinterpret_cast<F*>(driver_->Symbol(name));
  };
  const auto load =
      symbol("cuLibraryLoadData", static_cast<decltype(cuLibraryLoadData)**>(nullptr));
  const auto get =
      symbol("cuLibraryGetKernel", static_cast<decltype(cuLibraryGetKernel)**>(nullptr));
  const auto unload = symbol("cuLibraryUnload", static_cast<decltype(cuLibraryUnload)**>(nullptr));
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  ASSERT_CU(load(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_CU(get(&kernel, library, "spin"));
  const auto function = reinterpret_cast<CUfunction>(kernel);
  const Tenant& t = Add({.limits = {.cap = 0.25}});
  uint64_t ns = 200'000;
  void* params[] = {&ns};
  const Time begin = clock().Now();
  // On half of the device: the layer finds the kernel's footprint by the handle.
  for (int i = 0; i < 200; ++i) {
    ASSERT_CU(calls_->LaunchKernel(t.payer(), function, 50, 1, 1, 1024, 1, 1, 0, t.stream, params,
                                   nullptr));
  }
  ASSERT_CU(cu_->StreamSynchronize(t.stream));
  const double took = Ms(clock().Now() - begin);
  Rest();
  EXPECT_EQ(t.gate->stats().launches, 200u);
  EXPECT_NEAR(MeasuredMs(t), UsedMs(t.account), 0.02 * UsedMs(t.account));
  EXPECT_NEAR(UsedMs(t.account) / took, 0.25, 0.04);  // 5 ms of 160 ms are saved-up credit
  calls_->ModuleEnds();
  ASSERT_CU(unload(library));
  EXPECT_EQ(
      calls_->LaunchKernel(t.payer(), function, 50, 1, 1, 1024, 1, 1, 0, t.stream, params, nullptr),
      CUDA_ERROR_INVALID_HANDLE);
  Rest();
  EXPECT_EQ(t.gate->stats().launches, 200u);
}

TEST_F(KernelTest, WhatTheDriverRefusesIsItsOwnAnswerAndCostsNothing) {
  const Tenant& t = Weighing(1);
  const auto launch = [&](CUfunction function, unsigned grid, unsigned block, CUstream stream) {
    return calls_->LaunchKernel(t.payer(), function, grid, 1, 1, block, 1, 1, 0, stream, nullptr,
                                nullptr);
  };
  EXPECT_EQ(launch(nullptr, 1, 1, t.stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(launch(spin_, 0, 1, t.stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(spin_, 1, 0, t.stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(spin_, 1, 1 << 20, t.stream), CUDA_ERROR_INVALID_VALUE);
  const CUstream nowhere = reinterpret_cast<CUstream>(0x1234560);
  EXPECT_EQ(launch(spin_, 1, 32, nowhere),
            cu_->LaunchKernel(spin_, 1, 1, 1, 32, 1, 1, 0, nowhere, nullptr, nullptr));
  EXPECT_EQ(calls_->LaunchKernelEx(t.payer(), nullptr, spin_, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  Rest();
  EXPECT_EQ(t.gate->stats().launches, 0u);
  EXPECT_EQ(MeasuredMs(t), 0);
  EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
}

}  // namespace
}  // namespace gpushare::work
