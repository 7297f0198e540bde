// SPDX-License-Identifier: Apache-2.0
// The device: overlap by footprint, priority, waves, and the ground truth, compared with timelines worked out by
// hand. The device has 100 SMs; host costs are 0 unless a test sets them.
#include <cmath>
#include <cstring>
#include <random>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

using DeviceTest = SimTest;

TEST_F(DeviceTest, KernelsThatFitRunTogether) {
  const CUstream a = NewStream(), b = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(Spin(a, 10'000, 60));
  ASSERT_CU(Spin(b, 10'000, 40));
  EXPECT_EQ(DoneAt(a, start), 10'000u);
  EXPECT_EQ(DoneAt(b, start), 10'000u);
}

TEST_F(DeviceTest, AKernelThatDoesNotFitTakesWhatIsFreeAndTheRestLater) {
  const CUstream a = NewStream(), b = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(Spin(a, 10'000, 60));
  ASSERT_CU(Spin(b, 10'000, 60));  // 40 groups now, 20 when a is done
  EXPECT_EQ(DoneAt(a, start), 10'000u);
  EXPECT_EQ(DoneAt(b, start), 20'000u);
}

TEST_F(DeviceTest, CommandsOfOneStreamRunInOrder) {
  const CUstream a = NewStream();
  const uint64_t start = Now();
  for (int i = 0; i < 5; ++i) ASSERT_CU(Spin(a, 3'000, 10));
  EXPECT_EQ(DoneAt(a, start), 15'000u);
}

TEST_F(DeviceTest, FootprintsLargerThanTheDeviceRunInWaves) {
  const CUstream a = NewStream();
  uint64_t start = Now();
  ASSERT_CU(cuLaunchKernel(k_wave_, 250, 1, 1, 32, 1, 1, 0, a, nullptr, nullptr));
  EXPECT_EQ(DoneAt(a, start), 30'000u);  // three waves of 10 us each
  start = Now();
  ASSERT_CU(Spin(a, 30'000, 250));  // three waves of a third each
  EXPECT_EQ(DoneAt(a, start), 30'000u);
}

TEST_F(DeviceTest, ALastWaveLeavesRoomForOthers) {
  const CUstream a = NewStream(), b = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(Spin(a, 20'000, 150));  // 100 groups of 10 us, then 50
  ASSERT_CU(Spin(b, 10'000, 50));   // beside the last 50
  EXPECT_EQ(DoneAt(a, start), 20'000u);
  EXPECT_EQ(DoneAt(b, start), 20'000u);
}

TEST_F(DeviceTest, FreeSmsGoToTheHighestPriorityFirst) {
  const CUstream low = NewStream(0), waiting = NewStream(0), high = NewStream(-5);
  const uint64_t start = Now();
  ASSERT_CU(Spin(low, 10'000, 100));
  ASSERT_CU(Spin(waiting, 10'000, 100));  // ready first
  ASSERT_CU(Spin(high, 10'000, 100));
  EXPECT_EQ(DoneAt(high, start), 20'000u);  // no preemption, but before `waiting`
  EXPECT_EQ(DoneAt(waiting, start), 30'000u);
}

TEST_F(DeviceTest, ALaterWaveYieldsToAHigherPriority) {
  const CUstream low = NewStream(0), high = NewStream(-1);
  const uint64_t start = Now();
  ASSERT_CU(Spin(low, 40'000, 400));  // four waves of 10 us
  gpushare_sim_spend(5'000);
  ASSERT_CU(Spin(high, 10'000, 100));
  EXPECT_EQ(DoneAt(high, start), 20'000u);  // after the wave that was running
  EXPECT_EQ(DoneAt(low, start), 50'000u);
}

TEST_F(DeviceTest, EqualPrioritiesAreServedByAge) {
  std::vector<CUstream> streams;
  const uint64_t start = Now();
  for (int i = 0; i < 5; ++i) {
    streams.push_back(NewStream());
    ASSERT_CU(Spin(streams.back(), 10'000, 100));
  }
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(DoneAt(streams[i], start), 10'000 * (i + 1));
}

TEST_F(DeviceTest, SerialRunsOneKernelAtATime) {
  Restart(std::string(kPlain) + ",overlap=serial");
  const CUstream a = NewStream(), b = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(Spin(a, 10'000, 1));
  ASSERT_CU(Spin(b, 10'000, 1));
  EXPECT_EQ(DoneAt(b, start), 20'000u);
  EXPECT_EQ(DoneAt(a, start), 20'000u);
  EXPECT_DOUBLE_EQ(Truth(0).used_ns, 20'000);
}

TEST_F(DeviceTest, TheStreamsOfADeviceWaitForNoOtherDevice) {
  Restart(std::string(kPlain) + ",devices=2");
  CUcontext second;
  ASSERT_CU(cuDevicePrimaryCtxRetain(&second, 1));
  const CUstream a = NewStream();
  ASSERT_CU(cuCtxSetCurrent(second));
  CUmodule module;
  CUfunction spin;
  ASSERT_CU(cuModuleLoadData(&module, kPtx));
  ASSERT_CU(cuModuleGetFunction(&spin, module, "spin"));
  const CUstream b = NewStream();
  const uint64_t start = Now();
  uint64_t ns = 10'000;
  void* parameters[] = {&ns};
  ASSERT_CU(cuLaunchKernel(spin, 100, 1, 1, 32, 1, 1, 0, b, parameters, nullptr));
  ASSERT_CU(cuCtxSetCurrent(context_));
  ASSERT_CU(Spin(a, 10'000, 100));
  EXPECT_EQ(DoneAt(a, start), 10'000u);
  EXPECT_EQ(DoneAt(b, start), 10'000u);
  gpushare_sim_truth other{};
  EXPECT_EQ(0, gpushare_sim_account_truth(1, 0, &other));
  EXPECT_DOUBLE_EQ(other.used_ns, 10'000);
}

TEST_F(DeviceTest, LaunchLatencyDelaysOnlyAnIdleStream) {
  Restart(std::string(kPlain) + ",launch_latency=2us");
  const CUstream a = NewStream();
  uint64_t start = Now();
  ASSERT_CU(Spin(a, 10'000, 100));
  ASSERT_CU(Spin(a, 10'000, 100));
  EXPECT_EQ(DoneAt(a, start), 22'000u);
}

// ---- Ground truth.

TEST_F(DeviceTest, TimeIsSplitByTheSmsHeld) {
  const CUstream a = NewStream(), b = NewStream();
  ASSERT_EQ(0, gpushare_sim_set_account(a, 1));
  ASSERT_EQ(0, gpushare_sim_set_account(b, 2));
  ASSERT_CU(Spin(a, 10'000, 60));
  ASSERT_CU(Spin(b, 20'000, 20));
  ASSERT_CU(cuCtxSynchronize());
  // 10 us together at 60:20, then 10 us of b alone.
  EXPECT_DOUBLE_EQ(Truth(1).used_ns, 7'500);
  EXPECT_DOUBLE_EQ(Truth(2).used_ns, 12'500);
  EXPECT_DOUBLE_EQ(Truth(1).work_ns, 10'000);
  EXPECT_DOUBLE_EQ(Truth(2).work_ns, 20'000);
  EXPECT_EQ(Truth(1).kernels, 1u);
  double busy = 0, sms = 0;
  ASSERT_EQ(0, gpushare_sim_device_busy(0, &busy, &sms));
  EXPECT_DOUBLE_EQ(busy, 20'000);
  EXPECT_DOUBLE_EQ(sms, 10'000 * 0.8 + 10'000 * 0.2);
  // Unused time is charged to nobody.
  double of_a = 0, of_b = 0;
  ASSERT_EQ(0, gpushare_sim_account_sm_time(0, 1, &of_a));
  ASSERT_EQ(0, gpushare_sim_account_sm_time(0, 2, &of_b));
  EXPECT_DOUBLE_EQ(of_a, 10'000 * 0.6);
  EXPECT_DOUBLE_EQ(of_b, 20'000 * 0.2);
  EXPECT_EQ(-1, gpushare_sim_account_sm_time(9, 1, &of_a));
  EXPECT_EQ(-1, gpushare_sim_account_sm_time(0, 1, nullptr));
}

// The words of sim/stamps.h, as a kernel on 100 SMs writes them.
TEST_F(DeviceTest, AKernelSaysWhenItRan) {
  CUmodule module = nullptr;
  ASSERT_CU(cuModuleLoadData(&module,
                             ".version 7.0\n.target sm_70\n.address_size 64\n"
                             "//gpushare.sim cost=param:0 blocks_per_sm=1 stamps=param:1\n"
                             ".visible .entry k(.param .u64 cost, .param .u64 stamps) { ret; }\n"));
  CUfunction function = nullptr;
  ASSERT_CU(cuModuleGetFunction(&function, module, "k"));
  const CUstream a = NewStream(), b = NewStream();
  CUdeviceptr stamps = 0;
  ASSERT_CU(cuMemAlloc(&stamps, 64));
  const uint64_t fresh[4] = {UINT64_MAX, 0, 0, 7};
  ASSERT_CU(cuMemcpyHtoD(stamps, fresh, sizeof(fresh)));
  const auto launch = [&](CUstream stream, uint64_t cost, unsigned blocks, CUdeviceptr to) {
    void* parameters[] = {&cost, &to};
    return cuLaunchKernel(function, blocks, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
  };
  const uint64_t start = Now();
  ASSERT_CU(launch(b, 5'000, 40, 0));         // writes no stamps
  ASSERT_CU(launch(a, 20'000, 130, stamps));  // 60 groups now, 40 and 30 later
  ASSERT_CU(cuCtxSynchronize());
  uint64_t words[4] = {};
  ASSERT_CU(cuMemcpyDtoH(words, stamps, sizeof(words)));
  EXPECT_EQ(words[0], start);
  EXPECT_EQ(words[1], start + 20'000);
  EXPECT_EQ(words[2], 130 * 10'000u);
  EXPECT_EQ(words[3], 7u);
  // The same words again: the minimum, the maximum, and the sum.
  ASSERT_CU(launch(a, 1'000, 10, stamps));
  ASSERT_CU(cuCtxSynchronize());
  ASSERT_CU(cuMemcpyDtoH(words, stamps, sizeof(words)));
  EXPECT_EQ(words[0], start);
  EXPECT_GT(words[1], start + 21'000 - 1);
  EXPECT_EQ(words[2], 130 * 10'000u + 10 * 1'000u);
  // If the device has no access there, the context is lost, as with any kernel that writes there.
  ASSERT_CU(launch(a, 1'000, 10, stamps + 48));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(DeviceTest, TruthIsExactInTheMiddleOfAKernel) {
  const CUstream a = NewStream();
  ASSERT_EQ(0, gpushare_sim_set_account(a, 7));
  ASSERT_CU(Spin(a, 30'000, 300));  // three waves
  ASSERT_CU(Spin(a, 10'000, 50));
  EXPECT_EQ(Truth(7).queued, 2u);
  gpushare_sim_spend(15'000);
  EXPECT_DOUBLE_EQ(Truth(7).used_ns, 15'000);
  EXPECT_NEAR(Truth(7).work_ns, 15'000, 1e-6);
  EXPECT_EQ(Truth(7).kernels, 0u);
  gpushare_sim_spend(20'000);
  EXPECT_NEAR(Truth(7).work_ns, 35'000, 1e-6);
  EXPECT_EQ(Truth(7).kernels, 1u);
  EXPECT_EQ(Truth(7).queued, 1u);
  gpushare_sim_spend(5'000);
  EXPECT_EQ(Truth(7).queued, 0u);
}

TEST_F(DeviceTest, AHandWorkedOverlapOfThreeAccounts) {
  // t=0: a takes 50 for 20 us; b takes 30 for 10 us; c wants 40, gets 20, waits for 20.
  // t=10: b is done: c gets 20 more. t=20: a is done and c's first 20; t=30: c's last 20.
  const CUstream a = NewStream(), b = NewStream(), c = NewStream();
  ASSERT_EQ(0, gpushare_sim_set_account(a, 1));
  ASSERT_EQ(0, gpushare_sim_set_account(b, 2));
  ASSERT_EQ(0, gpushare_sim_set_account(c, 3));
  const uint64_t start = Now();
  ASSERT_CU(Spin(a, 20'000, 50));
  ASSERT_CU(Spin(b, 10'000, 30));
  ASSERT_CU(Spin(c, 20'000, 40));
  EXPECT_EQ(DoneAt(b, start), 10'000u);
  EXPECT_EQ(DoneAt(a, start), 20'000u);
  EXPECT_EQ(DoneAt(c, start), 30'000u);
  EXPECT_NEAR(Truth(1).used_ns, 10'000 * 0.5 + 10'000 * 50.0 / 90, 1e-6);
  EXPECT_NEAR(Truth(2).used_ns, 10'000 * 0.3, 1e-6);
  EXPECT_NEAR(Truth(3).used_ns, 10'000 * 0.2 + 10'000 * 40.0 / 90 + 10'000, 1e-6);
}

TEST_F(DeviceTest, UsedTimeAddsUpToBusyTime) {
  Restart("sms=80,noise=0.05,memory=1GiB");
  std::vector<CUstream> streams;
  std::mt19937 random(3);
  for (unsigned i = 0; i < 8; ++i) {
    streams.push_back(NewStream(-static_cast<int>(i % 3)));
    ASSERT_EQ(0, gpushare_sim_set_account(streams.back(), i));
  }
  for (int i = 0; i < 4000; ++i) {
    ASSERT_CU(Spin(streams[random() % 8], 1000 + random() % 50'000,
                   static_cast<unsigned>(1 + random() % 200)));
    if (random() % 50 == 0) gpushare_sim_spend(100'000);
  }
  ASSERT_CU(cuCtxSynchronize());
  double busy = 0, used = 0;
  ASSERT_EQ(0, gpushare_sim_device_busy(0, &busy, nullptr));
  uint64_t kernels = 0;
  for (unsigned i = 0; i < 8; ++i) {
    used += Truth(i).used_ns;
    kernels += Truth(i).kernels;
    EXPECT_EQ(Truth(i).queued, 0u);
  }
  EXPECT_EQ(kernels, 4000u);
  EXPECT_NEAR(used / busy, 1, 1e-9);
}

TEST_F(DeviceTest, NoiseHasTheMeanAndTheSpreadAskedFor) {
  Restart(std::string(kPlain) + ",noise=0.2,seed=11,queue_depth=100000");
  const CUstream stream = NewStream();
  double sum = 0, squares = 0;
  constexpr int kKernels = 20'000;
  for (int i = 0; i < kKernels; ++i) {
    const uint64_t start = Now();
    ASSERT_CU(Spin(stream, 1'000'000, 100));
    const auto relative = static_cast<double>(DoneAt(stream, start)) / 1e6;
    sum += relative;
    squares += relative * relative;
  }
  const double mean = sum / kKernels;
  const double deviation = std::sqrt(squares / kKernels - mean * mean);
  EXPECT_NEAR(mean, 1, 0.01);  // 7 standard errors
  EXPECT_NEAR(deviation, 0.2, 0.02);
}

TEST_F(DeviceTest, AFullQueueBlocksTheLaunchUntilThereIsRoom) {
  Restart(std::string(kPlain) + ",queue_depth=4");
  const CUstream stream = NewStream();
  const uint64_t start = Now();
  for (int i = 0; i < 4; ++i) ASSERT_CU(Spin(stream, 10'000, 100));
  EXPECT_EQ(Now(), start);
  ASSERT_CU(Spin(stream, 10'000, 100));
  EXPECT_EQ(Now() - start, 10'000u);
  EXPECT_EQ(DoneAt(stream, start), 50'000u);
}

TEST_F(DeviceTest, AttributesSayWhatIsConfigured) {
  Restart("sms=77,memory=3GiB,name=Nameless,compute_capability=8.6,devices=3");
  int value = 0;
  EXPECT_CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  EXPECT_EQ(value, 77);
  EXPECT_CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
  EXPECT_EQ(value, 6);
  EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 3),
            CUDA_ERROR_INVALID_DEVICE);
  size_t bytes = 0;
  EXPECT_CU(cuDeviceTotalMem(&bytes, 1));
  EXPECT_EQ(bytes, 3ull << 30);
  char name[64];
  EXPECT_CU(cuDeviceGetName(name, sizeof(name), 2));
  EXPECT_STREQ(name, "Nameless");
  int count = 0, version = 0;
  EXPECT_CU(cuDeviceGetCount(&count));
  EXPECT_EQ(count, 3);
  EXPECT_CU(cuDriverGetVersion(&version));
  EXPECT_EQ(version, 13000);
  CUuuid first, second;
  EXPECT_CU(cuDeviceGetUuid(&first, 0));
  EXPECT_CU(cuDeviceGetUuid(&second, 1));
  EXPECT_NE(0, std::memcmp(&first, &second, sizeof(first)));
  char pci[16];
  CUdevice found = -1;
  EXPECT_CU(cuDeviceGetPCIBusId(pci, sizeof(pci), 2));
  EXPECT_CU(cuDeviceGetByPCIBusId(&found, pci));
  EXPECT_EQ(found, 2);
}

}  // namespace
}  // namespace gpushare::sim_test
