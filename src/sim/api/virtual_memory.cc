// SPDX-License-Identifier: Apache-2.0
// Virtual memory management.
#include "sim/api/api.h"
#include "sim/memory/address.h"

namespace gpushare::sim {
namespace {

constexpr uint64_t kHostPage = 4096;
constexpr int kTypeManaged = 2;  // newer than the oldest header that is supported

// Only device memory can be created, exportable as a file descriptor or not at all.
CUresult CheckProperties(const CUmemAllocationProp* properties, Device** device) {
  if (properties == nullptr || properties->win32HandleMetaData != nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (static_cast<int>(properties->type) == kTypeManaged) return CUDA_ERROR_NOT_SUPPORTED;
  if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  switch (properties->requestedHandleTypes) {
    case CU_MEM_HANDLE_TYPE_NONE:
    case CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR:
      break;
    case CU_MEM_HANDLE_TYPE_FABRIC:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (properties->allocFlags.compressionType > CU_MEM_ALLOCATION_COMP_GENERIC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  switch (properties->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      *device = FindDevice(properties->location.id);
      return *device != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Create(CUmemGenericAllocationHandle* handle, size_t size,
                const CUmemAllocationProp* properties, unsigned long long flags) {
  if (handle == nullptr || size == 0 || !Granular(size) || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Device* device = nullptr;
  const CUresult result = CheckProperties(properties, &device);
  if (result != CUDA_SUCCESS) return result;
  if (state().faults.FailAllocation()) return CUDA_ERROR_OUT_OF_MEMORY;
  Allocation* const allocation = virtual_memory().Create(device, size);
  if (allocation == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  allocation->handle_types = properties->requestedHandleTypes;
  allocation->usage = properties->allocFlags.usage;
  // Programs read back whether a request for compression was granted: here it never is.
  *handle = allocation->handle;
  return CUDA_SUCCESS;
}

CUresult Properties(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Allocation* const allocation = virtual_memory().Find(handle);
  if (allocation == nullptr || allocation->team != nullptr) return CUDA_ERROR_INVALID_VALUE;
  *properties = {};
  properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties->requestedHandleTypes =
      static_cast<CUmemAllocationHandleType>(allocation->handle_types);
  properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties->location.id = allocation->device->ordinal;
  properties->allocFlags.usage = allocation->usage;
  return CUDA_SUCCESS;
}

CUresult Reserve(CUdeviceptr* pointer, size_t size, size_t alignment, CUdeviceptr hint,
                 unsigned long long flags) {
  if (pointer == nullptr || size == 0 || size % kHostPage != 0 || hint % kHostPage != 0 ||
      (alignment & (alignment - 1)) != 0 || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Mappings are granular, so a smaller alignment would be of no use.
  if (alignment < VirtualMemory::kGranularity) alignment = VirtualMemory::kGranularity;
  const uint64_t address = virtual_memory().Reserve(size, alignment, hint);
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = address;
  return CUDA_SUCCESS;
}

CUresult Map(CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags) {
  if (size == 0 || !Granular(pointer) || !Granular(size) || !Granular(offset) || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Allocation* const allocation = virtual_memory().Find(handle);
  if (allocation == nullptr || offset > allocation->size || size > allocation->size - offset) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Only multicast objects can be mapped from an offset.
  if (allocation->team == nullptr && offset != 0) return CUDA_ERROR_INVALID_VALUE;
  if (allocation->team != nullptr) {
    const auto result = static_cast<CUresult>(virtual_memory().WaitForTeam(allocation));
    if (result != CUDA_SUCCESS) return result;
  }
  return virtual_memory().Map(pointer, size, allocation, offset) ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_INVALID_VALUE;
}

// Devices cannot access each other's memory, except through the multicast object of a team.
bool Reaches(int ordinal, const Allocation& allocation) {
  const Device* const device = FindDevice(ordinal);
  return allocation.team != nullptr ? allocation.team->Has(device) : allocation.device == device;
}

// The calls that take access away wait for the work that may use it, as the driver's do. Other threads take the turn meanwhile,
// so the caller has to look up the range again afterwards.
CUresult DrainDevicesOf(uint64_t address, uint64_t size) {
  uint64_t devices = 0;
  virtual_memory().ForEach(address, size, [&](const Mapping& mapping) {
    devices |= mapping.readable | mapping.writable;
  });
  if (devices == 0) return CUDA_SUCCESS;
  std::vector<uint64_t> contexts;
  for (const Context* context : state().contexts.All()) contexts.push_back(context->handle);
  for (const uint64_t handle : contexts) {
    Context* const context = state().contexts.Find(handle);
    if (context == nullptr || (devices >> context->device->ordinal & 1) == 0) continue;
    // A lost context has no work, so its error does not concern this call.
    WaitForContext(context, "the work before an unmapping");
  }
  return virtual_memory().IsWhole(address, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Unmap(CUdeviceptr pointer, size_t size) {
  if (!virtual_memory().IsWhole(pointer, size)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = DrainDevicesOf(pointer, size);
  if (result != CUDA_SUCCESS) return result;
  virtual_memory().Unmap(pointer, size);
  return CUDA_SUCCESS;
}

CUresult CheckAccess(const CUmemAccessDesc& access) {
  switch (access.flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  switch (access.location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return FindDevice(access.location.id) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
      return CUDA_ERROR_NOT_SUPPORTED;  // the host cannot touch device memory
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult SetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc* accesses,
                   size_t count) {
  if (accesses == nullptr || count == 0 || !virtual_memory().IsWhole(pointer, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Changes everything or nothing.
  bool takes_away = false;
  for (size_t i = 0; i < count; ++i) {
    CUresult result = CheckAccess(accesses[i]);
    virtual_memory().ForEach(pointer, size, [&](const Mapping& mapping) {
      if (result == CUDA_SUCCESS && accesses[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
          !Reaches(accesses[i].location.id, *mapping.allocation)) {
        result = CUDA_ERROR_NOT_SUPPORTED;
      }
    });
    if (result != CUDA_SUCCESS) return result;
    takes_away |= accesses[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  if (takes_away) {
    const CUresult result = DrainDevicesOf(pointer, size);
    if (result != CUDA_SUCCESS) return result;
  }
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bit = uint64_t{1} << accesses[i].location.id;
    virtual_memory().ForEach(pointer, size, [&](Mapping& mapping) {
      mapping.readable &= ~bit;
      mapping.writable &= ~bit;
      if (accesses[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) mapping.readable |= bit;
      if (accesses[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) mapping.writable |= bit;
    });
  }
  return CUDA_SUCCESS;
}

CUresult GetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr pointer) {
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = CheckAccess({*location, CU_MEM_ACCESS_FLAGS_PROT_NONE});
  if (result != CUDA_SUCCESS) return result;
  const Mapping* const mapping = virtual_memory().FindMapping(pointer);
  if (mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t bit = uint64_t{1} << location->id;
  *flags = (mapping->writable & bit) != 0   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : (mapping->readable & bit) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                            : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult Export(void* shareable, CUmemGenericAllocationHandle handle,
                CUmemAllocationHandleType type, unsigned long long flags) {
  if (shareable == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Allocation* const allocation = virtual_memory().Find(handle);
  if (allocation == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      (allocation->handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int descriptor = VirtualMemory::Export(allocation);
  if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(shareable) = descriptor;
  return CUDA_SUCCESS;
}

CUresult Import(CUmemGenericAllocationHandle* handle, void* shareable,
                CUmemAllocationHandleType type) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_MEM_HANDLE_TYPE_FABRIC) return CUDA_ERROR_NOT_SUPPORTED;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  const auto descriptor = reinterpret_cast<intptr_t>(shareable);
  if (descriptor < 0 || descriptor > INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  Allocation* allocation = nullptr;
  const int result = virtual_memory().Import(static_cast<int>(descriptor), &allocation);
  if (result == CUDA_SUCCESS) *handle = allocation->handle;
  return static_cast<CUresult>(result);
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuMemCreate)
(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* properties,
 unsigned long long flags) {
  SIM_ENTER(cuMemCreate, kCall);
  return Create(handle, size, properties, flags);
}

SIM_API(cuMemRelease)(CUmemGenericAllocationHandle handle) {
  SIM_ENTER(cuMemRelease, kCall);
  Allocation* const allocation = virtual_memory().Find(handle);
  if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  virtual_memory().Release(allocation);
  return CUDA_SUCCESS;
}

SIM_API(cuMemRetainAllocationHandle)(CUmemGenericAllocationHandle* handle, void* address) {
  SIM_ENTER(cuMemRetainAllocationHandle, kNone);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Mapping* const mapping = virtual_memory().FindMapping(reinterpret_cast<uint64_t>(address));
  if (mapping == nullptr || mapping->buffer) return CUDA_ERROR_INVALID_VALUE;
  ++mapping->allocation->references;
  *handle = mapping->allocation->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuMemGetAllocationGranularity)
(size_t* granularity, const CUmemAllocationProp* properties,
 CUmemAllocationGranularity_flags option) {
  SIM_ENTER(cuMemGetAllocationGranularity, kNone);
  if (granularity == nullptr || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                                 option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Device* device;
  const CUresult result = CheckProperties(properties, &device);
  if (result == CUDA_SUCCESS) *granularity = VirtualMemory::kGranularity;
  return result;
}

SIM_API(cuMemGetAllocationPropertiesFromHandle)
(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  SIM_ENTER(cuMemGetAllocationPropertiesFromHandle, kNone);
  return Properties(properties, handle);
}

SIM_API(cuMemExportToShareableHandle)
(void* shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
 unsigned long long flags) {
  SIM_ENTER(cuMemExportToShareableHandle, kCall);
  return Export(shareable, handle, type, flags);
}

SIM_API(cuMemImportFromShareableHandle)
(CUmemGenericAllocationHandle* handle, void* shareable, CUmemAllocationHandleType type) {
  SIM_ENTER(cuMemImportFromShareableHandle, kCall);
  return Import(handle, shareable, type);
}

SIM_API(cuMemAddressReserve)
(CUdeviceptr* pointer, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags) {
  SIM_ENTER(cuMemAddressReserve, kCall);
  return Reserve(pointer, size, alignment, hint, flags);
}

SIM_API(cuMemAddressFree)(CUdeviceptr pointer, size_t size) {
  SIM_ENTER(cuMemAddressFree, kCall);
  return virtual_memory().FreeReservation(pointer, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuMemMap)
(CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
 unsigned long long flags) {
  SIM_ENTER(cuMemMap, kCall);
  return Map(pointer, size, offset, handle, flags);
}

SIM_API(cuMemUnmap)(CUdeviceptr pointer, size_t size) {
  SIM_ENTER(cuMemUnmap, kCall);
  return Unmap(pointer, size);
}

SIM_API(cuMemSetAccess)
(CUdeviceptr pointer, size_t size, const CUmemAccessDesc* accesses, size_t count) {
  SIM_ENTER(cuMemSetAccess, kCall);
  return SetAccess(pointer, size, accesses, count);
}

SIM_API(cuMemGetAccess)
(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr pointer) {
  SIM_ENTER(cuMemGetAccess, kNone);
  return GetAccess(flags, location, pointer);
}
