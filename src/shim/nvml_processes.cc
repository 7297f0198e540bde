// SPDX-License-Identifier: Apache-2.0
// The processes on a GPU. Of those that the real NVML lists only this process is shown, with the memory that is charged to its
// share. The other processes belong to other tenants.
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "shim/hook.h"
#include "shim/nvml_device.h"

namespace gpushare::shim::nvml {
namespace {

uint32_t OwnPid() { return static_cast<uint32_t>(getpid()); }

// Gets all entries from `ask(count, list)`, which returns the number of entries if they do not fit.
template <typename Entry, typename Ask>
Return AskForAll(const Ask& ask, std::vector<Entry>* all) {
  Return result = kInsufficientSize;
  for (int i = 0; i < 8 && result == kInsufficientSize; ++i) {
    auto count = static_cast<unsigned>(all->size());
    result = ask(&count, all->data());
    all->resize(result == kInsufficientSize ? count + 4 : count);  // processes may start meanwhile
  }
  if (result != kSuccess) all->clear();
  return result;
}

// Keeps only this process's entries.
template <typename Entry>
void KeepOwn(std::vector<Entry>* all) {
  std::erase_if(*all, [](const Entry& each) { return each.pid != OwnPid(); });
}

// Returns a list as NVML does: on entry `count` is the list's capacity, on return the number of entries.
template <typename Entry>
Return Give(const std::vector<Entry>& what, unsigned* count, Entry* list) {
  const unsigned room = *count;
  *count = static_cast<unsigned>(what.size());
  if (room < what.size()) return kInsufficientSize;
  if (!what.empty() && list == nullptr) return kInvalidArgument;
  std::copy(what.begin(), what.end(), list);
  return kSuccess;
}

void SetOwn(ProcessV1* entry, uint64_t bytes) { *entry = {OwnPid(), bytes}; }
void SetOwn(ProcessV2* entry, uint64_t bytes) {
  *entry = {OwnPid(), bytes, kNoInstance, kNoInstance};
}
void SetOwn(ProcessDetail* entry, uint64_t bytes) {
  *entry = {OwnPid(), bytes, kNoInstance, kNoInstance, 0};
}

// Whether this process's work is submitted through MPS.
bool IsMpsClient(Device device) {
  const auto ask =
      Real<Return(Device, unsigned*, ProcessV2*)>("nvmlDeviceGetMPSComputeRunningProcesses_v3");
  if (ask == nullptr) return false;
  std::vector<ProcessV2> all;
  AskForAll([&](unsigned* count, ProcessV2* list) { return ask(device, count, list); }, &all);
  KeepOwn(&all);
  return !all.empty();
}

// Turns the real NVML's list into the share's. If its process ids are those of another namespace, as in most containers, this
// process is not found in it. Then an entry is added once the share was used.
template <typename Entry>
void ShowOwn(Device device, const Found& found, bool compute, std::vector<Entry>* all) {
  KeepOwn(all);
  if (all->empty() && compute && found.share != nullptr && !IsMpsClient(device)) {
    SetOwn(&all->emplace_back(), 0);
  }
  for (Entry& each : *all) each.used_memory = Charged(found);
}

// One hook for each name, since the real function is looked up by name.
template <typename Entry>
Return List(const char* name, bool compute, Device device, unsigned* count, Entry* list) {
  return Guarded([&] {
    const auto real = Real<Return(Device, unsigned*, Entry*)>(name);
    Found found;
    const Return looked = Look(device, &found);
    if (looked == kSuccess && !found.has_share) return real(device, count, list);
    if (looked != kSuccess || count == nullptr) {
      const Return result = real(device, count, list);  // NVML's own error for bad arguments
      return result == kSuccess || result == kInsufficientSize ? looked : result;
    }
    std::vector<Entry> all;
    const Return result =
        AskForAll([&](unsigned* room, Entry* to) { return real(device, room, to); }, &all);
    if (result != kSuccess) return result;
    ShowOwn(device, found, compute, &all);
    return Give(all, count, list);
  });
}

#define GPUSHARE_NVML_LIST(hooks, name, type, compute)                                           \
  Add<Return(Device, unsigned*, type*)>(hooks, name,                                             \
                                        [](Device device, unsigned* count, type* list) {         \
                                          return List<type>(name, compute, device, count, list); \
                                        })

constexpr uint32_t kComputeMode = 0;  // of ProcessDetails

Return RunningProcessDetails(Device device, ProcessDetails* details) {
  return Guarded([&] {
    const auto real =
        Real<decltype(RunningProcessDetails)>("nvmlDeviceGetRunningProcessDetailList");
    Found found;
    if (details == nullptr) return real(device, details);
    if (const Return looked = Look(device, &found); looked != kSuccess) return looked;
    if (!found.has_share) return real(device, details);
    ProcessDetails asked = *details;
    std::vector<ProcessDetail> all;
    const Return result = AskForAll(
        [&](unsigned* count, ProcessDetail* list) {
          asked.count = *count;
          asked.list = list;
          const Return answer = real(device, &asked);
          *count = asked.count;
          return answer;
        },
        &all);
    if (result != kSuccess) return result;
    ShowOwn(device, found, details->mode == kComputeMode, &all);
    return Give(all, &details->count, details->list);
  });
}

// Samples of a process's usage over time. Without samples NVML returns "not found".
template <typename Entry, typename Ask>
Return OwnSamples(Device device, const Ask& real, unsigned* count, Entry* list) {
  Found found;
  if (const Return looked = Look(device, &found); looked != kSuccess) return looked;
  if (!found.has_share) return real(count, list);
  std::vector<Entry> all;
  if (const Return result = AskForAll(real, &all); result != kSuccess) return result;
  KeepOwn(&all);
  if (!all.empty()) return Give(all, count, list);
  *count = 0;
  return kNotFound;
}

Return ProcessUtilization(Device device, ProcessSample* list, unsigned* count, uint64_t since) {
  return Guarded([&] {
    const auto real = Real<decltype(ProcessUtilization)>("nvmlDeviceGetProcessUtilization");
    if (count == nullptr) return real(device, list, count, since);
    return OwnSamples(
        device, [&](unsigned* room, ProcessSample* to) { return real(device, to, room, since); },
        count, list);
  });
}

Return ProcessesUtilizationInfo(Device device, ProcessSamples* samples) {
  return Guarded([&] {
    const auto real =
        Real<decltype(ProcessesUtilizationInfo)>("nvmlDeviceGetProcessesUtilizationInfo");
    if (samples == nullptr) return real(device, samples);
    return OwnSamples(
        device,
        [&](unsigned* room, ProcessSampleInfo* to) {
          ProcessSamples asked = *samples;
          asked.count = *room;
          asked.list = to;
          const Return result = real(device, &asked);
          *room = asked.count;
          return result;
        },
        &samples->count, samples->list);
  });
}

}  // namespace

void AddProcessHooks(Hooks* hooks) {
  GPUSHARE_NVML_LIST(hooks, "nvmlDeviceGetComputeRunningProcesses", ProcessV1, true);
  GPUSHARE_NVML_LIST(hooks, "nvmlDeviceGetComputeRunningProcesses_v2", ProcessV2, true);
  GPUSHARE_NVML_LIST(hooks, "nvmlDeviceGetComputeRunningProcesses_v3", ProcessV2, true);
  GPUSHARE_NVML_LIST(hooks, "nvmlDeviceGetGraphicsRunningProcesses", ProcessV1, false);
  GPUSHARE_NVML_LIST(hooks, "nvmlDeviceGetGraphicsRunningProcesses_v2", ProcessV2, false);
  GPUSHARE_NVML_LIST(hooks, "nvmlDeviceGetGraphicsRunningProcesses_v3", ProcessV2, false);
  GPUSHARE_NVML_LIST(hooks, "nvmlDeviceGetMPSComputeRunningProcesses", ProcessV1, false);
  GPUSHARE_NVML_LIST(hooks, "nvmlDeviceGetMPSComputeRunningProcesses_v2", ProcessV2, false);
  GPUSHARE_NVML_LIST(hooks, "nvmlDeviceGetMPSComputeRunningProcesses_v3", ProcessV2, false);
  Add(hooks, "nvmlDeviceGetRunningProcessDetailList", &RunningProcessDetails);
  Add(hooks, "nvmlDeviceGetProcessUtilization", &ProcessUtilization);
  Add(hooks, "nvmlDeviceGetProcessesUtilizationInfo", &ProcessesUtilizationInfo);
}

}  // namespace gpushare::shim::nvml
