// SPDX-License-Identifier: Apache-2.0
#include "sim/nvml/source.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/config/config.h"
#include "sim/config/identity.h"

namespace gpushare::sim::nvml {
namespace {

struct Driver {
  decltype(&gpushare_sim_device_count) device_count;
  decltype(&gpushare_sim_get_device_info) device_info;
  decltype(&gpushare_sim_device_processes) processes;
  decltype(&gpushare_sim_process_samples) samples;
};

template <typename Function>
bool Look(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// In a process with the preload library, opening the driver gives that library, which knows where the driver itself is.
void* Behind(void* library) {
  void* (*driver)(const char**);
  if (!Look(library, "gpushare_preload_driver", &driver)) return library;
  void* const real = driver(nullptr);
  return real == nullptr ? library : real;
}

// The simulated driver if it is loaded, whatever its name and scope. A preloaded object may have the same SONAME, so a look-up
// by name is not enough.
const Driver* FindDriver() {
  static std::atomic<const Driver*> found{nullptr};
  if (const Driver* const known = found.load(std::memory_order_acquire); known != nullptr) {
    return known;
  }
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* list) {
        static_cast<std::vector<std::string>*>(list)->emplace_back(info->dlpi_name);
        return 0;
      },
      &paths);
  for (const std::string& path : paths) {
    if (path.find("libcuda.so") == path.npos) continue;
    void* const opened = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (opened == nullptr) continue;
    void* const library = Behind(opened);
    Driver driver;
    const bool simulated = dlsym(library, "gpushare_sim_abi_version") != nullptr &&
                           Look(library, "gpushare_sim_device_count", &driver.device_count) &&
                           Look(library, "gpushare_sim_get_device_info", &driver.device_info) &&
                           Look(library, "gpushare_sim_device_processes", &driver.processes) &&
                           Look(library, "gpushare_sim_process_samples", &driver.samples);
    dlclose(opened);
    if (!simulated) continue;
    // The simulated driver is never unloaded. If two threads find it at the same time, one copy is leaked.
    const auto* const kept = new Driver(driver);
    const Driver* expected = nullptr;
    if (found.compare_exchange_strong(expected, kept, std::memory_order_acq_rel)) return kept;
    delete kept;
    return expected;
  }
  return nullptr;
}

}  // namespace

int DeviceCount() {
  if (const Driver* const driver = FindDriver(); driver != nullptr) return driver->device_count();
  Config config;
  return ReadConfig("", &config).empty() ? config.devices : -1;
}

std::optional<gpushare_sim_device_info> DeviceInfo(int ordinal) {
  if (const Driver* const driver = FindDriver(); driver != nullptr) {
    gpushare_sim_device_info info;
    if (driver->device_info(ordinal, &info) != 0) return std::nullopt;
    return info;
  }
  Config config;
  if (!ReadConfig("", &config).empty() || ordinal < 0 || ordinal >= config.devices) {
    return std::nullopt;
  }
  return IdleInfo(config, ordinal);
}

namespace {

// `ask` returns the number of entries.
template <typename Entry>
std::vector<Entry> All(int (*ask)(int, Entry*, uint32_t), int ordinal) {
  std::vector<Entry> list(8);
  for (;;) {
    const auto room = static_cast<uint32_t>(list.size());
    const auto count = static_cast<uint32_t>(ask(ordinal, list.data(), room));
    list.resize(count);
    if (count <= room) return list;
  }
}

}  // namespace

std::vector<gpushare_sim_process> Processes(int ordinal) {
  const Driver* const driver = FindDriver();
  if (driver == nullptr) return {};
  return All(driver->processes, ordinal);
}

std::vector<gpushare_sim_process_sample> Samples(int ordinal) {
  const Driver* const driver = FindDriver();
  if (driver == nullptr) return {};
  return All(driver->samples, ordinal);
}

}  // namespace gpushare::sim::nvml
