// SPDX-License-Identifier: Apache-2.0
// gpushare_sim_*: what the management library shows of the devices and the processes that use them.
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gpushare/testing/sim.h"
#include "sim/api/api.h"
#include "sim/config/identity.h"
#include "sim/processes/device.h"

using namespace gpushare::sim;  // NOLINT: the entry points are global names

namespace {

// Whether there is a configuration to show: before cuInit() it may not have been read.
bool Configured() {
  State& s = state();
  if (s.configured) return true;
  const std::string error = EnsureConfigured();
  if (!error.empty()) s.clock.Report(error);
  return error.empty();
}

// A device by its number among all configured ones: management ignores CUDA_VISIBLE_DEVICES.
Device* Seen(int number) {
  for (const auto& device : state().devices) {
    if (device->which == number) return device.get();
  }
  return nullptr;
}

// In samples: a process that has published nothing for longer is not shown.
constexpr uint64_t kOldest = 5;

std::vector<gpushare_sim_process_sample> SamplesOf(Device* device) {
  const State& s = state();
  const uint64_t now = s.clock.now();
  device->Integrate(now);
  std::vector<gpushare_sim_process_sample> samples;
  if (s.shared == nullptr) {
    const Utilization& used = device->utilization();
    samples.push_back({static_cast<uint32_t>(getpid()), device->sampled_until(),
                       used.kernels_percent, used.copies_percent});
    return samples;
  }
  for (const SharedDevice::Sample& one : s.shared->Samples(static_cast<uint32_t>(device->which))) {
    const uint64_t sample = one.value >> 16, last = now / kSample;
    if (sample > last + 1 || sample + kOldest <= last) continue;
    samples.push_back({static_cast<uint32_t>(one.pid), sample * kSample,
                       static_cast<uint32_t>(one.value >> 8 & 0xff),
                       static_cast<uint32_t>(one.value & 0xff)});
  }
  return samples;
}

bool InUse(const Device* device) {
  if (state().checkpoint.state == Checkpoint::State::kCheckpointed) return false;
  for (const Context* context : state().contexts.All()) {
    if (context->device == device) return true;
  }
  return false;
}

}  // namespace

GPUSHARE_SIM_CONTROL int gpushare_sim_device_count(void) {
  const ControlScope scope;
  return Configured() ? state().config.devices : -1;
}

GPUSHARE_SIM_CONTROL int gpushare_sim_get_device_info(int ordinal, gpushare_sim_device_info* info) {
  const ControlScope scope;
  State& s = state();
  if (info == nullptr || !Configured() || ordinal < 0 || ordinal >= s.config.devices) return -1;
  *info = IdleInfo(s.config, ordinal);
  Device* const device = Seen(ordinal);
  if (device == nullptr) return 0;  // cuInit() has not been called, or does not show the device
  s.virtual_memory.Collect();
  info->memory_used = device->memory.capacity() - device->memory.left();
  // Processes never have the SMs, or one copy engine, at the same time, so their percentages add up.
  for (const gpushare_sim_process_sample& sample : SamplesOf(device)) {
    if (sample.end_ns + kSample < device->sampled_until()) continue;
    info->kernels_percent = std::min(100u, info->kernels_percent + sample.kernels_percent);
    info->copies_percent = std::min(100u, info->copies_percent + sample.copies_percent);
  }
  return 0;
}

GPUSHARE_SIM_CONTROL int gpushare_sim_process_samples(int ordinal,
                                                      gpushare_sim_process_sample* list,
                                                      uint32_t most) {
  const ControlScope scope;
  Device* const device = Seen(ordinal);
  if (device == nullptr || (state().shared == nullptr && !InUse(device))) return 0;
  uint32_t count = 0;
  for (const gpushare_sim_process_sample& sample : SamplesOf(device)) {
    if (sample.kernels_percent == 0 && sample.copies_percent == 0) continue;
    if (list != nullptr && count < most) list[count] = sample;
    ++count;
  }
  return static_cast<int>(count);
}

GPUSHARE_SIM_CONTROL int gpushare_sim_device_processes(int ordinal, gpushare_sim_process* list,
                                                       uint32_t most) {
  const ControlScope scope;
  const Device* const device = Seen(ordinal);
  if (device == nullptr) return 0;
  if (SharedDevice* const shared = state().shared; shared != nullptr) {
    uint32_t count = 0;
    for (const Holding& one : shared->Holdings(static_cast<uint32_t>(ordinal))) {
      if (one.place == kNobody) continue;  // it has ended
      if (list != nullptr && count < most)
        list[count] = {static_cast<uint32_t>(one.pid), one.bytes};
      ++count;
    }
    return static_cast<int>(count);
  }
  if (!InUse(device)) return 0;
  if (list != nullptr && most > 0) {
    *list = {static_cast<uint32_t>(getpid()), device->memory.used()};
  }
  return 1;
}
