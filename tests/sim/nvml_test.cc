// SPDX-License-Identifier: Apache-2.0
// The management library for the simulated driver reports the same devices.
#include "sim/nvml/nvml.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/sim/sim_test.h"

extern "C" int nvmlDeviceGetTemperature(void* handle, int sensor, unsigned* degrees);

namespace gpushare::sim_test {
namespace {

using namespace gpushare::sim::nvml;  // NOLINT: its results and structures

class NvmlTest : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    ASSERT_EQ(nvmlInit_v2(), kSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(nvmlShutdown(), kSuccess);
    SimTest::TearDown();
  }
  static Handle Device(unsigned index = 0) {
    Handle handle = nullptr;
    EXPECT_EQ(nvmlDeviceGetHandleByIndex_v2(index, &handle), kSuccess);
    return handle;
  }
  static uint64_t Used() {
    Memory memory{};
    EXPECT_EQ(nvmlDeviceGetMemoryInfo(Device(), &memory), kSuccess);
    EXPECT_EQ(memory.total, memory.free + memory.used);
    return memory.used;
  }
  // Spends time until the end of the period that utilization is reported for.
  static void EndPeriod() { gpushare_sim_spend(kPeriod - Now() % kPeriod); }
  static sim::nvml::Utilization Rates() {
    sim::nvml::Utilization rates{};
    EXPECT_EQ(nvmlDeviceGetUtilizationRates(Device(), &rates), kSuccess);
    return rates;
  }

