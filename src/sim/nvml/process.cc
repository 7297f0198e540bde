// SPDX-License-Identifier: Apache-2.0
// The processes on a device.
#include <vector>

#include "sim/nvml/entry.h"
#include "sim/nvml/source.h"

namespace gpushare::sim::nvml {
namespace {

void Put(const gpushare_sim_process& process, ProcessV1* to) {
  *to = {process.pid, process.memory_used};
}
void Put(const gpushare_sim_process& process, ProcessV2* to) {
  *to = {process.pid, process.memory_used, kNoInstance, kNoInstance};
}

// On entry `count` is the room in the list, on return the number of entries. Too little room is an error.
template <typename Entry>
Return List(Handle handle, const std::vector<gpushare_sim_process>& processes, unsigned* count,
            Entry* list) {
  gpushare_sim_device_info info;
  const Return result = Find(handle, &info);
  if (result != kSuccess) return result;
  if (count == nullptr) return kInvalidArgument;
  const unsigned room = *count;
  *count = static_cast<unsigned>(processes.size());
  if (processes.empty()) return kSuccess;
  if (room < processes.size()) return kInsufficientSize;
  if (list == nullptr) return kInvalidArgument;
  for (size_t i = 0; i < processes.size(); ++i) Put(processes[i], &list[i]);
  return kSuccess;
}

template <typename Entry>
Return ListCompute(Handle handle, unsigned* count, Entry* list) {
  gpushare_sim_device_info info;
  int ordinal;
  const Return result = Find(handle, &info, &ordinal);
  return result != kSuccess ? result : List(handle, Processes(ordinal), count, list);
}

}  // namespace
}  // namespace gpushare::sim::nvml

using namespace gpushare::sim::nvml;  // NOLINT: the entry points are global names

NVML_API Return nvmlDeviceGetComputeRunningProcesses_v3(Handle handle, unsigned* count,
                                                        ProcessV2* list) {
  return ListCompute(handle, count, list);
}
NVML_ALIAS(nvmlDeviceGetComputeRunningProcesses_v2, nvmlDeviceGetComputeRunningProcesses_v3);

NVML_API Return nvmlDeviceGetComputeRunningProcesses(Handle handle, unsigned* count,
                                                     ProcessV1* list) {
  return ListCompute(handle, count, list);
}

// Samples that ended after `since`, in us of the device's clock.
NVML_API Return nvmlDeviceGetProcessUtilization(Handle handle, ProcessSample* list, unsigned* count,
                                                unsigned long long since) {
  gpushare_sim_device_info info;
  int ordinal;
  const Return result = Find(handle, &info, &ordinal);
  if (result != kSuccess) return result;
  if (count == nullptr) return kInvalidArgument;
  std::vector<gpushare_sim_process_sample> samples = Samples(ordinal);
  std::erase_if(samples, [since](const auto& one) { return one.end_ns / 1000 <= since; });
  const unsigned room = *count;
  *count = static_cast<unsigned>(samples.size());
  if (samples.empty()) return kNotFound;
  if (list == nullptr || room < samples.size()) return kInsufficientSize;
  for (size_t i = 0; i < samples.size(); ++i) {
    const gpushare_sim_process_sample& one = samples[i];
    list[i] = {one.pid, one.end_ns / 1000, one.kernels_percent, one.copies_percent, 0, 0};
  }
  return kSuccess;
}

// A simulated GPU runs no graphics, and no sharing service (MPS) is modelled.
NVML_API Return nvmlDeviceGetGraphicsRunningProcesses_v3(Handle handle, unsigned* count,
                                                         ProcessV2* list) {
  return List(handle, {}, count, list);
}
NVML_ALIAS(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlDeviceGetGraphicsRunningProcesses_v3);
NVML_ALIAS(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlDeviceGetGraphicsRunningProcesses_v3);
NVML_ALIAS(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlDeviceGetGraphicsRunningProcesses_v3);

NVML_API Return nvmlDeviceGetGraphicsRunningProcesses(Handle handle, unsigned* count,
                                                      ProcessV1* list) {
  return List(handle, {}, count, list);
}
NVML_ALIAS(nvmlDeviceGetMPSComputeRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses);
