// SPDX-License-Identifier: Apache-2.0
// The fixture for tests of the simulated GPU: a device for each test, kernels of known cost, and threads of the
// virtual clock.
#ifndef GPUSHARE_TESTS_SIM_SIM_TEST_H_
#define GPUSHARE_TESTS_SIM_SIM_TEST_H_

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpushare/testing/sim.h"

// The headers of CUDA 13 declare only the newest versions.
extern "C" CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device);

namespace gpushare::sim_test {

#define ASSERT_CU(call) ASSERT_EQ(CUDA_SUCCESS, (call))
#define EXPECT_CU(call) EXPECT_EQ(CUDA_SUCCESS, (call))

inline constexpr size_t kMiB = 1 << 20;
inline constexpr size_t kGranule = 2 * kMiB;       // the granule of mappings
inline constexpr size_t kPoolGranule = 32 * kMiB;  // the granule by which a pool grows

// No host costs, and a device of 100 SMs, so that timelines can be worked out by hand.
inline constexpr char kPlain[] =
    "name=Test GPU,sms=100,memory=1GiB,launch_host=0,call_host=0,query_host=0,record_host=0,"
    "record_device=0,launch_latency=0,sync_return=0,wake_spin=0,wake_sleep=0";

// spin(ns, blocks): one block fills an SM. The kernels `k_*` have fixed costs.
inline constexpr char kPtx[] = R"(.version 7.5
.target sm_90
.address_size 64
.visible .global .align 4 .b8 table[1024];
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry spin(.param .u64 ns) { ret; }
//gpushare.sim cost=10us blocks_per_sm=1
.visible .entry k_10us() { ret; }
//gpushare.sim cost=10us/wave blocks_per_sm=1
.visible .entry k_wave() { ret; }
.visible .entry k_default(.param .u64 a, .param .u32 b, .param .align 8 .b8 c[24]) { ret; }
)";

// A thread of the virtual clock. It is announced before it is created, so that runs are repeatable.
class SimThread {
 public:
  SimThread(const char* name, std::function<void()> body)
      : thread_([number = gpushare_sim_thread_announce(name), body = std::move(body)] {
          EXPECT_EQ(0, gpushare_sim_thread_enter_announced(number));
          body();
          gpushare_sim_thread_leave();
        }) {}
  ~SimThread() { Join(); }
  void Join() {
    if (!thread_.joinable()) return;
    gpushare_sim_external_begin();
    thread_.join();
    gpushare_sim_external_end();
  }

 private:
  std::thread thread_;
};

// The test's thread is registered with the clock, and the primary context of device 0 is current.
class SimTest : public testing::Test {
 protected:
  void SetUp() override { Start(kPlain); }

  void Start(const std::string& config) {
    char error[256] = "";
    ASSERT_EQ(0, gpushare_sim_configure(config.c_str(), error, sizeof(error))) << error;
    ASSERT_EQ(0, gpushare_sim_thread_enter("test"));
    ASSERT_CU(cuInit(0));
    ASSERT_CU(cuDeviceGet(&device_, 0));
    ASSERT_CU(cuDevicePrimaryCtxRetain(&context_, device_));
    ASSERT_CU(cuCtxSetCurrent(context_));
    ASSERT_CU(cuModuleLoadData(&module_, kPtx));
    ASSERT_CU(cuModuleGetFunction(&spin_, module_, "spin"));
    ASSERT_CU(cuModuleGetFunction(&k_10us_, module_, "k_10us"));
    ASSERT_CU(cuModuleGetFunction(&k_wave_, module_, "k_wave"));
    ASSERT_CU(cuModuleGetFunction(&k_default_, module_, "k_default"));
    before_ = gpushare_sim_memory_used(0);
  }
  void Restart(const std::string& config) {
    Stop();
    Start(config);
  }
  void Stop() {
    gpushare_sim_thread_leave();
    ASSERT_EQ(0, gpushare_sim_reset());
  }
  void TearDown() override { Stop(); }

  CUstream NewStream(int priority = 0, unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream stream = nullptr;
    EXPECT_CU(cuStreamCreateWithPriority(&stream, flags, priority));
    return stream;
  }
  CUevent NewEvent(unsigned flags = CU_EVENT_DEFAULT) {
    CUevent event = nullptr;
    EXPECT_CU(cuEventCreate(&event, flags));
    return event;
  }
  // Launches a kernel on `sms` SMs for `ns`.
  CUresult Spin(CUstream stream, uint64_t ns, unsigned sms) {
    void* parameters[] = {&ns};
    return cuLaunchKernel(spin_, sms, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
  }
  static CUgraph NewGraph() {
    CUgraph graph = nullptr;
    EXPECT_CU(cuGraphCreate(&graph, 0));
    return graph;
  }
  // The parameters of a kernel node on `sms` SMs; values[0] points to the nanoseconds.
  CUDA_KERNEL_NODE_PARAMS SpinParams(void** values, unsigned sms = 1) const {
    CUDA_KERNEL_NODE_PARAMS parameters{};
    parameters.func = spin_;
    parameters.gridDimX = sms;
    parameters.gridDimY = parameters.gridDimZ = parameters.blockDimY = parameters.blockDimZ = 1;
    parameters.blockDimX = 32;
    parameters.kernelParams = values;
    return parameters;
  }
  CUgraphNode AddSpin(CUgraph graph, const std::vector<CUgraphNode>& dependencies, uint64_t ns,
                      unsigned sms = 1) const {
    void* values[] = {&ns};
    const CUDA_KERNEL_NODE_PARAMS parameters = SpinParams(values, sms);
    CUgraphNode node = nullptr;
    EXPECT_CU(
        cuGraphAddKernelNode(&node, graph, dependencies.data(), dependencies.size(), &parameters));
    return node;
  }
  static CUgraphExec Make(CUgraph graph, unsigned long long flags = 0) {
    CUgraphExec exec = nullptr;
    EXPECT_CU(cuGraphInstantiate(&exec, graph, flags));
    return exec;
  }
  static uint64_t Now() { return gpushare_sim_now(); }
  // The time at which the stream's present work is done, relative to `start`.
  static uint64_t DoneAt(CUstream stream, uint64_t start) {
    EXPECT_CU(cuStreamSynchronize(stream));
    return Now() - start;
  }
  static gpushare_sim_truth Truth(uint32_t account) {
    gpushare_sim_truth truth{};
    EXPECT_EQ(0, gpushare_sim_account_truth(0, account, &truth));
    return truth;
  }
  // The increase of the memory charged to the device since the test began.
  uint64_t Charged() const { return gpushare_sim_memory_used(0) - before_; }

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction spin_ = nullptr, k_10us_ = nullptr, k_wave_ = nullptr, k_default_ = nullptr;

 private:
  uint64_t before_ = 0;
};

}  // namespace gpushare::sim_test

#endif  // GPUSHARE_TESTS_SIM_SIM_TEST_H_
