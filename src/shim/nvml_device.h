// SPDX-License-Identifier: Apache-2.0
// A device as NVML names it, and this process's share of it.
//
// NVML numbers the devices of the machine by their place on the PCI bus; the driver numbers those that it shows in an order of
// its own. The UUID matches them. Until the process calls the driver, its share is derived from the environment alone: asking
// the driver would initialise it, and a monitoring program has to stay without a context.
#ifndef GPUSHARE_SHIM_NVML_DEVICE_H_
#define GPUSHARE_SHIM_NVML_DEVICE_H_

#include <cxxabi.h>

#include <cstdint>
#include <optional>

#include "base/no_cancel.h"
#include "device/share/virtual_device.h"
#include "driver/nvml_types.h"
#include "shim/hook.h"

namespace gpushare::shim::nvml {

using namespace gpushare::nvml;  // NOLINT: its declarations are what all of this is about

struct Found {
  // Whether the process has a share of the device. If not, NVML's own answer is passed on.
  bool has_share = false;
  std::optional<uint64_t> quota;           // none: no quota
  device::VirtualDevice* share = nullptr;  // null until the process uses the GPU
  int ordinal = -1;                        // the driver's
};

// kSuccess, or NVML's error for the handle. kUnknown if the environment asks for an impossible share.
Return Look(Device device, Found* found);

// The bytes that are charged to the share now.
uint64_t Charged(const Found& found);

// The real NVML's functions, which hooks call; null if this NVML has none of that name.
void UseLibrary(void* handle);
void* RealSymbol(const char* name);
template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(RealSymbol(name));
}

void AddProcessHooks(Hooks* hooks);  // nvml_processes.cc

// Runs `call` so that no exception reaches the C caller. The thread is not cancelled meanwhile.
template <typename Call>
Return Guarded(const Call& call) {
  const base::NoCancel whole;
  try {
    return call();
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return kMemory;
  }
}

}  // namespace gpushare::shim::nvml

#endif  // GPUSHARE_SHIM_NVML_DEVICE_H_
