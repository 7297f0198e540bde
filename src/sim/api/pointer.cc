// SPDX-License-Identifier: Apache-2.0
// Attributes of pointers.
#include <cstring>

#include "sim/api/api.h"
#include "sim/memory/address.h"

namespace gpushare::sim {
namespace {

// Newer than the oldest header that is supported.
constexpr int kIsHwDecompressCapable = 21;

// The allocation that contains an address: its beginning and its size.
struct Range {
  uint64_t address, size;
};

Range MappedRange(const Known& known) {
  if (known.block != nullptr) return {known.block->address, known.block->size};
  if (known.mapping != nullptr) return {known.mapping->address, known.mapping->size};
  if (known.host != nullptr) return {known.host->address, known.host->size};
  return {0, 0};
}

// The same, but for reserved addresses the whole reservation.
Range ReservedRange(const Known& known) {
  if (known.reservation == nullptr) return MappedRange(known);
  return {known.reservation->address(), known.reservation->size()};
}

CUresult AddressRange(CUdeviceptr* base, size_t* size, CUdeviceptr pointer) {
  const Known known = Lookup(pointer);
  if (known.block == nullptr && known.mapping == nullptr) return CUDA_ERROR_NOT_FOUND;
  const Range range = MappedRange(known);
  if (base != nullptr) *base = range.address;
  if (size != nullptr) *size = range.size;
  return CUDA_SUCCESS;
}

template <typename T>
CUresult Store(void* data, T value) {
  std::memcpy(data, &value, sizeof(value));
  return CUDA_SUCCESS;
}

// Unique in the process, although each device numbers its own buffers.
uint64_t BufferId(const Known& known) {
  if (known.host != nullptr) return known.host->address;
  const uint64_t id = known.block != nullptr ? known.block->id : known.mapping->allocation->id;
  return static_cast<uint64_t>(known.device->ordinal) << 48 | id;
}

// What the current context's device may do with the memory.
CUresult AccessFlags(const Known& known, void* data) {
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t bit = uint64_t{1} << context->device->ordinal;
  bool readable = true, writable = true;
  if (known.reservation != nullptr) {
    readable = known.mapping != nullptr && (known.mapping->readable & bit) != 0;
    writable = known.mapping != nullptr && (known.mapping->writable & bit) != 0;
  } else if (known.block != nullptr && known.managed == nullptr) {
    readable = writable = known.device == context->device;
  }
  return Store<unsigned>(data, writable   ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                               : readable ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ
                                          : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE);
}

CUresult PointerAttribute(void* data, CUpointer_attribute attribute, uint64_t pointer,
                          const Known& known) {
  const Context* const context = known.block != nullptr  ? known.block->context
                                 : known.host != nullptr ? known.host->context
                                                         : nullptr;
  // Addresses that are reserved and not mapped have only these attributes.
  if (known.reservation != nullptr && known.mapping == nullptr) {
    switch (attribute) {
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      case CU_POINTER_ATTRIBUTE_MAPPED:
      case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      // Memory of the virtual memory management has no context.
      return Store<void*>(data, context == nullptr ? nullptr : HandleOf(context));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Store<unsigned>(data,
                             known.host == nullptr ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return Store<CUdeviceptr>(data, pointer);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (known.host == nullptr && known.managed == nullptr) return CUDA_ERROR_INVALID_VALUE;
      return Store<uint64_t>(data, pointer);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Store<unsigned>(data, (known.block != nullptr && known.block->sync_memops) ||
                                       (known.mapping != nullptr && known.mapping->sync_memops));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Store<unsigned>(data, known.managed != nullptr);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Store<int>(data,
                        known.device != nullptr ? known.device->ordinal : context->device->ordinal);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Store<uint64_t>(data, BufferId(known));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return Store<CUdeviceptr>(data, ReservedRange(known).address);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return Store<size_t>(data, ReservedRange(known).size);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Store<CUdeviceptr>(data, MappedRange(known).address);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Store<size_t>(data, MappedRange(known).size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Store<bool>(data, known.reservation == nullptr || known.mapping != nullptr);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Store<uint64_t>(
          data, known.mapping == nullptr ? 0u : known.mapping->allocation->handle_types);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case kIsHwDecompressCapable:
      return Store<bool>(data, false);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return AccessFlags(known, data);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Store<uint64_t>(data, known.block == nullptr || known.block->pool == nullptr
                                       ? 0
                                       : known.block->pool->handle);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult SetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Known known = Lookup(pointer);
  if (known.block == nullptr && known.mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool on = *static_cast<const unsigned*>(value) != 0;
  bool& flag = known.block != nullptr ? known.block->sync_memops : known.mapping->sync_memops;
  const bool turned_on = on && !flag;
  flag = on;
  if (!turned_on || known.block == nullptr) return CUDA_SUCCESS;
  return WaitForContext(known.block->context, "cuPointerSetAttribute");
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuMemGetAddressRange_v2)(CUdeviceptr* base, size_t* size, CUdeviceptr pointer) {
  SIM_ENTER(cuMemGetAddressRange_v2, kNone);
  return AddressRange(base, size, pointer);
}

SIM_API(cuPointerSetAttribute)
(const void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  SIM_ENTER(cuPointerSetAttribute, kCall);
  return SetAttribute(value, attribute, pointer);
}

SIM_API(cuPointerGetAttribute)(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  SIM_ENTER(cuPointerGetAttribute, kNone);
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Known known = Lookup(pointer);
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  return PointerAttribute(data, attribute, pointer, known);
}

SIM_API(cuPointerGetAttributes)
(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr pointer) {
  SIM_ENTER(cuPointerGetAttributes, kNone);
  if (attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Known known = Lookup(pointer);
  for (unsigned i = 0; i < count; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (known) {
      result = PointerAttribute(data[i], attributes[i], pointer, known);
      if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE) return result;
    }
    if (result == CUDA_SUCCESS) continue;
    // This form stores a neutral value for an attribute that the address does not have, instead of failing. The values differ
    // in width.
    switch (static_cast<int>(attributes[i])) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        Store<unsigned>(data[i], 0);
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        Store<int>(data[i], -2);
        break;
      case CU_POINTER_ATTRIBUTE_MAPPED:
      case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      case kIsHwDecompressCapable:
        Store<bool>(data[i], false);
        break;
      default:
        Store<uint64_t>(data[i], 0);
        break;
    }
  }
  return CUDA_SUCCESS;
}
