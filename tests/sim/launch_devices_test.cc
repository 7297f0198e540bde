// SPDX-License-Identifier: Apache-2.0
// Cooperative launches over several devices.
#include <array>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

constexpr unsigned kNoSyncBefore = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC,
                   kNoSyncAfter = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC;

// Deprecated, but still available.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
CUresult LaunchOn(CUDA_LAUNCH_PARAMS* list, unsigned count, unsigned flags = 0) {
  return cuLaunchCooperativeKernelMultiDevice(list, count, flags);
}
#pragma GCC diagnostic pop

class LaunchDevicesTest : public SimTest {
 protected:
  void SetUp() override {
    Start(std::string(kPlain) + ",devices=2");
    streams_[0] = NewStream();
    ASSERT_CU(cuDevicePrimaryCtxRetain(&other_, 1));
    ASSERT_CU(cuCtxSetCurrent(other_));
    CUmodule module = nullptr;
    ASSERT_CU(cuModuleLoadData(&module, kPtx));
    ASSERT_CU(cuModuleGetFunction(&other_spin_, module, "spin"));
    ASSERT_CU(cuModuleGetFunction(&other_wave_, module, "k_wave"));
    streams_[1] = NewStream();
    ASSERT_CU(cuCtxSetCurrent(context_));
    both_ = {Params(spin_, streams_[0], &values_[0]),
             Params(other_spin_, streams_[1], &values_[1])};
  }
  // 100 us on the first, 300 us on the second.
  CUDA_LAUNCH_PARAMS Params(CUfunction function, CUstream stream, void** values) {
    CUDA_LAUNCH_PARAMS one{};
    one.function = function;
    one.gridDimX = 10;
    one.gridDimY = one.gridDimZ = one.blockDimY = one.blockDimZ = 1;
    one.blockDimX = 32;
    one.hStream = stream;
    one.kernelParams = values;
    return one;
  }
  CUresult Launch(unsigned flags = 0) { return LaunchOn(both_.data(), 2, flags); }
  CUresult SpinOnOther(uint64_t ns) {
    void* parameters[] = {&ns};
    return cuLaunchKernel(other_spin_, 1, 1, 1, 32, 1, 1, 0, streams_[1], parameters, nullptr);
  }

  CUcontext other_ = nullptr;
  CUfunction other_spin_ = nullptr, other_wave_ = nullptr;
  std::array<CUstream, 2> streams_{};
  std::array<uint64_t, 2> ns_{100'000, 300'000};
  std::array<void*, 2> values_{&ns_[0], &ns_[1]};
  std::array<CUDA_LAUNCH_PARAMS, 2> both_{};
};

TEST_F(LaunchDevicesTest, TheDeviceAnnouncesIt) {
  int value = 0;
  ASSERT_CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH, 1));
  EXPECT_EQ(value, 1);
}

// Graphs with a kernel on each device: kernels run on the devices of their functions.
class GraphDevicesTest : public LaunchDevicesTest {
 protected:
  void SetUp() override {
    LaunchDevicesTest::SetUp();
    ASSERT_CU(cuGraphCreate(&graph_, 0));
    CUDA_KERNEL_NODE_PARAMS node{};
    node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimY = node.blockDimZ = 1;
    node.blockDimX = 32;
    for (size_t i = 0; i < 2; ++i) {
      node.func = i == 0 ? spin_ : other_spin_;
      node.kernelParams = &values_[i];
      ASSERT_CU(cuGraphAddKernelNode(&nodes_[i], graph_, nullptr, 0, &node));
    }
    ASSERT_CU(cuGraphInstantiate(&exec_, graph_, 0));
  }
  gpushare_sim_truth TruthThere() {
    gpushare_sim_truth truth{};
    EXPECT_EQ(gpushare_sim_account_truth(1, 7, &truth), 0);
    return truth;
  }
  CUgraph graph_ = nullptr;
  std::array<CUgraphNode, 2> nodes_{};
  CUgraphExec exec_ = nullptr;
};

