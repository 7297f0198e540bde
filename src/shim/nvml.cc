// SPDX-License-Identifier: Apache-2.0
// NVML's answers to a program: for a GPU's memory and utilisation it gets those of its share.
#include <dlfcn.h>

#include <algorithm>
#include <cmath>

#include "base/env.h"
#include "record/page.h"
#include "shim/attach_abi.h"
#include "shim/hook.h"
#include "shim/nvml_device.h"
#include "shim/nvml_usage.h"

namespace gpushare::shim::nvml {
namespace {

// Replaces the values of the real NVML by those of the share. Nothing in a share is reserved for the driver, so `reserved` is 0.
void ShowMemory(const Found& found, uint64_t* total, uint64_t* free, uint64_t* used) {
  *total = std::min(*total, *found.quota);
  *used = std::min(Charged(found), *total);
  *free = *total - *used;
}

Return MemoryInfo(Device device, Memory* memory) {
  return Guarded([&] {
    const Return result = Real<decltype(MemoryInfo)>("nvmlDeviceGetMemoryInfo")(device, memory);
    if (result != kSuccess) return result;
    Found found;
    if (const Return looked = Look(device, &found); looked != kSuccess) return looked;
    if (found.quota.has_value()) ShowMemory(found, &memory->total, &memory->free, &memory->used);
    return kSuccess;
  });
}

Return MemoryInfoV2(Device device, MemoryV2* memory) {
  return Guarded([&] {
    const Return result =
        Real<decltype(MemoryInfoV2)>("nvmlDeviceGetMemoryInfo_v2")(device, memory);
    if (result != kSuccess) return result;
    Found found;
    if (const Return looked = Look(device, &found); looked != kSuccess) return looked;
    if (!found.quota.has_value()) return kSuccess;
    ShowMemory(found, &memory->total, &memory->free, &memory->used);
    memory->reserved = 0;
    return kSuccess;
  });
}

uint32_t Percent(double part) { return static_cast<uint32_t>(std::lround(part * 100)); }

// All tenants use the memory controller. The share gets the part of its utilisation that equals its part of the kernels' time.
Return UtilizationRates(Device device, Utilization* rates) {
  return Guarded([&] {
    const Return result =
        Real<decltype(UtilizationRates)>("nvmlDeviceGetUtilizationRates")(device, rates);
    if (result != kSuccess) return result;
    Found found;
    if (const Return looked = Look(device, &found); looked != kSuccess) return looked;
    if (!found.has_share) return kSuccess;
    const Used used = LookAtUse(found);
    const double of_kernels =
        rates->gpu == 0 ? 0 : std::min(used.of_device * 100 / rates->gpu, 1.0);
    *rates = {.gpu = Percent(used.of_share), .memory = Percent(of_kernels * rates->memory / 100)};
    return kSuccess;
  });
}

const Hooks& AllHooks() {
  static const Hooks& hooks = *[] {
    auto* all = new Hooks;
    Add(all, "nvmlDeviceGetMemoryInfo", &MemoryInfo);
    Add(all, "nvmlDeviceGetMemoryInfo_v2", &MemoryInfoV2);
    Add(all, "nvmlDeviceGetUtilizationRates", &UtilizationRates);
    AddProcessHooks(all);
    return all;
  }();
  return hooks;
}

// The real functions: a process that is recorded gets unchanged answers.
const Hooks& RealOnes(void* library) {
  static const Hooks& hooks = *[library] {
    auto* real = new Hooks;
    for (const gpushare_shim_hook& hook : AllHooks()) {
      void* const function = dlsym(library, hook.name);
      if (function != nullptr) real->push_back({hook.name, function});
    }
    return real;
  }();
  return hooks;
}

}  // namespace
}  // namespace gpushare::shim::nvml

int gpushare_shim_attach_nvml(const gpushare_shim_driver* library, const gpushare_shim_hook** hooks,
                              size_t* count) {
  using namespace gpushare::shim::nvml;
  if (library == nullptr || hooks == nullptr || count == nullptr) return kUnknown;
  if (library->version != GPUSHARE_SHIM_ABI_VERSION) return kUnknown;
  return Guarded([&] {
    UseLibrary(library->handle);
    const bool recorded = gpushare::base::GetEnv(gpushare::record::kFolderVariable).has_value();
    const gpushare::shim::Hooks& all = recorded ? RealOnes(library->handle) : AllHooks();
    *hooks = all.data();
    *count = all.size();
    return kSuccess;
  });
}
