// SPDX-License-Identifier: Apache-2.0
// A device as NVML names it, and what this process has of it.
//
// NVML counts the devices of the machine by their place on the PCI bus, the driver those that it shows in an order of
// its own: they meet in the UUID. Before the process calls the driver what it will have is known from the environment
// alone, since asking the driver would initialise it: a monitor is to stay without a context.
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
  // Whether the process has a share of it. If not, what NVML says stands.
  bool has_share = false;
  std::optional<uint64_t> quota;           // nothing: none
  device::VirtualDevice* share = nullptr;  // once something of it was used
  int ordinal = -1;                        // the driver's
};

// kSuccess, or what NVML says of such a handle; kUnknown when the environment asks for a share that nobody can have.
Return Look(Device device, Found* found);

// What is charged to the share now.
uint64_t Charged(const Found& found);

// NVML's own functions, which hooks go on to; null: this NVML has none of that name.
void UseLibrary(void* handle);
void* RealSymbol(const char* name);
template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(RealSymbol(name));
}

void AddProcessHooks(Hooks* hooks);  // nvml_processes.cc

// Runs `call` as C code may be run. A thread is not cancelled in here.
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
