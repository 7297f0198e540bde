// SPDX-License-Identifier: Apache-2.0
// Allocations: device memory and page-locked host memory.
#include "sim/graph/memory.h"

#include "sim/api/api.h"
#include "sim/graph/capture.h"
#include "sim/stream/transfer.h"

namespace gpushare::sim {
namespace {

CUresult Allocate(const ThreadContext& thread, CUdeviceptr* pointer, size_t bytes) {
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context;
  CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  result = CheckUnsafe(thread);
  if (result != CUDA_SUCCESS) return result;
  if (state().faults.FailAllocation()) return CUDA_ERROR_OUT_OF_MEMORY;
  DeviceMemory& memory = context->device->memory;
  const Block* block = memory.Allocate(bytes, context);
  if (block == nullptr) {
    TrimPools(context->device);
    block = memory.Allocate(bytes, context);
  }
  if (block == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = block->address;
  return CUDA_SUCCESS;
}

// Freeing waits for the present work of the context, as the driver does.
CUresult Drain(Context* context) { return WaitForContext(context, "the work before a free"); }

CUresult Free(const ThreadContext& thread, CUdeviceptr pointer) {
  Context* context;
  CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  result = CheckUnsafe(thread);
  if (result != CUDA_SUCCESS) return result;
  Device* device = nullptr;
  const Block* block = nullptr;
  for (const auto& one : state().devices) {
    block = one->memory.FindStart(pointer);
    device = one.get();
    if (block != nullptr) break;
  }
  if (block == nullptr) {
    // Memory of a pool or a graph: freed without waiting, as the caller promises that nobody uses it any more.
    Block* const ordered = FindBlock(pointer, &device);
    if (ordered != nullptr && ordered->pool != nullptr && ordered->address == pointer) {
      ordered->pool->FreeNow(ordered);
      return CUDA_SUCCESS;
    }
    if (ordered != nullptr && ordered->graph != nullptr && ordered->address == pointer) {
      return FreeGraphMemory(ordered->graph, nullptr);
    }
  }
  if (const Mapping* const mapping = state().virtual_memory.FindMapping(pointer);
      mapping != nullptr && mapping->buffer && mapping->address == pointer) {
    result = Drain(context);
    if (result != CUDA_SUCCESS) return result;
    return state().virtual_memory.FreeBuffer(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  ManagedMemory& managed = state().managed;
  if (const ManagedRange* const range = managed.Find(pointer)) block = range->block;
  if (block == nullptr || block->address != pointer) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  result = Drain(block->context);
  if (result != CUDA_SUCCESS) return result;
  // Another thread may have freed it while we waited.
  if (managed.InRange(pointer)) {
    return managed.Free(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  return device->memory.Free(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult AllocatePitch(const ThreadContext& thread, CUdeviceptr* pointer, size_t* pitch,
                       size_t width, size_t height, unsigned element) {
  if (pitch == nullptr || width == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (element != 4 && element != 8 && element != 16) return CUDA_ERROR_INVALID_VALUE;
  const size_t rounded = (width + DeviceMemory::kAlignment - 1) & ~(DeviceMemory::kAlignment - 1);
  size_t bytes;
  if (rounded < width || __builtin_mul_overflow(rounded, height, &bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = Allocate(thread, pointer, bytes);
  if (result == CUDA_SUCCESS) *pitch = rounded;
  return result;
}

CUresult HostAllocate(const ThreadContext& thread, void** pointer, size_t bytes, unsigned flags) {
  if (pointer == nullptr || bytes == 0 || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  Context* context;
  CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  result = CheckUnsafe(thread);
  if (result != CUDA_SUCCESS) return result;
  *pointer = state().host.Allocate(bytes, flags, context);
  return *pointer == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuMemGetInfo_v2)(size_t* free, size_t* total) {
  SIM_ENTER(cuMemGetInfo_v2, kCall);
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  state().virtual_memory.Collect();
  const DeviceMemory& memory = context->device->memory;
  if (free != nullptr) *free = memory.left();
  if (total != nullptr) *total = memory.capacity();
  return CUDA_SUCCESS;
}

SIM_API(cuMemAlloc_v2)(CUdeviceptr* pointer, size_t bytes) {
  SIM_ENTER(cuMemAlloc_v2, kCall);
  return Allocate(scope.thread(), pointer, bytes);
}

SIM_API(cuMemAllocPitch_v2)
(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height, unsigned element) {
  SIM_ENTER(cuMemAllocPitch_v2, kCall);
  return AllocatePitch(scope.thread(), pointer, pitch, width, height, element);
}

SIM_API(cuMemFree_v2)(CUdeviceptr pointer) {
  SIM_ENTER(cuMemFree_v2, kCall);
  return Free(scope.thread(), pointer);
}

SIM_API(cuMemAllocHost_v2)(void** pointer, size_t bytes) {
  SIM_ENTER(cuMemAllocHost_v2, kCall);
  return HostAllocate(scope.thread(), pointer, bytes, 0);
}

SIM_API(cuMemHostAlloc)(void** pointer, size_t bytes, unsigned flags) {
  SIM_ENTER(cuMemHostAlloc, kCall);
  return HostAllocate(scope.thread(), pointer, bytes, flags);
}

SIM_API(cuMemFreeHost)(void* pointer) {
  SIM_ENTER(cuMemFreeHost, kCall);
  Context* context;
  CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  result = CheckUnsafe(scope.thread());
  if (result != CUDA_SUCCESS) return result;
  const HostRange* const range = state().host.Find(reinterpret_cast<uint64_t>(pointer));
  if (range == nullptr || !range->owned) return CUDA_ERROR_INVALID_VALUE;
  result = Drain(range->context);  // of copies from and to it
  if (result != CUDA_SUCCESS) return result;
  return state().host.Free(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuMemHostRegister_v2)(void* pointer, size_t bytes, unsigned flags) {
  SIM_ENTER(cuMemHostRegister_v2, kCall);
  if (pointer == nullptr || bytes == 0 || flags > 15) return CUDA_ERROR_INVALID_VALUE;
  Context* context;
  CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  result = CheckUnsafe(scope.thread());
  if (result != CUDA_SUCCESS) return result;
  return state().host.Register(pointer, bytes, flags, context)
             ? CUDA_SUCCESS
             : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

SIM_API(cuMemHostUnregister)(void* pointer) {
  SIM_ENTER(cuMemHostUnregister, kCall);
  Context* context;
  CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  const HostRange* const range = state().host.Find(reinterpret_cast<uint64_t>(pointer));
  if (range == nullptr || range->owned) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  result = Drain(range->context);
  if (result != CUDA_SUCCESS) return result;
  return state().host.Unregister(pointer) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

SIM_API(cuMemHostGetDevicePointer_v2)(CUdeviceptr* device, void* pointer, unsigned flags) {
  SIM_ENTER(cuMemHostGetDevicePointer_v2, kNone);
  if (device == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto address = reinterpret_cast<uint64_t>(pointer);
  if (state().host.Find(address) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = address;
  return CUDA_SUCCESS;
}

SIM_API(cuMemHostGetFlags)(unsigned* flags, void* pointer) {
  SIM_ENTER(cuMemHostGetFlags, kNone);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const HostRange* const range = state().host.Find(reinterpret_cast<uint64_t>(pointer));
  if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = range->flags;
  return CUDA_SUCCESS;
}
