// SPDX-License-Identifier: Apache-2.0
// Initialisation, devices and their attributes.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "sim/api/api.h"
#include "sim/config/identity.h"
#include "sim/config/visible_devices.h"

namespace gpushare::sim {
namespace {

CUresult Init(unsigned flags) {
  State& s = state();
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (s.initialized) return CUDA_SUCCESS;
  const std::string error = EnsureConfigured();
  if (!error.empty()) {
    s.clock.Report(error);
    return CUDA_ERROR_INVALID_VALUE;
  }
  const char* const list = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<int> visible(static_cast<size_t>(s.config.devices));
  std::iota(visible.begin(), visible.end(), 0);
  if (list != nullptr) visible = VisibleDevices(list, s.config.devices);
  if (visible.empty()) return CUDA_ERROR_NO_DEVICE;
  for (const int number : visible) {
    s.devices.push_back(
        std::make_unique<Device>(static_cast<int>(s.devices.size()), number, s.config));
    s.devices.back()->Share(s.shared);
  }
  s.initialized = true;
  return CUDA_SUCCESS;
}

CUuuid UuidOf(const Device& device) {
  const auto bytes = gpushare::sim::UuidOf(device.which);
  CUuuid uuid;
  std::memcpy(uuid.bytes, bytes.data(), bytes.size());
  return uuid;
}

bool Attribute(const Device& device, CUdevice_attribute attribute, int* value) {
  const Config& config = device.config;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      *value = 1024;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      *value = 64;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      *value = 0x7fffffff;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      *value = 65535;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      *value = 48 << 10;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = static_cast<int>(config.shared_per_sm) - static_cast<int>(kReservedShared);
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      *value = static_cast<int>(config.shared_per_sm);
      return true;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      *value = kReservedShared;
      return true;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      *value = 64 << 10;
      return true;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *value = 32;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      *value = 0x7fffffff;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      *value = 65536;
      return true;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      *value = 1980000;
      return true;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      *value = 3201000;
      return true;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      *value = 6144;
      return true;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = 60 << 20;
      return true;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
      *value = 512;
      return true;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
      *value = 32;
      return true;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = config.sms;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      *value = config.max_threads_per_sm;
      return true;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      *value = kMaxBlocksPerSm;
      return true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = config.compute_major;
      return true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = config.compute_minor;
      return true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
      *value = CU_COMPUTEMODE_DEFAULT;
      return true;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      *value = 3;
      return true;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *value = static_cast<int>(PciBusOf(device.which));
      return true;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      *value = 1;
      return true;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
      *value = config.serial ? 0 : 1;
      return true;
    default:
      if (ArrayLimit(attribute, value)) return true;
      // Features that are not modelled are not supported, and their attributes read 0.
      *value = 0;
      return attribute > 0 && attribute < CU_DEVICE_ATTRIBUTE_MAX;
  }
}

void PciBusId(const Device& device, char* text, size_t size) {
  std::snprintf(text, size, "0000:%02X:00.0", PciBusOf(device.which));
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuInit)(unsigned flags) {
  SIM_ENTER(cuInit, kNone);
  return Init(flags);
}

SIM_API(cuDriverGetVersion)(int* version) {
  SIM_ENTER(cuDriverGetVersion, kNone);
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGet)(CUdevice* device, int ordinal) {
  SIM_ENTER(cuDeviceGet, kNone);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (FindDevice(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetCount)(int* count) {
  SIM_ENTER(cuDeviceGetCount, kNone);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(state().devices.size());
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetName)(char* name, int length, CUdevice dev) {
  SIM_ENTER(cuDeviceGetName, kNone);
  if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (FindDevice(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<size_t>(length), "%s", state().config.name.c_str());
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetUuid)(CUuuid* uuid, CUdevice dev) {
  SIM_ENTER(cuDeviceGetUuid, kNone);
  const Device* const device = FindDevice(dev);
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *uuid = UuidOf(*device);
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetUuid_v2)(CUuuid* uuid, CUdevice dev) {
  SIM_ENTER(cuDeviceGetUuid_v2, kNone);
  const Device* const device = FindDevice(dev);
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *uuid = UuidOf(*device);
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceTotalMem_v2)(size_t* bytes, CUdevice dev) {
  SIM_ENTER(cuDeviceTotalMem_v2, kNone);
  const Device* const device = FindDevice(dev);
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = device->memory.capacity();
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetAttribute)(int* value, CUdevice_attribute attribute, CUdevice dev) {
  SIM_ENTER(cuDeviceGetAttribute, kNone);
  const Device* const device = FindDevice(dev);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return Attribute(*device, attribute, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuDeviceComputeCapability)(int* major, int* minor, CUdevice dev) {
  SIM_ENTER(cuDeviceComputeCapability, kNone);
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (FindDevice(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *major = state().config.compute_major;
  *minor = state().config.compute_minor;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetPCIBusId)(char* text, int length, CUdevice dev) {
  SIM_ENTER(cuDeviceGetPCIBusId, kNone);
  const Device* const device = FindDevice(dev);
  if (text == nullptr || length < 13) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  PciBusId(*device, text, static_cast<size_t>(length));
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetByPCIBusId)(CUdevice* dev, const char* text) {
  SIM_ENTER(cuDeviceGetByPCIBusId, kNone);
  if (dev == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& device : state().devices) {
    char id[16];
    PciBusId(*device, id, sizeof(id));
    if (std::strcmp(id, text) != 0) continue;
    *dev = device->ordinal;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}
