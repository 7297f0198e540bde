// SPDX-License-Identifier: Apache-2.0
// Devices: finding them, their identity, and how they are used.
#include <cstdio>

#include "sim/config/identity.h"
#include "sim/nvml/entry.h"
#include "sim/nvml/source.h"

namespace gpushare::sim::nvml {
namespace {

// The first device for which `is` returns true.
template <typename Predicate>
Return FindBy(Handle* handle, const Predicate& is) {
  if (!Initialized()) return kUninitialized;
  if (handle == nullptr) return kInvalidArgument;
  const int count = DeviceCount();
  for (int i = 0; i < count; ++i) {
    const auto info = DeviceInfo(i);
    if (!info.has_value() || !is(*info)) continue;
    *handle = HandleOf(i);
    return kSuccess;
  }
  return kNotFound;
}

// Lets `fill` compute the answer from the device's present state.
template <typename Answer, typename Fill>
Return Tell(Handle handle, Answer* answer, const Fill& fill) {
  gpushare_sim_device_info info;
  const Return result = Find(handle, &info);
  if (result != kSuccess) return result;
  if (answer == nullptr) return kInvalidArgument;
  return fill(info);
}

template <typename Pci>
void FillPci(const gpushare_sim_device_info& info, Pci* pci) {
  *pci = {};
  pci->bus = info.pci_bus;
  pci->device_id = 0x2335'10de;  // an H200's
}

}  // namespace
}  // namespace gpushare::sim::nvml

using namespace gpushare::sim::nvml;  // NOLINT: the entry points are global names

NVML_API Return nvmlDeviceGetCount_v2(unsigned* count) {
  if (!Initialized()) return kUninitialized;
  if (count == nullptr) return kInvalidArgument;
  const int devices = DeviceCount();
  if (devices < 0) return kUnknown;
  *count = static_cast<unsigned>(devices);
  return kSuccess;
}
NVML_ALIAS(nvmlDeviceGetCount, nvmlDeviceGetCount_v2);

NVML_API Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle* handle) {
  if (!Initialized()) return kUninitialized;
  if (handle == nullptr || !DeviceInfo(static_cast<int>(index)).has_value()) {
    return kInvalidArgument;
  }
  *handle = HandleOf(static_cast<int>(index));
  return kSuccess;
}
NVML_ALIAS(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2);

NVML_API Return nvmlDeviceGetHandleByUUID(const char* uuid, Handle* handle) {
  if (Initialized() && uuid == nullptr) return kInvalidArgument;
  return FindBy(handle, [&](const gpushare_sim_device_info& info) {
    return gpushare::sim::UuidText(info.uuid) == uuid;
  });
}

// "domain:bus:device.function" in hexadecimal digits; the domain and the function may be omitted.
NVML_API Return nvmlDeviceGetHandleByPciBusId_v2(const char* text, Handle* handle) {
  if (!Initialized()) return kUninitialized;
  if (text == nullptr) return kInvalidArgument;
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  int read = std::sscanf(text, "%x:%x:%x.%x", &domain, &bus, &device, &function);
  if (read < 3) {
    domain = function = 0;
    read = std::sscanf(text, "%x:%x.%x", &bus, &device, &function) + 1;
  }
  if (read < 3) return kInvalidArgument;
  return FindBy(handle, [&](const gpushare_sim_device_info& info) {
    return domain == 0 && bus == info.pci_bus && device == 0 && function == 0;
  });
}
NVML_ALIAS(nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2);

NVML_API Return nvmlDeviceGetIndex(Handle handle, unsigned* index) {
  gpushare_sim_device_info info;
  int ordinal;
  const Return result = Find(handle, &info, &ordinal);
  if (result != kSuccess) return result;
  if (index == nullptr) return kInvalidArgument;
  *index = static_cast<unsigned>(ordinal);
  return kSuccess;
}
NVML_ALIAS(nvmlDeviceGetMinorNumber, nvmlDeviceGetIndex);

NVML_API Return nvmlDeviceGetName(Handle handle, char* name, unsigned size) {
  return Tell(handle, name, [&](const auto& info) { return Give(info.name, name, size); });
}

NVML_API Return nvmlDeviceGetUUID(Handle handle, char* uuid, unsigned size) {
  return Tell(handle, uuid, [&](const auto& info) {
    return Give(gpushare::sim::UuidText(info.uuid).c_str(), uuid, size);
  });
}

NVML_API Return nvmlDeviceGetPciInfo_v3(Handle handle, PciInfo* pci) {
  return Tell(handle, pci, [&](const auto& info) {
    FillPci(info, pci);
    std::snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:%02X:00.0", info.pci_bus);
    std::snprintf(pci->bus_id_legacy, sizeof(pci->bus_id_legacy), "0000:%02X:00.0", info.pci_bus);
    return kSuccess;
  });
}

NVML_API Return nvmlDeviceGetPciInfo_v2(Handle handle, PciInfoV2* pci) {
  return Tell(handle, pci, [&](const auto& info) {
    FillPci(info, pci);
    std::snprintf(pci->bus_id, sizeof(pci->bus_id), "0000:%02X:00.0", info.pci_bus);
    return kSuccess;
  });
}
NVML_ALIAS(nvmlDeviceGetPciInfo, nvmlDeviceGetPciInfo_v2);

NVML_API Return nvmlDeviceGetCudaComputeCapability(Handle handle, int* major, int* minor) {
  return Tell(handle, major, [&](const auto& info) {
    if (minor == nullptr) return kInvalidArgument;
    *major = info.compute_major;
    *minor = info.compute_minor;
    return kSuccess;
  });
}

NVML_API Return nvmlDeviceGetMemoryInfo(Handle handle, Memory* memory) {
  return Tell(handle, memory, [&](const auto& info) {
    *memory = {info.memory_total, info.memory_total - info.memory_used, info.memory_used};
    return kSuccess;
  });
}

NVML_API Return nvmlDeviceGetMemoryInfo_v2(Handle handle, MemoryV2* memory) {
  return Tell(handle, memory, [&](const auto& info) {
    if (memory->version != kMemoryV2) return kArgumentVersionMismatch;
    *memory = {kMemoryV2, info.memory_total, 0, info.memory_total - info.memory_used,
               info.memory_used};
    return kSuccess;
  });
}

NVML_API Return nvmlDeviceGetUtilizationRates(Handle handle, Utilization* utilization) {
  return Tell(handle, utilization, [&](const auto& info) {
    *utilization = {info.kernels_percent, info.copies_percent};
    return kSuccess;
  });
}

// MIG is not modelled: the mode is off, and no device is a MIG device.
NVML_API Return nvmlDeviceGetMigMode(Handle handle, unsigned* current, unsigned* pending) {
  return Tell(handle, current, [&](const auto&) {
    if (pending == nullptr) return kInvalidArgument;
    *current = *pending = 0;
    return kSuccess;
  });
}

NVML_API Return nvmlDeviceIsMigDeviceHandle(Handle handle, unsigned* is) {
  return Tell(handle, is, [&](const auto&) {
    *is = 0;
    return kSuccess;
  });
}

// NVML_COMPUTEMODE_DEFAULT, which is also what the driver's attribute says.
NVML_API Return nvmlDeviceGetComputeMode(Handle handle, int* mode) {
  return Tell(handle, mode, [&](const auto&) {
    *mode = 0;
    return kSuccess;
  });
}
