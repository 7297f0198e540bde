// SPDX-License-Identifier: Apache-2.0
// NVML's hooks with an NVML that lists other tenants' processes (tests/shim/nvml_of_another.c), in a process that
// never calls the driver. tests/shim/nvml_test.py tests what an unmodified program sees through them.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "driver/nvml_types.h"
#include "gtest/gtest.h"
#include "shim/attach_abi.h"

namespace gpushare::shim {
namespace {

using namespace nvml;  // NOLINT: its results and structures

constexpr uint64_t kMiB = uint64_t{1} << 20;

class NvmlHooks : public testing::Test {
 protected:
  void SetUp() override {
    setenv("NVML_UUIDS", "GPU-aaaa,GPU-bbbb", 1);
    setenv("GPUSHARE_SPEC", "memory=1GiB", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    const gpushare_shim_driver library = {
        GPUSHARE_SHIM_ABI_VERSION, 0, dlopen(nullptr, RTLD_NOW), "", nullptr, nullptr};
    const gpushare_shim_hook* hooks = nullptr;
    size_t count = 0;
    ASSERT_EQ(gpushare_shim_attach_nvml(&library, &hooks, &count), 0);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_TRUE(hooks_.emplace(hooks[i].name, hooks[i].function).second) << hooks[i].name;
    }
    const auto by_index = reinterpret_cast<Return (*)(unsigned, Device*)>(
        dlsym(library.handle, "nvmlDeviceGetHandleByIndex_v2"));
    for (unsigned i = 0; i < 2; ++i) ASSERT_EQ(by_index(i, &devices_[i]), kSuccess);
  }
  void TearDown() override { unsetenv("GPUSHARE_SPEC"); }

  template <typename... Arguments>
  Return Call(const std::string& name, Arguments... arguments) {
    return reinterpret_cast<Return (*)(Arguments...)>(hooks_.at(name))(arguments...);
  }
  uint64_t Total(Device device) {
    Memory memory{};
    EXPECT_EQ(Call("nvmlDeviceGetMemoryInfo", device, &memory), kSuccess);
    EXPECT_EQ(memory.total, memory.free + memory.used);
    return memory.total / kMiB;
  }

  std::map<std::string, void*> hooks_;
  Device devices_[2] = {};
};

TEST_F(NvmlHooks, AreThoseOfTheList) {
  std::set<std::string> listed, hooked;
#define X(name, is_hooked, is_simulated) \
  if (is_hooked) listed.insert(#name);
#include "driver/nvml.def"
#undef X
  for (const auto& [name, function] : hooks_) hooked.insert(name);
  EXPECT_EQ(hooked, listed);
}

TEST_F(NvmlHooks, AreOfThisVersionOnly) {
  const gpushare_shim_driver other = {
      GPUSHARE_SHIM_ABI_VERSION + 1, 0, nullptr, "", nullptr, nullptr};
  const gpushare_shim_hook* hooks = nullptr;
  size_t count = 0;
  EXPECT_NE(gpushare_shim_attach_nvml(&other, &hooks, &count), 0);
}

TEST_F(NvmlHooks, AreRefusedToWhoPassesNothing) {
  const gpushare_shim_driver driver = {GPUSHARE_SHIM_ABI_VERSION, 0, nullptr, "", nullptr, nullptr};
  const gpushare_shim_hook* hooks = nullptr;
  size_t count = 0;
  EXPECT_NE(gpushare_shim_attach_nvml(nullptr, &hooks, &count), 0);
  EXPECT_NE(gpushare_shim_attach_nvml(&driver, nullptr, &count), 0);
  EXPECT_NE(gpushare_shim_attach_nvml(&driver, &hooks, nullptr), 0);
  EXPECT_NE(gpushare_shim_attach(nullptr, &hooks, &count), 0);
}

TEST_F(NvmlHooks, ShowTheQuota) {
  EXPECT_EQ(Total(devices_[0]), 1024u);
  MemoryV2 memory{};
  EXPECT_EQ(Call("nvmlDeviceGetMemoryInfo_v2", devices_[0], &memory), kArgumentVersionMismatch);
  memory.version = kMemoryV2;
  EXPECT_EQ(Call("nvmlDeviceGetMemoryInfo_v2", devices_[0], &memory), kSuccess);
  EXPECT_EQ(memory.total, 1024 * kMiB);
  EXPECT_EQ(memory.reserved, 0u);
  EXPECT_EQ(memory.free, memory.total);
  setenv("GPUSHARE_SPEC", "memory=50%",
         1);  // of 16 GiB minus the memory that the driver keeps and the reserve
  EXPECT_EQ(Total(devices_[0]), (16384u - 512 - 256) / 2);
  setenv("GPUSHARE_SPEC", "cap=50%", 1);
  EXPECT_EQ(Total(devices_[0]), 16384u);
  setenv("GPUSHARE_SPEC", "memory=nonsense", 1);
  Memory refused{};
  EXPECT_EQ(Call("nvmlDeviceGetMemoryInfo", devices_[0], &refused), kUnknown);
  EXPECT_EQ(Call("nvmlDeviceGetMemoryInfo", Device{nullptr}, &refused), kInvalidArgument);
}

TEST_F(NvmlHooks, LeaveOtherDevicesAsTheyAre) {
  setenv("CUDA_VISIBLE_DEVICES", "GPU-bbbb", 1);
  EXPECT_EQ(Total(devices_[0]), 16384u);
  EXPECT_EQ(Total(devices_[1]), 1024u);
  unsigned count = 0;
  ProcessV2* const none = nullptr;
  const char* const list = "nvmlDeviceGetComputeRunningProcesses_v3";
  EXPECT_EQ(Call(list, devices_[0], &count, none), kInsufficientSize);
  EXPECT_EQ(count, 3u);
}

TEST_F(NvmlHooks, ListThisProcessAlone) {
  for (const char* name :
       {"nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3"}) {
    SCOPED_TRACE(name);
    unsigned count = 0;
    ProcessV2* const none = nullptr;
    EXPECT_EQ(Call(name, devices_[0], &count, none), kInsufficientSize);
    ASSERT_EQ(count, 1u);
    EXPECT_EQ(Call(name, devices_[0], &count, none), kInvalidArgument);
    ProcessV2 own{};
    count = 1;
    EXPECT_EQ(Call(name, devices_[0], &count, &own), kSuccess);
    EXPECT_EQ(own.pid, static_cast<uint32_t>(getpid()));
    EXPECT_EQ(own.used_memory, 0u);
    EXPECT_EQ(own.gpu_instance, kNoInstance);
  }
  ProcessSample sample{};
  unsigned count = 1;
  EXPECT_EQ(Call("nvmlDeviceGetProcessUtilization", devices_[0], &sample, &count, uint64_t{0}),
            kSuccess);
  EXPECT_EQ(sample.pid, static_cast<uint32_t>(getpid()));
}

TEST_F(NvmlHooks, AnswerManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      for (int round = 0; round < 100; ++round) EXPECT_EQ(Total(devices_[i % 2]), 1024u);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gpushare::shim