TEST_F(GraphDevicesTest, EachKernelRunsWhereItsFunctionIs) {
  ASSERT_EQ(gpushare_sim_set_account(streams_[0], 7), 0);
  const uint64_t start = Now();
  ASSERT_CU(SpinOnOther(200'000));
  ASSERT_CU(cuGraphLaunch(exec_, streams_[0]));
  EXPECT_EQ(TruthThere().queued, 1u);
  EXPECT_EQ(DoneAt(streams_[0], start),
            300'000u);  // concurrent with the other kernel, since neither fills the device
  EXPECT_EQ(TruthThere().kernels, 1u);
  EXPECT_EQ(TruthThere().queued, 0u);
  EXPECT_EQ(Truth(7).kernels, 1u);
}

TEST_F(GraphDevicesTest, TheDriverNamesTheContextsOfItsKernels) {
  for (size_t i = 0; i < 2; ++i) {
    CUDA_KERNEL_NODE_PARAMS node{};
    ASSERT_CU(cuGraphKernelNodeGetParams(nodes_[i], &node));
    EXPECT_EQ(node.ctx, i == 0 ? context_ : other_);
  }
  ASSERT_CU(cuDevicePrimaryCtxReset(1));
  CUDA_KERNEL_NODE_PARAMS node{};
  ASSERT_CU(cuGraphKernelNodeGetParams(nodes_[1], &node));
  EXPECT_EQ(node.ctx, nullptr);
}

TEST_F(GraphDevicesTest, ItEndsWithEitherContext) {
  ASSERT_CU(cuGraphLaunch(exec_, streams_[0]));
  ASSERT_CU(cuGraphLaunch(exec_, streams_[0]));
  ASSERT_CU(cuDevicePrimaryCtxReset(1));
  EXPECT_CU(cuStreamQuery(streams_[0]));
  EXPECT_EQ(cuGraphLaunch(exec_, streams_[0]), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_CU(Spin(streams_[0], 1000, 1));
  EXPECT_CU(cuStreamSynchronize(streams_[0]));
}

TEST_F(LaunchDevicesTest, NoneBeginsBeforeAllOfTheirStreamsAreThere) {
  const uint64_t start = Now();
  ASSERT_CU(SpinOnOther(50'000));
  ASSERT_CU(Launch(kNoSyncAfter));
  EXPECT_EQ(DoneAt(streams_[0], start), 150'000u);
  EXPECT_EQ(DoneAt(streams_[1], start), 350'000u);
  EXPECT_EQ(Truth(0).kernels, 1u);  // on this device
}

TEST_F(LaunchDevicesTest, NothingComesBehindBeforeAllAreDone) {
  const uint64_t start = Now();
  ASSERT_CU(Launch());
  ASSERT_CU(Spin(streams_[0], 10'000, 1));
  ASSERT_CU(SpinOnOther(10'000));
  EXPECT_EQ(DoneAt(streams_[0], start), 310'000u);
  EXPECT_EQ(DoneAt(streams_[1], start), 310'000u);
}

TEST_F(LaunchDevicesTest, WithoutEitherEachIsAKernelOfItsStream) {
  const uint64_t start = Now();
  ASSERT_CU(SpinOnOther(50'000));
  ASSERT_CU(Launch(kNoSyncBefore | kNoSyncAfter));
  EXPECT_EQ(DoneAt(streams_[0], start), 100'000u);
  EXPECT_EQ(DoneAt(streams_[1], start), 350'000u);
}

TEST_F(LaunchDevicesTest, AFullStreamIsWaitedFor) {
  Restart(std::string(kPlain) + ",devices=2,queue_depth=4");
  ASSERT_CU(cuDevicePrimaryCtxRetain(&other_, 1));
  ASSERT_CU(cuCtxSetCurrent(other_));
  CUmodule module = nullptr;
  ASSERT_CU(cuModuleLoadData(&module, kPtx));
  ASSERT_CU(cuModuleGetFunction(&other_spin_, module, "spin"));
  streams_[1] = NewStream();
  ASSERT_CU(cuCtxSetCurrent(context_));
  streams_[0] = NewStream();
  both_ = {Params(spin_, streams_[0], &values_[0]), Params(other_spin_, streams_[1], &values_[1])};
  const uint64_t start = Now();
  for (int i = 0; i < 4; ++i) ASSERT_CU(SpinOnOther(10'000));
  ASSERT_CU(Launch());
  EXPECT_EQ(Now() - start, 10'000u);
  EXPECT_EQ(DoneAt(streams_[1], start), 340'000u);
}

TEST_F(LaunchDevicesTest, WhatDoesNotBelongTogetherIsRefusedAndLaunchesNothing) {
  const auto refused = [&](CUresult code) {
    EXPECT_EQ(Launch(), code);
    both_ = {Params(spin_, streams_[0], &values_[0]),
             Params(other_spin_, streams_[1], &values_[1])};
  };
  EXPECT_EQ(Launch(4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(LaunchOn(nullptr, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(LaunchOn(both_.data(), 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(LaunchOn(both_.data(), 3), CUDA_ERROR_INVALID_VALUE);
  both_[1].gridDimX = 11;
  refused(CUDA_ERROR_INVALID_VALUE);
  both_[1].blockDimX = 64;
  refused(CUDA_ERROR_INVALID_VALUE);
  both_[1].sharedMemBytes = 8;
  refused(CUDA_ERROR_INVALID_VALUE);
  both_[1].function = other_wave_;  // another kernel
  refused(CUDA_ERROR_INVALID_VALUE);
  both_[1] = both_[0];  // the same device
  refused(CUDA_ERROR_INVALID_VALUE);
  both_[1].function = spin_;  // the function is of another context than its stream
  refused(CUDA_ERROR_INVALID_HANDLE);
  for (const CUstream stream : {CUstream{}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    both_[0].hStream = stream;
    refused(CUDA_ERROR_INVALID_VALUE);
  }
  both_[0].gridDimX = both_[1].gridDimX = 101;
  refused(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  ASSERT_CU(cuStreamBeginCapture(streams_[1], CU_STREAM_CAPTURE_MODE_RELAXED));
  refused(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(Truth(0).kernels, 0u);
  EXPECT_EQ(cuStreamQuery(streams_[0]), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpushare::sim_test
