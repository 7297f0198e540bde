// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory: allocations and frees, pools and their attributes.
#include <cstddef>
#include <cstring>
#include <vector>

#include "sim/api/api.h"
#include "sim/graph/capture.h"
#include "sim/graph/memory.h"
#include "sim/stream/transfer.h"

namespace gpushare::sim {
namespace {

MemoryPool* FindPool(CUmemoryPool handle) { return state().memory_pools.Find(handle); }
CUmemoryPool HandleOf(const MemoryPool* pool) {
  return reinterpret_cast<CUmemoryPool>(pool->handle);
}

CUresult AllocateFrom(MemoryPool* pool, CUdeviceptr* pointer, size_t bytes, Stream* stream) {
  State& s = state();
  if (s.faults.FailAllocation()) return CUDA_ERROR_OUT_OF_MEMORY;
  // During a capture, the graph owns the memory, not the pool.
  if (stream->capture != nullptr) return CaptureAllocation(stream, pool->device, bytes, pointer);
  std::vector<Command*> waits;
  const Block* const block = pool->Allocate(bytes, stream, &waits);
  if (block == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = block->address;
  if (waits.empty()) return CUDA_SUCCESS;
  // The allocation needs a place in the stream only if it has to wait for frees.
  Command* const command = NewCommand(stream, CommandType::kEmpty);
  command->earliest = 0;
  for (Command* free : waits) s.pool.AddEdge(free, command);
  Submit(stream, command);
  return CUDA_SUCCESS;
}

CUresult Allocate(CUdeviceptr* pointer, size_t bytes, CUstream handle, NullStream null) {
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  CUresult result = FindStream(handle, null, &stream);
  if (result == CUDA_SUCCESS) result = CheckSubmit(stream);
  if (result != CUDA_SUCCESS) return result;
  return AllocateFrom(CurrentPool(stream->device), pointer, bytes, stream);
}

CUresult AllocateFromPool(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool_handle,
                          CUstream handle, NullStream null) {
  MemoryPool* const pool = FindPool(pool_handle);
  if (pointer == nullptr || bytes == 0 || pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  CUresult result = FindStream(handle, null, &stream);
  if (result == CUDA_SUCCESS) result = CheckSubmit(stream);
  if (result != CUDA_SUCCESS) return result;
  return AllocateFrom(pool, pointer, bytes, stream);
}

CUresult Free(CUdeviceptr pointer, CUstream handle, NullStream null) {
  Stream* stream;
  CUresult result = FindStream(handle, null, &stream);
  if (result == CUDA_SUCCESS) result = CheckSubmit(stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture != nullptr) return CaptureFree(stream, pointer);
  result = WaitForSpace(&stream);
  if (result != CUDA_SUCCESS) return result;
  Device* device;
  Block* const block = FindBlock(pointer, &device);
  if (block == nullptr || block->address != pointer || block->freeing || block->hidden) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (block->pool != nullptr) {
    block->pool->FreeInOrder(block, stream);
    return CUDA_SUCCESS;
  }
  if (block->graph != nullptr) return FreeGraphMemory(block->graph, stream);
  // Memory from cuMemAlloc can be freed in stream order too.
  block->freeing = true;
  Command* const command = NewCommand(stream, CommandType::kMemory);
  command->earliest = 0;
  command->memory = {MemoryWork::Kind::kFree, device, block->address, block->id};
  Submit(stream, command);
  return CUDA_SUCCESS;
}

// The part of CUmemPoolProps after `win32SecurityAttributes`, which older headers declare as reserved.
struct Tail {
  uint64_t max_size;
  uint8_t zero[56];
};
static_assert(sizeof(CUmemPoolProps) ==
              offsetof(CUmemPoolProps, win32SecurityAttributes) + sizeof(void*) + sizeof(Tail));

CUresult Create(CUmemoryPool* handle, const CUmemPoolProps* properties) {
  if (handle == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Tail tail;
  std::memcpy(&tail,
              reinterpret_cast<const char*>(properties) +
                  offsetof(CUmemPoolProps, win32SecurityAttributes) + sizeof(void*),
              sizeof(tail));
  if (properties->win32SecurityAttributes != nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const uint8_t byte : tail.zero) {
    if (byte != 0) return CUDA_ERROR_INVALID_VALUE;
  }
  constexpr int kManaged = 2;  // newer than the oldest header that is supported
  if (static_cast<int>(properties->allocType) == kManaged) return CUDA_ERROR_NOT_SUPPORTED;
  if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  constexpr int kHost = 2, kHostNuma = 3;
  const int where = static_cast<int>(properties->location.type);
  if (where == kHost || where == kHostNuma) return CUDA_ERROR_NOT_SUPPORTED;
  Device* const device = FindDevice(properties->location.id);
  if (where != CU_MEM_LOCATION_TYPE_DEVICE || device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Pools that can be shared with other processes are not modelled.
  if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  *handle = HandleOf(NewPool(device, tail.max_size));
  return CUDA_SUCCESS;
}

CUresult Destroy(CUmemoryPool handle) {
  MemoryPool* const pool = FindPool(handle);
  if (pool == nullptr || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  DestroyPool(pool);
  return CUDA_SUCCESS;
}

bool* ReuseFlag(MemoryPool* pool, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      return &pool->follow_events;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      return &pool->opportunistic;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return &pool->internal_dependencies;
    default:
      return nullptr;
  }
}

uint64_t* Number(MemoryPool* pool, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return &pool->release_threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return &pool->reserved.now;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return &pool->reserved.high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return &pool->used.now;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return &pool->used.high;
    default:
      return nullptr;
  }
}

CUresult GetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  MemoryPool* const pool = FindPool(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const bool* const flag = ReuseFlag(pool, attribute); flag != nullptr) {
    *static_cast<int*>(value) = *flag ? 1 : 0;
    return CUDA_SUCCESS;
  }
  const uint64_t* const number = Number(pool, attribute);
  if (number == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(value, number, sizeof(*number));
  return CUDA_SUCCESS;
}

CUresult SetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, const void* value) {
  MemoryPool* const pool = FindPool(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (bool* const flag = ReuseFlag(pool, attribute); flag != nullptr) {
    *flag = *static_cast<const int*>(value) != 0;
    return CUDA_SUCCESS;
  }
  uint64_t number;
  std::memcpy(&number, value, sizeof(number));
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool->release_threshold = number;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: {
      if (number != 0) return CUDA_ERROR_INVALID_VALUE;
      MemoryPool::Bytes& bytes =
          attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? pool->used : pool->reserved;
      bytes.high = bytes.now;  // the mark restarts from the present use
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult SetAccess(CUmemoryPool handle, const CUmemAccessDesc* map, size_t count) {
  MemoryPool* const pool = FindPool(handle);
  if (pool == nullptr || (count > 0 && map == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t peers = pool->peers;
  for (size_t i = 0; i < count; ++i) {
    const Device* const device = FindDevice(map[i].location.id);
    if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || device == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const bool wanted = map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (!wanted && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_INVALID_VALUE;
    if (device == pool->device) {
      if (!wanted) return CUDA_ERROR_INVALID_VALUE;  // a pool's own device always has access
      continue;
    }
    const uint64_t bit = uint64_t{1} << device->ordinal;
    peers = wanted ? peers | bit : peers & ~bit;
  }
  pool->peers = peers;
  return CUDA_SUCCESS;
}

CUresult GetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, const CUmemLocation* location) {
  const MemoryPool* const pool = FindPool(handle);
  if (flags == nullptr || pool == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* const device = FindDevice(location->id);
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || device == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool may = device == pool->device || (pool->peers >> device->ordinal & 1) != 0;
  *flags = may ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult SetCurrent(CUdevice dev, CUmemoryPool handle) {
  Device* const device = FindDevice(dev);
  MemoryPool* const pool = FindPool(handle);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (pool == nullptr || pool->device != device) return CUDA_ERROR_INVALID_VALUE;
  device->current_pool = pool;
  return CUDA_SUCCESS;
}

CUresult Give(CUmemoryPool* handle, CUdevice dev, MemoryPool* (*which)(Device*)) {
  Device* const device = FindDevice(dev);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *handle = HandleOf(which(device));
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_STREAM_API(cuMemAllocAsync, _ptsz, kCall,
               (CUdeviceptr * pointer, size_t bytes, CUstream stream),
               Allocate(pointer, bytes, stream, null));
SIM_STREAM_API(cuMemAllocFromPoolAsync, _ptsz, kCall,
               (CUdeviceptr * pointer, size_t bytes, CUmemoryPool pool, CUstream stream),
               AllocateFromPool(pointer, bytes, pool, stream, null));
SIM_STREAM_API(cuMemFreeAsync, _ptsz, kCall, (CUdeviceptr pointer, CUstream stream),
               Free(pointer, stream, null));

SIM_API(cuMemPoolCreate)(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  SIM_ENTER(cuMemPoolCreate, kCall);
  return Create(pool, properties);
}

SIM_API(cuMemPoolDestroy)(CUmemoryPool pool) {
  SIM_ENTER(cuMemPoolDestroy, kCall);
  return Destroy(pool);
}

SIM_API(cuMemPoolTrimTo)(CUmemoryPool handle, size_t keep) {
  SIM_ENTER(cuMemPoolTrimTo, kCall);
  MemoryPool* const pool = FindPool(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  pool->Trim(keep);
  return CUDA_SUCCESS;
}

SIM_API(cuMemPoolGetAttribute)(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  SIM_ENTER(cuMemPoolGetAttribute, kNone);
  return GetAttribute(pool, attribute, value);
}

SIM_API(cuMemPoolSetAttribute)(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  SIM_ENTER(cuMemPoolSetAttribute, kNone);
  return SetAttribute(pool, attribute, value);
}

SIM_API(cuMemPoolSetAccess)(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  SIM_ENTER(cuMemPoolSetAccess, kCall);
  return SetAccess(pool, map, count);
}

SIM_API(cuMemPoolGetAccess)(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location) {
  SIM_ENTER(cuMemPoolGetAccess, kNone);
  return GetAccess(flags, pool, location);
}

SIM_API(cuDeviceGetDefaultMemPool)(CUmemoryPool* pool, CUdevice device) {
  SIM_ENTER(cuDeviceGetDefaultMemPool, kNone);
  return Give(pool, device, &DefaultPool);
}

SIM_API(cuDeviceGetMemPool)(CUmemoryPool* pool, CUdevice device) {
  SIM_ENTER(cuDeviceGetMemPool, kNone);
  return Give(pool, device, &CurrentPool);
}

SIM_API(cuDeviceSetMemPool)(CUdevice device, CUmemoryPool pool) {
  SIM_ENTER(cuDeviceSetMemPool, kNone);
  return SetCurrent(device, pool);
}
