// SPDX-License-Identifier: Apache-2.0
// The part of NVML that the simulated management library answers.
#ifndef GPUSHARE_SIM_NVML_NVML_H_
#define GPUSHARE_SIM_NVML_NVML_H_

#include <cstdint>

#include "driver/nvml_types.h"

namespace gpushare::sim::nvml {

using namespace gpushare::nvml;  // NOLINT: its declarations are what all of this is about

// Opaque: the value is a tag and the index, never an address.
using Handle = struct HandleOfDevice*;

}  // namespace gpushare::sim::nvml

extern "C" {

// GPUSHARE_SIM_ABI_VERSION. Tells this library from a real one, which has no such symbol.
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
    gpushare::sim::nvml::Handle handle, unsigned* count, gpushare::sim::nvml::ProcessV2* list);
gpushare::sim::nvml::Return nvmlDeviceGetComputeRunningProcesses(
    gpushare::sim::nvml::Handle handle, unsigned* count, gpushare::sim::nvml::ProcessV1* list);
gpushare::sim::nvml::Return nvmlDeviceGetGraphicsRunningProcesses_v3(
    gpushare::sim::nvml::Handle handle, unsigned* count, gpushare::sim::nvml::ProcessV2* list);
gpushare::sim::nvml::Return nvmlDeviceGetGraphicsRunningProcesses(
    gpushare::sim::nvml::Handle handle, unsigned* count, gpushare::sim::nvml::ProcessV1* list);
gpushare::sim::nvml::Return nvmlDeviceGetProcessUtilization(
    gpushare::sim::nvml::Handle handle, gpushare::sim::nvml::ProcessSample* list, unsigned* count,
    unsigned long long since);
decltype(nvmlDeviceGetComputeRunningProcesses_v3) nvmlDeviceGetComputeRunningProcesses_v2;
decltype(nvmlDeviceGetGraphicsRunningProcesses_v3) nvmlDeviceGetGraphicsRunningProcesses_v2;
decltype(nvmlDeviceGetGraphicsRunningProcesses_v3) nvmlDeviceGetMPSComputeRunningProcesses_v3;
decltype(nvmlDeviceGetGraphicsRunningProcesses_v3) nvmlDeviceGetMPSComputeRunningProcesses_v2;
decltype(nvmlDeviceGetGraphicsRunningProcesses) nvmlDeviceGetMPSComputeRunningProcesses;

}  // extern "C"

#endif  // GPUSHARE_SIM_NVML_NVML_H_
