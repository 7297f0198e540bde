// SPDX-License-Identifier: Apache-2.0
// Prefetches of managed memory, and discards of memory with bytes that are not needed any more. There are single prefetches and
// batches of either. Each operation of a batch is one command of the stream: the API allows this order among others.
#include <vector>

#include "sim/api/api.h"
#include "sim/graph/capture.h"
#include "sim/memory/place.h"

namespace gpushare::sim {
namespace {

enum class Verb : uint8_t { kPrefetch, kDiscard, kDiscardAndPrefetch };

struct ManagedOperation {
  CUdeviceptr pointer;
  size_t bytes;
  ManagedPlace place;  // for a prefetch
};

CUresult Put(const ManagedOperation& operation, Verb verb, Stream** stream) {
  CUresult result = CUDA_SUCCESS;
  if (!HasSpace(*stream)) result = WaitForSpace(stream);
  if (result != CUDA_SUCCESS) return result;
  // Looked up again: other threads may have had the turn.
  ManagedRange* const range = state().managed.Find(operation.pointer, operation.bytes);
  if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t offset = operation.pointer - range->block->address;
  if (verb != Verb::kPrefetch) {
    range->ForPages(offset, operation.bytes,
                    [](ManagedPages& pages, uint64_t, uint64_t) { pages.discarded = true; });
  }
  if (verb == Verb::kDiscard) {
    Submit(*stream, NewCommand(*stream, CommandType::kEmpty));
    return CUDA_SUCCESS;
  }
  const ManagedPlace& place = operation.place;
  const bool to_device = place.type == CU_MEM_LOCATION_TYPE_DEVICE;
  Device* const device = to_device ? FindDevice(place.id) : nullptr;
  Command* const command = NewCommand(*stream, CommandType::kPrefetch);
  command->prefetch = {
      .direction = to_device ? CopyDirection::kHostToDevice : CopyDirection::kDeviceToHost,
      .device = to_device ? place.id : -1,
      .address = operation.pointer,
      .bytes = operation.bytes,
      .missing = ManagedMemory::Missing(range, offset, operation.bytes, device)};
  range->ForPages(offset, operation.bytes, [&](ManagedPages& pages, uint64_t, uint64_t) {
    pages.prefetched = place;
    pages.discarded = false;
  });
  Submit(*stream, command);
  return CUDA_SUCCESS;
}

// Submits all operations or, if one is invalid, none.
CUresult PutAll(const std::vector<ManagedOperation>& operations, Verb verb, CUstream handle,
                NullStream null) {
  Stream* stream;
  CUresult result = FindStream(handle, null, &stream);
  if (result != CUDA_SUCCESS) return result;
  result = CheckSubmitUncaptured(stream);
  if (result != CUDA_SUCCESS) return result;
  for (const ManagedOperation& operation : operations) {
    if (state().managed.Find(operation.pointer, operation.bytes) == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  for (const ManagedOperation& operation : operations) {
    result = Put(operation, verb, &stream);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult Prefetch(CUdeviceptr pointer, size_t bytes, const CUmemLocation& location, unsigned flags,
                  CUstream stream, NullStream null) {
  ManagedOperation operation{pointer, bytes, {}};
  const CUresult result = ReadPlace(location, &operation.place);
  if (result != CUDA_SUCCESS) return result;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return PutAll({operation}, Verb::kPrefetch, stream, null);
}

CUresult Batch(Verb verb, const CUdeviceptr* pointers, const size_t* sizes, size_t count,
               const CUmemLocation* locations, const size_t* begins, size_t places,
               unsigned long long flags, CUstream stream, NullStream null) {
  const bool legacy =
      stream == CU_STREAM_LEGACY || (stream == nullptr && null == NullStream::kLegacy);
  if (pointers == nullptr || sizes == nullptr || count == 0 || flags != 0 || legacy) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<ManagedOperation> operations(count);
  for (size_t i = 0; i < count; ++i) operations[i] = {pointers[i], sizes[i], {}};
  if (verb == Verb::kDiscard) return PutAll(operations, verb, stream, null);
  if (locations == nullptr || begins == nullptr || places == 0 || places > count ||
      begins[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t k = 0; k < places; ++k) {
    const size_t end = k + 1 < places ? begins[k + 1] : count;
    if (begins[k] >= end || end > count) return CUDA_ERROR_INVALID_VALUE;
    ManagedPlace place;
    const CUresult result = ReadPlace(locations[k], &place);
    if (result != CUDA_SUCCESS) return result;
    for (size_t i = begins[k]; i < end; ++i) operations[i].place = place;
  }
  return PutAll(operations, verb, stream, null);
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

// Not every header declares them under these names.
#define DECLARE_PREFETCHES(suffix)                                                                 \
  extern "C" {                                                                                     \
  CUresult CUDAAPI cuMemPrefetchAsync_v2##suffix(CUdeviceptr, size_t, CUmemLocation, unsigned,     \
                                                 CUstream);                                        \
  CUresult CUDAAPI cuMemPrefetchBatchAsync##suffix(CUdeviceptr*, size_t*, size_t, CUmemLocation*,  \
                                                   size_t*, size_t, unsigned long long, CUstream); \
  CUresult CUDAAPI cuMemDiscardBatchAsync##suffix(CUdeviceptr*, size_t*, size_t,                   \
                                                  unsigned long long, CUstream);                   \
  CUresult CUDAAPI cuMemDiscardAndPrefetchBatchAsync##suffix(CUdeviceptr*, size_t*, size_t,        \
                                                             CUmemLocation*, size_t*, size_t,      \
                                                             unsigned long long, CUstream);        \
  }                                                                                                \
  static_assert(true)
DECLARE_PREFETCHES();
DECLARE_PREFETCHES(_ptsz);

SIM_STREAM_API(cuMemPrefetchAsync, _ptsz, kCall,
               (CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream),
               Prefetch(pointer, bytes, LocationOf(device), 0, stream, null));
SIM_STREAM_API(cuMemPrefetchAsync_v2, _ptsz, kCall,
               (CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned flags,
                CUstream stream),
               Prefetch(pointer, bytes, location, flags, stream, null));
SIM_STREAM_API(cuMemPrefetchBatchAsync, _ptsz, kCall,
               (CUdeviceptr * pointers, size_t* sizes, size_t count, CUmemLocation* locations,
                size_t* begins, size_t places, unsigned long long flags, CUstream stream),
               Batch(Verb::kPrefetch, pointers, sizes, count, locations, begins, places, flags,
                     stream, null));
SIM_STREAM_API(cuMemDiscardBatchAsync, _ptsz, kCall,
               (CUdeviceptr * pointers, size_t* sizes, size_t count, unsigned long long flags,
                CUstream stream),
               Batch(Verb::kDiscard, pointers, sizes, count, nullptr, nullptr, 0, flags, stream,
                     null));
SIM_STREAM_API(cuMemDiscardAndPrefetchBatchAsync, _ptsz, kCall,
               (CUdeviceptr * pointers, size_t* sizes, size_t count, CUmemLocation* locations,
                size_t* begins, size_t places, unsigned long long flags, CUstream stream),
               Batch(Verb::kDiscardAndPrefetch, pointers, sizes, count, locations, begins, places,
                     flags, stream, null));
