// SPDX-License-Identifier: Apache-2.0
// Multicast objects.
#include "sim/memory/multicast.h"

#include "sim/api/api.h"

namespace gpushare::sim {
namespace {

Allocation* FindMulticast(CUmemGenericAllocationHandle handle) {
  Allocation* const allocation = virtual_memory().Find(handle);
  return allocation != nullptr && allocation->team != nullptr ? allocation : nullptr;
}

CUresult CheckProperties(const CUmulticastObjectProp* properties) {
  if (properties == nullptr || properties->flags != 0 || properties->numDevices == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (properties->numDevices > state().devices.size()) return CUDA_ERROR_INVALID_VALUE;
  switch (properties->handleTypes) {
    case CU_MEM_HANDLE_TYPE_NONE:
    case CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR:
      return CUDA_SUCCESS;
    case CU_MEM_HANDLE_TYPE_FABRIC:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Create(CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* properties) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = CheckProperties(properties);
  if (result != CUDA_SUCCESS) return result;
  if (properties->size == 0 || !Granular(properties->size)) return CUDA_ERROR_INVALID_VALUE;
  Allocation* const allocation =
      virtual_memory().CreateMulticast(properties->size, properties->numDevices);
  allocation->handle_types = static_cast<uint32_t>(properties->handleTypes);
  *handle = allocation->handle;
  return CUDA_SUCCESS;
}

CUresult AddDevice(CUmemGenericAllocationHandle handle, CUdevice ordinal) {
  Allocation* const object = FindMulticast(handle);
  if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* const device = FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  MulticastTeam& team = *object->team;
  if (team.Has(device) || team.devices.size() == team.wanted) return CUDA_ERROR_INVALID_VALUE;
  if (team.devices.empty()) object->device = device;
  team.devices.push_back(device);
  if (team.devices.size() == team.wanted) state().clock.WakeAll(team.complete, 0);
  return CUDA_SUCCESS;
}

// The common part of both forms of binding: `memory` must be granular at both ends and lie within the object.
CUresult Bind(CUmemGenericAllocationHandle handle, uint64_t offset, Allocation* memory,
              uint64_t memory_offset, uint64_t size) {
  Allocation* const object = FindMulticast(handle);
  if (object == nullptr || memory == nullptr || memory == object || memory->team != nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (size == 0 || !Granular(size) || !Granular(offset) || !Granular(memory_offset) ||
      offset > object->size || size > object->size - offset || memory_offset > memory->size ||
      size > memory->size - memory_offset) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // An exportable object may contain only exportable memory.
  if (object->handle_types != 0 && memory->handle_types == 0) return CUDA_ERROR_INVALID_VALUE;
  ++memory->mappings;  // keeps it alive while we wait
  const auto result = static_cast<CUresult>(virtual_memory().WaitForTeam(object));
  const bool free = result == CUDA_SUCCESS && object->team->Has(memory->device) &&
                    virtual_memory().IsUnbound(*object, memory->device, offset, size);
  if (!free) {
    const bool foreign = result == CUDA_SUCCESS && !object->team->Has(memory->device);
    virtual_memory().DropMapping(memory);
    return foreign ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
  }
  object->team->bindings.push_back({memory, offset, size, memory_offset});
  return CUDA_SUCCESS;
}

CUresult BindAddress(CUmemGenericAllocationHandle handle, uint64_t offset, CUdeviceptr pointer,
                     size_t size) {
  const Mapping* const mapping = virtual_memory().FindMapping(pointer);
  if (mapping == nullptr || mapping->buffer ||
      size > mapping->size - (pointer - mapping->address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return Bind(handle, offset, mapping->allocation, mapping->offset + (pointer - mapping->address),
              size);
}

CUresult Unbind(CUmemGenericAllocationHandle handle, CUdevice ordinal, uint64_t offset,
                uint64_t size) {
  const Allocation* const object = FindMulticast(handle);
  if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* const device = FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  auto& bindings = object->team->bindings;
  for (auto at = bindings.begin(); at != bindings.end(); ++at) {
    if (at->memory->device != device || at->offset != offset || at->size != size) continue;
    Allocation* const memory = at->memory;
    bindings.erase(at);
    virtual_memory().DropMapping(memory);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuMulticastCreate)
(CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* properties) {
  SIM_ENTER(cuMulticastCreate, kCall);
  return Create(handle, properties);
}

SIM_API(cuMulticastAddDevice)(CUmemGenericAllocationHandle handle, CUdevice device) {
  SIM_ENTER(cuMulticastAddDevice, kCall);
  return AddDevice(handle, device);
}

SIM_API(cuMulticastBindMem)
(CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
 size_t memory_offset, size_t size, unsigned long long flags) {
  SIM_ENTER(cuMulticastBindMem, kCall);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return Bind(handle, offset, virtual_memory().Find(memory), memory_offset, size);
}

SIM_API(cuMulticastBindAddr)
(CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr pointer, size_t size,
 unsigned long long flags) {
  SIM_ENTER(cuMulticastBindAddr, kCall);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return BindAddress(handle, offset, pointer, size);
}

SIM_API(cuMulticastUnbind)
(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t size) {
  SIM_ENTER(cuMulticastUnbind, kCall);
  return Unbind(handle, device, offset, size);
}

SIM_API(cuMulticastGetGranularity)
(size_t* granularity, const CUmulticastObjectProp* properties,
 CUmulticastGranularity_flags option) {
  SIM_ENTER(cuMulticastGetGranularity, kNone);
  if (granularity == nullptr || (option != CU_MULTICAST_GRANULARITY_MINIMUM &&
                                 option != CU_MULTICAST_GRANULARITY_RECOMMENDED)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = CheckProperties(properties);
  if (result == CUDA_SUCCESS) *granularity = VirtualMemory::kGranularity;
  return result;
}
