// SPDX-License-Identifier: Apache-2.0
// Managed memory: allocation, advice and the attributes of ranges.
#include <cstring>

#include "sim/api/api.h"
#include "sim/graph/capture.h"
#include "sim/memory/place.h"

namespace gpushare::sim {
namespace {

CUresult Allocate(const ThreadContext& thread, CUdeviceptr* pointer, size_t bytes, unsigned flags) {
  if (pointer == nullptr || bytes == 0 ||
      (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context* context;
  CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  result = CheckUnsafe(thread);
  if (result != CUDA_SUCCESS) return result;
  State& s = state();
  if (s.faults.FailAllocation()) return CUDA_ERROR_OUT_OF_MEMORY;
  const ManagedRange* const range = s.managed.Allocate(context->device, bytes, context);
  if (range == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = range->block->address;
  return CUDA_SUCCESS;
}

CUresult Advise(CUdeviceptr pointer, size_t bytes, CUmem_advise advice,
                const CUmemLocation& location) {
  ManagedRange* const range = state().managed.Find(pointer, bytes);
  if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ManagedPlace place;
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      break;  // any place is allowed
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY: {
      const CUresult result = ReadPlace(location, &place);
      if (result != CUDA_SUCCESS) return result;
      if (advice != CU_MEM_ADVISE_SET_PREFERRED_LOCATION &&
          place.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      break;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  const bool set =
      advice == CU_MEM_ADVISE_SET_READ_MOSTLY || advice == CU_MEM_ADVISE_SET_ACCESSED_BY;
  const uint64_t offset = pointer - range->block->address;
  range->ForPages(offset, bytes, [&](ManagedPages& pages, uint64_t, uint64_t) {
    switch (advice) {
      case CU_MEM_ADVISE_SET_READ_MOSTLY:
      case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        pages.read_mostly = set;
        break;
      case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        pages.preferred = place;
        break;
      default:
        if (place.type == CU_MEM_LOCATION_TYPE_DEVICE) {
          const uint64_t bit = uint64_t{1} << place.id;
          pages.accessed_by = set ? pages.accessed_by | bit : pages.accessed_by & ~bit;
        } else {
          pages.accessed_by_host = set;
        }
        break;
    }
  });
  return CUDA_SUCCESS;
}

// The attributes that all pages of a range have in common.
ManagedPages Common(ManagedRange* range, uint64_t offset, uint64_t bytes) {
  ManagedPages common = range->At(offset);
  range->ForPages(offset, bytes, [&](const ManagedPages& pages, uint64_t, uint64_t) {
    common.read_mostly &= pages.read_mostly;
    common.accessed_by &= pages.accessed_by;
    common.accessed_by_host &= pages.accessed_by_host;
    if (common.preferred != pages.preferred) common.preferred = {};
    if (common.prefetched != pages.prefetched) common.prefetched = {};
  });
  return common;
}

int DeviceNumber(const ManagedPlace& place) {
  switch (place.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return place.id;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return CU_DEVICE_CPU;
    default:
      return CU_DEVICE_INVALID;
  }
}

CUresult RangeAttribute(void* data, size_t size, CUmem_range_attribute attribute,
                        CUdeviceptr pointer, size_t bytes) {
  ManagedRange* const range = state().managed.Find(pointer, bytes);
  if (data == nullptr || range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ManagedPages pages = Common(range, pointer - range->block->address, bytes);
  int value;
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      value = pages.read_mostly ? 1 : 0;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      value = DeviceNumber(pages.preferred);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      value = DeviceNumber(pages.prefetched);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      value = pages.preferred.type;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      value = pages.preferred.id;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      value = pages.prefetched.type;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      value = pages.prefetched.id;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
      if (size == 0 || size % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
      std::vector<int> list;
      if (pages.accessed_by_host) list.push_back(CU_DEVICE_CPU);
      for (int i = 0; i < 64; ++i) {
        if ((pages.accessed_by >> i & 1) != 0) list.push_back(i);
      }
      list.resize(size / sizeof(int), CU_DEVICE_INVALID);
      std::memcpy(data, list.data(), size);
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (size != sizeof(value)) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(data, &value, sizeof(value));
  return CUDA_SUCCESS;
}

CUresult Attach(CUstream stream_handle, CUdeviceptr pointer, size_t bytes, unsigned flags,
                NullStream null) {
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
      flags != CU_MEM_ATTACH_SINGLE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Stream* stream;
  CUresult result = FindStream(stream_handle, null, &stream);
  if (result != CUDA_SUCCESS) return result;
  const ManagedRange* const range = state().managed.Find(pointer);
  if (range == nullptr || range->block->address != pointer ||
      (bytes != 0 && bytes != range->block->size) ||
      (flags == CU_MEM_ATTACH_SINGLE && stream->legacy)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  result = CheckSubmitUncaptured(stream);
  if (result != CUDA_SUCCESS) return result;
  result = WaitForSpace(&stream);
  if (result != CUDA_SUCCESS) return result;
  // With concurrent access the attachment restricts nothing: only its place in the stream remains.
  Submit(stream, NewCommand(stream, CommandType::kEmpty));
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

// Not every header declares them under these names.
extern "C" CUresult CUDAAPI cuMemAdvise_v2(CUdeviceptr, size_t, CUmem_advise, CUmemLocation);

SIM_API(cuMemAllocManaged)(CUdeviceptr* pointer, size_t bytes, unsigned flags) {
  SIM_ENTER(cuMemAllocManaged, kCall);
  return Allocate(scope.thread(), pointer, bytes, flags);
}

SIM_STREAM_API(cuStreamAttachMemAsync, _ptsz, kCall,
               (CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned flags),
               Attach(stream, pointer, bytes, flags, null));

SIM_API(cuMemAdvise)(CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUdevice device) {
  SIM_ENTER(cuMemAdvise, kCall);
  return Advise(pointer, bytes, advice, LocationOf(device));
}
SIM_API(cuMemAdvise_v2)
(CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUmemLocation location) {
  SIM_ENTER(cuMemAdvise_v2, kCall);
  return Advise(pointer, bytes, advice, location);
}

SIM_API(cuMemRangeGetAttribute)
(void* data, size_t size, CUmem_range_attribute attribute, CUdeviceptr pointer, size_t bytes) {
  SIM_ENTER(cuMemRangeGetAttribute, kNone);
  return RangeAttribute(data, size, attribute, pointer, bytes);
}

SIM_API(cuMemRangeGetAttributes)
(void** data, size_t* sizes, CUmem_range_attribute* attributes, size_t count, CUdeviceptr pointer,
 size_t bytes) {
  SIM_ENTER(cuMemRangeGetAttributes, kNone);
  if (data == nullptr || sizes == nullptr || attributes == nullptr || count == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    const CUresult result = RangeAttribute(data[i], sizes[i], attributes[i], pointer, bytes);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}