  static constexpr uint64_t kPeriod = 200'000'000, kMs = 1'000'000;
};

TEST_F(NvmlTest, NothingIsAnsweredBeforeInitAndAfterTheLastShutdown) {
  unsigned count = 0;
  const Handle device = Device();
  ASSERT_EQ(nvmlInit(), kSuccess);
  EXPECT_EQ(nvmlShutdown(), kSuccess);
  EXPECT_EQ(nvmlDeviceGetCount_v2(&count), kSuccess);
  EXPECT_EQ(nvmlShutdown(), kSuccess);
  EXPECT_EQ(nvmlDeviceGetCount_v2(&count), kUninitialized);
  EXPECT_EQ(nvmlDeviceGetIndex(device, &count), kUninitialized);
  EXPECT_EQ(nvmlDeviceGetTemperature(device, 0, &count), kUninitialized);
  EXPECT_EQ(nvmlShutdown(), kUninitialized);
  ASSERT_EQ(nvmlInitWithFlags(0), kSuccess);
}

TEST_F(NvmlTest, ItSaysThatItIsNotTheRealOne) {
  EXPECT_EQ(gpushare_sim_nvml_abi_version(), static_cast<uint32_t>(GPUSHARE_SIM_ABI_VERSION));
  char text[16];
  EXPECT_EQ(nvmlSystemGetDriverVersion(text, sizeof(text)), kSuccess);
  EXPECT_GT(std::strlen(text), 0u);
  EXPECT_EQ(nvmlSystemGetDriverVersion(text, 2), kInsufficientSize);
  int version = 0, drivers = 0;
  EXPECT_EQ(nvmlSystemGetCudaDriverVersion(&version), kSuccess);
  EXPECT_CU(cuDriverGetVersion(&drivers));
  EXPECT_EQ(version, drivers);
  EXPECT_STREQ(nvmlErrorString(kNotSupported), "Not Supported");
  EXPECT_STREQ(nvmlErrorString(-5), "Unknown Error");
}

TEST_F(NvmlTest, DevicesAreTheDrivers) {
  Restart(std::string(kPlain) + ",devices=2,compute_capability=8.6");
  unsigned count = 0;
  ASSERT_EQ(nvmlDeviceGetCount(&count), kSuccess);
  ASSERT_EQ(count, 2u);
  for (int i = 0; i < 2; ++i) {
    const Handle device = Device(static_cast<unsigned>(i));
    char text[96], drivers[96];
    ASSERT_EQ(nvmlDeviceGetName(device, text, sizeof(text)), kSuccess);
    ASSERT_CU(cuDeviceGetName(drivers, sizeof(drivers), i));
    EXPECT_STREQ(text, drivers);

    int major = 0, minor = 0;
    ASSERT_EQ(nvmlDeviceGetCudaComputeCapability(device, &major, &minor), kSuccess);
    EXPECT_EQ(major * 10 + minor, 86);

    PciInfo pci;
    PciInfoV2 old;
    ASSERT_EQ(nvmlDeviceGetPciInfo_v3(device, &pci), kSuccess);
    ASSERT_EQ(nvmlDeviceGetPciInfo(device, &old), kSuccess);
    ASSERT_CU(cuDeviceGetPCIBusId(drivers, sizeof(drivers), i));
    EXPECT_STREQ(pci.bus_id_legacy, drivers);
    EXPECT_STREQ(old.bus_id, drivers);
    EXPECT_EQ(std::string(pci.bus_id), "0000" + std::string(drivers));

    CUuuid uuid;
    ASSERT_CU(cuDeviceGetUuid(&uuid, i));
    std::string expected = "GPU-";
    for (int byte = 0; byte < 16; ++byte) {
      if (byte == 4 || byte == 6 || byte == 8 || byte == 10) expected += "-";
      std::snprintf(drivers, sizeof(drivers), "%02x", static_cast<unsigned char>(uuid.bytes[byte]));
      expected += drivers;
    }
    ASSERT_EQ(nvmlDeviceGetUUID(device, text, sizeof(text)), kSuccess);
    EXPECT_EQ(text, expected);
    EXPECT_EQ(nvmlDeviceGetUUID(device, text, 40), kInsufficientSize);

    Handle same = nullptr;
    unsigned index = 9;
    EXPECT_EQ(nvmlDeviceGetHandleByUUID(expected.c_str(), &same), kSuccess);
    EXPECT_EQ(same, device);
    for (const char* id : {pci.bus_id, pci.bus_id_legacy, pci.bus_id_legacy + 5}) {
      same = nullptr;
      EXPECT_EQ(nvmlDeviceGetHandleByPciBusId_v2(id, &same), kSuccess) << id;
      EXPECT_EQ(same, device) << id;
    }
    EXPECT_EQ(nvmlDeviceGetIndex(same, &index), kSuccess);
    EXPECT_EQ(index, static_cast<unsigned>(i));
  }
  Handle none = nullptr;
  EXPECT_EQ(nvmlDeviceGetHandleByIndex_v2(2, &none), kInvalidArgument);
  EXPECT_EQ(nvmlDeviceGetHandleByUUID("GPU-0", &none), kNotFound);
  EXPECT_EQ(nvmlDeviceGetHandleByPciBusId_v2("0000:77:00.0", &none), kNotFound);
  EXPECT_EQ(nvmlDeviceGetHandleByPciBusId_v2("0001:01:00.0", &none), kNotFound);
  EXPECT_EQ(nvmlDeviceGetHandleByPciBusId_v2("first", &none), kInvalidArgument);
}

TEST_F(NvmlTest, MemoryIsWhatTheDriverHasGivenOut) {
  const uint64_t before = Used();
  CUdeviceptr pointer;
  ASSERT_CU(cuMemAlloc(&pointer, 300 * kMiB));
  EXPECT_EQ(Used(), before + 300 * kMiB);
  EXPECT_EQ(Used(), gpushare_sim_memory_used(0));
  MemoryV2 memory{};
  EXPECT_EQ(nvmlDeviceGetMemoryInfo_v2(Device(), &memory), kArgumentVersionMismatch);
  memory.version = kMemoryV2;
  ASSERT_EQ(nvmlDeviceGetMemoryInfo_v2(Device(), &memory), kSuccess);
  size_t free = 0, total = 0;
  ASSERT_CU(cuMemGetInfo(&free, &total));
  EXPECT_EQ(memory.total, total);
  EXPECT_EQ(memory.free, free);
  EXPECT_EQ(memory.used, total - free);
  ASSERT_CU(cuMemFree(pointer));
  EXPECT_EQ(Used(), before);
}

TEST_F(NvmlTest, AProcessIsListedWhileItHasAContext) {
  const Handle device = Device();
  CUdeviceptr pointer;
  ASSERT_CU(cuMemAlloc(&pointer, 5 * kMiB));
  unsigned count = 0;
  EXPECT_EQ(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, nullptr), kInsufficientSize);
  ASSERT_EQ(count, 1u);
  ProcessV2 process{};
  ASSERT_EQ(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, &process), kSuccess);
  EXPECT_EQ(process.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(process.used_memory, gpushare_sim_memory_used(0));
  EXPECT_EQ(process.gpu_instance, kNoInstance);
  ProcessV1 old{};
  ASSERT_EQ(nvmlDeviceGetComputeRunningProcesses(device, &count, &old), kSuccess);
  EXPECT_EQ(old.used_memory, process.used_memory);
  EXPECT_EQ(nvmlDeviceGetGraphicsRunningProcesses_v3(device, &count, nullptr), kSuccess);
  EXPECT_EQ(count, 0u);
  ASSERT_CU(cuDevicePrimaryCtxReset(device_));
  EXPECT_EQ(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, nullptr), kSuccess);
  EXPECT_EQ(count, 0u);
}

