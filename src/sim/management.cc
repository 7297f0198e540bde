// SPDX-License-Identifier: Apache-2.0
// gpushare_sim_*: what the management library shows of the devices and of who uses them.
#include <unistd.h>

#include <string>

#include "gpushare/testing/sim.h"
#include "sim/api.h"
#include "sim/identity.h"
#include "sim/shared_device.h"

using namespace gpushare::sim;  // NOLINT: the entry points are global names

namespace {

// Whether there is a configuration to show; before cuInit() nobody may have read it.
bool Configured() {
  State& s = state();
  if (s.configured) return true;
  const std::string error = EnsureConfigured();
  if (!error.empty()) s.clock.Report(error);
  return error.empty();
}

// By its place among all that there are: management knows nothing of CUDA_VISIBLE_DEVICES.
Device* Seen(int number) {
  for (const auto& device : state().devices) {
    if (device->which == number) return device.get();
  }
  return nullptr;
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
  if (device == nullptr) return 0;  // cuInit() is still to come, or does not show it
  device->Integrate(s.clock.now());
  s.virtual_memory.Collect();
  info->memory_used = device->memory.capacity() - device->memory.left();
  info->kernels_percent = device->utilization().kernels_percent;
  info->copies_percent = device->utilization().copies_percent;
  return 0;
}

GPUSHARE_SIM_CONTROL int gpushare_sim_device_processes(int ordinal, gpushare_sim_process* list,
                                                       uint32_t most) {
  const ControlScope scope;
  const Device* const device = Seen(ordinal);
  if (device == nullptr) return 0;
  if (SharedDevice* const shared = state().shared; shared != nullptr) {
    uint32_t count = 0;
    for (const Holding& one : shared->Holdings(static_cast<uint32_t>(ordinal))) {
      if (one.place == kNobody) continue;  // it is over
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
