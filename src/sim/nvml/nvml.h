// SPDX-License-Identifier: Apache-2.0
// The part of NVML that the simulated management library answers. Declared here since NVIDIA's header
// comes with neither of the packages that carry the CUDA headers; names, values and layouts are those of
// its C interface.
#ifndef GPUSHARE_SIM_NVML_NVML_H_
#define GPUSHARE_SIM_NVML_NVML_H_

#include <cstdint>

namespace gpushare::sim::nvml {

enum Return : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kArgumentVersionMismatch = 25,
  kUnknown = 999,
};

// Opaque: a tag and the index, never an address.
using Handle = struct HandleOfDevice*;

struct Memory {
  uint64_t total, free, used;
};

struct MemoryV2 {
  uint32_t version;  // kMemoryV2, by the caller
  uint64_t total, reserved, free, used;
};
static_assert(sizeof(MemoryV2) == 40);
inline constexpr uint32_t kMemoryV2 = sizeof(MemoryV2) | 2u << 24;

struct Utilization {
  uint32_t gpu, memory;  // percent
};

struct PciInfoV2 {
  char bus_id[16];
  uint32_t domain, bus, device, device_id, subsystem_id;
  uint32_t reserved[4];
};
struct PciInfo {
  char bus_id_legacy[16];
  uint32_t domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfoV2) == 52 && sizeof(PciInfo) == 68);

struct ProcessV1 {
  uint32_t pid;
  uint64_t used_memory;
};
struct Process {
  uint32_t pid;
  uint64_t used_memory;
  uint32_t gpu_instance, compute_instance;  // kNoInstance without MIG
};
static_assert(sizeof(ProcessV1) == 16 && sizeof(Process) == 24);
inline constexpr uint32_t kNoInstance = UINT32_MAX;

}  // namespace gpushare::sim::nvml

extern "C" {

// Which library it is: a real one has no such symbol. GPUSHARE_SIM_ABI_VERSION.
uint32_t gpushare_sim_nvml_abi_version();
gpushare::sim::nvml::Return nvmlInitWithFlags(unsigned);
gpushare::sim::nvml::Return nvmlInit_v2();
gpushare::sim::nvml::Return nvmlShutdown();
const char* nvmlErrorString(int result);
gpushare::sim::nvml::Return nvmlSystemGetDriverVersion(char* version, unsigned size);
gpushare::sim::nvml::Return nvmlSystemGetNVMLVersion(char* version, unsigned size);
gpushare::sim::nvml::Return nvmlSystemGetCudaDriverVersion_v2(int* version);
decltype(nvmlInit_v2) nvmlInit;
decltype(nvmlSystemGetCudaDriverVersion_v2) nvmlSystemGetCudaDriverVersion;
gpushare::sim::nvml::Return nvmlDeviceGetCount_v2(unsigned* count);
gpushare::sim::nvml::Return nvmlDeviceGetHandleByIndex_v2(unsigned index,
                                                          gpushare::sim::nvml::Handle* handle);
gpushare::sim::nvml::Return nvmlDeviceGetHandleByUUID(const char* uuid,
                                                      gpushare::sim::nvml::Handle* handle);
gpushare::sim::nvml::Return nvmlDeviceGetHandleByPciBusId_v2(const char* text,
                                                             gpushare::sim::nvml::Handle* handle);
gpushare::sim::nvml::Return nvmlDeviceGetIndex(gpushare::sim::nvml::Handle handle, unsigned* index);
gpushare::sim::nvml::Return nvmlDeviceGetName(gpushare::sim::nvml::Handle handle, char* name,
                                              unsigned size);
gpushare::sim::nvml::Return nvmlDeviceGetUUID(gpushare::sim::nvml::Handle handle, char* uuid,
                                              unsigned size);
gpushare::sim::nvml::Return nvmlDeviceGetPciInfo_v3(gpushare::sim::nvml::Handle handle,
                                                    gpushare::sim::nvml::PciInfo* pci);
gpushare::sim::nvml::Return nvmlDeviceGetPciInfo_v2(gpushare::sim::nvml::Handle handle,
                                                    gpushare::sim::nvml::PciInfoV2* pci);
gpushare::sim::nvml::Return nvmlDeviceGetCudaComputeCapability(gpushare::sim::nvml::Handle handle,
                                                               int* major, int* minor);
gpushare::sim::nvml::Return nvmlDeviceGetMemoryInfo(gpushare::sim::nvml::Handle handle,
                                                    gpushare::sim::nvml::Memory* memory);
gpushare::sim::nvml::Return nvmlDeviceGetMemoryInfo_v2(gpushare::sim::nvml::Handle handle,
                                                       gpushare::sim::nvml::MemoryV2* memory);
gpushare::sim::nvml::Return nvmlDeviceGetUtilizationRates(
    gpushare::sim::nvml::Handle handle, gpushare::sim::nvml::Utilization* utilization);
gpushare::sim::nvml::Return nvmlDeviceGetMigMode(gpushare::sim::nvml::Handle handle,
                                                 unsigned* current, unsigned* pending);
gpushare::sim::nvml::Return nvmlDeviceIsMigDeviceHandle(gpushare::sim::nvml::Handle handle,
                                                        unsigned* is);
gpushare::sim::nvml::Return nvmlDeviceGetComputeMode(gpushare::sim::nvml::Handle handle, int* mode);
decltype(nvmlDeviceGetCount_v2) nvmlDeviceGetCount;
decltype(nvmlDeviceGetHandleByIndex_v2) nvmlDeviceGetHandleByIndex;
decltype(nvmlDeviceGetHandleByPciBusId_v2) nvmlDeviceGetHandleByPciBusId;
decltype(nvmlDeviceGetIndex) nvmlDeviceGetMinorNumber;
decltype(nvmlDeviceGetPciInfo_v2) nvmlDeviceGetPciInfo;
gpushare::sim::nvml::Return nvmlDeviceGetComputeRunningProcesses_v3(
    gpushare::sim::nvml::Handle handle, unsigned* count, gpushare::sim::nvml::Process* list);
gpushare::sim::nvml::Return nvmlDeviceGetComputeRunningProcesses(
    gpushare::sim::nvml::Handle handle, unsigned* count, gpushare::sim::nvml::ProcessV1* list);
gpushare::sim::nvml::Return nvmlDeviceGetGraphicsRunningProcesses_v3(
    gpushare::sim::nvml::Handle handle, unsigned* count, gpushare::sim::nvml::Process* list);
gpushare::sim::nvml::Return nvmlDeviceGetGraphicsRunningProcesses(
    gpushare::sim::nvml::Handle handle, unsigned* count, gpushare::sim::nvml::ProcessV1* list);
decltype(nvmlDeviceGetComputeRunningProcesses_v3) nvmlDeviceGetComputeRunningProcesses_v2;
decltype(nvmlDeviceGetGraphicsRunningProcesses_v3) nvmlDeviceGetGraphicsRunningProcesses_v2;
decltype(nvmlDeviceGetGraphicsRunningProcesses_v3) nvmlDeviceGetMPSComputeRunningProcesses_v3;
decltype(nvmlDeviceGetGraphicsRunningProcesses_v3) nvmlDeviceGetMPSComputeRunningProcesses_v2;
decltype(nvmlDeviceGetGraphicsRunningProcesses) nvmlDeviceGetMPSComputeRunningProcesses;

}  // extern "C"

#endif  // GPUSHARE_SIM_NVML_NVML_H_