TEST_F(NvmlTest, AProcessIsSeenWithWhatItUsed) {
  Restart(kPlain);
  unsigned count = 0;
  EXPECT_EQ(nvmlDeviceGetProcessUtilization(Device(), nullptr, &count, 0), kNotFound);
  const CUstream stream = NewStream();
  EndPeriod();  // so that the kernel lies in one period
  ASSERT_CU(Spin(stream, 50 * kMs, 10));
  ASSERT_CU(cuStreamSynchronize(stream));
  EndPeriod();
  EXPECT_EQ(nvmlDeviceGetProcessUtilization(Device(), nullptr, &count, 0), kInsufficientSize);
  ASSERT_EQ(count, 1u);
  ProcessSample sample{};
  ASSERT_EQ(nvmlDeviceGetProcessUtilization(Device(), &sample, &count, 0), kSuccess);
  EXPECT_EQ(sample.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(sample.sm, 25u);
  EXPECT_EQ(sample.memory + sample.encoder + sample.decoder, 0u);
  EXPECT_EQ(sample.time_us % 200'000, 0u);
  EXPECT_EQ(nvmlDeviceGetProcessUtilization(Device(), &sample, &count, sample.time_us), kNotFound);
  EXPECT_EQ(nvmlDeviceGetProcessUtilization(Device(), &sample, nullptr, 0), kInvalidArgument);
}

TEST_F(NvmlTest, UtilizationIsTheShareOfTheLastWholePeriod) {
  Restart(std::string(kPlain) + ",d2d=1GB/s");
  CUdeviceptr pointer;
  ASSERT_CU(cuMemAlloc(&pointer, 40'000'000));
  const CUstream stream = NewStream(), other = NewStream();
  EndPeriod();
  EXPECT_EQ(Rates().gpu, 0u);
  ASSERT_CU(Spin(stream, 50 * kMs, 1));  // the number of SMs does not matter
  ASSERT_CU(Spin(other, 30 * kMs, 99));  // nor does it matter that kernels overlap
  ASSERT_CU(cuMemsetD8Async(pointer, 0, 40'000'000, other));
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Rates().gpu, 0u) << "the period still goes on";
  EndPeriod();
  EXPECT_EQ(Rates().gpu, 25u);
  EXPECT_EQ(Rates().memory, 20u);
  // Kernels that run across the end of a period, and through whole periods.
  gpushare_sim_spend(120 * kMs);
  ASSERT_CU(Spin(stream, 500 * kMs, 100));
  gpushare_sim_spend(80 * kMs);
  EXPECT_EQ(Rates().gpu, 40u);
  EXPECT_EQ(Rates().memory, 0u);
  gpushare_sim_spend(210 * kMs);
  EXPECT_EQ(Rates().gpu, 100u);
  ASSERT_CU(cuStreamSynchronize(stream));
  EXPECT_EQ(Rates().gpu, 100u);
  EndPeriod();
  EXPECT_EQ(Rates().gpu, 10u);
  gpushare_sim_spend(2 * kPeriod);
  EXPECT_EQ(Rates().gpu, 0u);
}

TEST_F(NvmlTest, WhatIsNotModelledIsNotSupportedAndHandlesAreNotMadeUp) {
  unsigned value = 7, pending = 7;
  EXPECT_EQ(nvmlDeviceGetTemperature(Device(), 0, &value), kNotSupported);
  EXPECT_EQ(value, 7u);
  EXPECT_EQ(nvmlDeviceGetMigMode(Device(), &value, &pending), kSuccess);
  EXPECT_EQ(value + pending, 0u);
  EXPECT_EQ(nvmlDeviceGetMigMode(Device(), &value, nullptr), kInvalidArgument);
  for (const uint64_t bits : {uint64_t{0}, uint64_t{1}, reinterpret_cast<uint64_t>(Device()) + 1,
                              reinterpret_cast<uint64_t>(Device()) | UINT32_MAX}) {
    EXPECT_EQ(nvmlDeviceGetIndex(reinterpret_cast<Handle>(bits), &value), kInvalidArgument) << bits;
  }
}

}  // namespace
}  // namespace gpushare::sim_test
