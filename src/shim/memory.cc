// SPDX-License-Identifier: Apache-2.0
// The driver's memory calls of every family, charged to the process's share (src/books).
#include "shim/hook.h"
#include "shim/process.h"

namespace gpushare::shim {
namespace {

using books::Books;
using books::Payer;
using driver::Table;

// Calls without a payer: frees and what keeps count of references.
template <typename Call>
CUresult Booked(const Call& call) noexcept {
  return Guarded([&] { return call(Process::Get().books()); });
}

// ---- direct ----

CUresult MemAlloc(CUdeviceptr* pointer, size_t bytes) {
  return Charge([&](Books& b, const Payer& p) { return b.MemAlloc(p, pointer, bytes); },
                [&](const Table& d) { return d.MemAlloc(pointer, bytes); });
}
CUresult MemAllocPitch(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height,
                       unsigned element) {
  return Charge(
      [&](Books& b, const Payer& p) {
        return b.MemAllocPitch(p, pointer, pitch, width, height, element);
      },
      [&](const Table& d) { return d.MemAllocPitch(pointer, pitch, width, height, element); });
}
CUresult MemAllocManaged(CUdeviceptr* pointer, size_t bytes, unsigned flags) {
  return Charge(
      [&](Books& b, const Payer& p) { return b.MemAllocManaged(p, pointer, bytes, flags); },
      [&](const Table& d) { return d.MemAllocManaged(pointer, bytes, flags); });
}
CUresult MemFree(CUdeviceptr pointer) {
  return Booked([&](Books& b) { return b.MemFree(pointer); });
}

// ---- arrays ----

CUresult ArrayCreate(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
  return Charge([&](Books& b, const Payer& p) { return b.ArrayCreate(p, array, descriptor); },
                [&](const Table& d) { return d.ArrayCreate(array, descriptor); });
}
CUresult Array3DCreate(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  return Charge([&](Books& b, const Payer& p) { return b.Array3DCreate(p, array, descriptor); },
                [&](const Table& d) { return d.Array3DCreate(array, descriptor); });
}
CUresult ArrayDestroy(CUarray array) {
  return Booked([&](Books& b) { return b.ArrayDestroy(array); });
}
CUresult MipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                              unsigned levels) {
  return Charge(
      [&](Books& b, const Payer& p) {
        return b.MipmappedArrayCreate(p, array, descriptor, levels);
      },
      [&](const Table& d) { return d.MipmappedArrayCreate(array, descriptor, levels); });
}
CUresult MipmappedArrayDestroy(CUmipmappedArray array) {
  return Booked([&](Books& b) { return b.MipmappedArrayDestroy(array); });
}

// ---- virtual memory management, multicast ----

CUresult MemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                   const CUmemAllocationProp* properties, unsigned long long flags) {
  return Charge(
      [&](Books& b, const Payer& p) { return b.MemCreate(p, handle, bytes, properties, flags); },
      [&](const Table& d) { return d.MemCreate(handle, bytes, properties, flags); });
}
CUresult MemRelease(CUmemGenericAllocationHandle handle) {
  return Booked([&](Books& b) { return b.MemRelease(handle); });
}
CUresult MemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return Booked([&](Books& b) { return b.MemRetainAllocationHandle(handle, address); });
}
CUresult MemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                      CUmemAllocationHandleType type) {
  return Booked([&](Books& b) { return b.MemImportFromShareableHandle(handle, shareable, type); });
}
CUresult MemMap(CUdeviceptr address, size_t bytes, size_t offset,
                CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return Booked([&](Books& b) { return b.MemMap(address, bytes, offset, handle, flags); });
}
CUresult MemUnmap(CUdeviceptr address, size_t bytes) {
  return Booked([&](Books& b) { return b.MemUnmap(address, bytes); });
}
CUresult MulticastCreate(CUmemGenericAllocationHandle* handle,
                         const CUmulticastObjectProp* properties) {
  return Booked([&](Books& b) { return b.MulticastCreate(handle, properties); });
}
CUresult MulticastBindMem(CUmemGenericAllocationHandle multicast, size_t offset,
                          CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                          unsigned long long flags) {
  return Booked([&](Books& b) {
    return b.MulticastBindMem(multicast, offset, memory, memory_offset, bytes, flags);
  });
}
CUresult MulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t offset,
                           CUdeviceptr address, size_t bytes, unsigned long long flags) {
  return Booked(
      [&](Books& b) { return b.MulticastBindAddr(multicast, offset, address, bytes, flags); });
}
CUresult MulticastUnbind(CUmemGenericAllocationHandle multicast, CUdevice device, size_t offset,
                         size_t bytes) {
  return Booked([&](Books& b) { return b.MulticastUnbind(multicast, device, offset, bytes); });
}

// ---- external memory ----

CUresult ImportExternalMemory(CUexternalMemory* handle,
                              const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* descriptor) {
  return Charge(
      [&](Books& b, const Payer& p) { return b.ImportExternalMemory(p, handle, descriptor); },
      [&](const Table& d) { return d.ImportExternalMemory(handle, descriptor); });
}
CUresult ExternalMemoryGetMappedBuffer(CUdeviceptr* pointer, CUexternalMemory handle,
                                       const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* buffer) {
  return Booked([&](Books& b) { return b.ExternalMemoryGetMappedBuffer(pointer, handle, buffer); });
}
CUresult DestroyExternalMemory(CUexternalMemory handle) {
  return Booked([&](Books& b) { return b.DestroyExternalMemory(handle); });
}

// ---- stream-ordered ----

// The _ptsz variants mean the per-thread stream by a null one.
CUstream PerThread(CUstream stream) { return stream == nullptr ? CU_STREAM_PER_THREAD : stream; }

CUresult MemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return Charge(
      [&](Books& b, const Payer& p) { return b.MemAllocAsync(p, pointer, bytes, stream); },
      [&](const Table& d) { return d.MemAllocAsync(pointer, bytes, stream); });
}
CUresult MemAllocAsyncPerThread(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return MemAllocAsync(pointer, bytes, PerThread(stream));
}
CUresult MemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool,
                               CUstream stream) {
  return Charge(
      [&](Books& b, const Payer& p) {
        return b.MemAllocFromPoolAsync(p, pointer, bytes, pool, stream);
      },
      [&](const Table& d) { return d.MemAllocFromPoolAsync(pointer, bytes, pool, stream); });
}
CUresult MemAllocFromPoolAsyncPerThread(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool,
                                        CUstream stream) {
  return MemAllocFromPoolAsync(pointer, bytes, pool, PerThread(stream));
}
CUresult MemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return Booked([&](Books& b) { return b.MemFreeAsync(pointer, stream); });
}
CUresult MemFreeAsyncPerThread(CUdeviceptr pointer, CUstream stream) {
  return MemFreeAsync(pointer, PerThread(stream));
}
CUresult MemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  return Booked([&](Books& b) { return b.MemPoolTrimTo(pool, keep); });
}
CUresult MemPoolDestroy(CUmemoryPool pool) {
  return Booked([&](Books& b) { return b.MemPoolDestroy(pool); });
}

// ---- graph memory ----

CUresult GraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return Booked([&](Books& b) { return b.GraphInstantiateWithFlags(exec, graph, flags); });
}
CUresult GraphExecDestroy(CUgraphExec exec) {
  return Booked([&](Books& b) { return b.GraphExecDestroy(exec); });
}
CUresult GraphLaunch(CUgraphExec exec, CUstream stream) {
  return Charge([&](Books& b, const Payer& p) { return b.GraphLaunch(p, exec, stream); },
                [&](const Table& d) { return d.GraphLaunch(exec, stream); });
}
CUresult GraphLaunchPerThread(CUgraphExec exec, CUstream stream) {
  return GraphLaunch(exec, PerThread(stream));
}
CUresult GraphUpload(CUgraphExec exec, CUstream stream) {
  return Charge([&](Books& b, const Payer& p) { return b.GraphUpload(p, exec, stream); },
                [&](const Table& d) { return d.GraphUpload(exec, stream); });
}
CUresult GraphUploadPerThread(CUgraphExec exec, CUstream stream) {
  return GraphUpload(exec, PerThread(stream));
}
CUresult DeviceGraphMemTrim(CUdevice device) {
  return Booked([&](Books& b) { return b.DeviceGraphMemTrim(device); });
}

// ---- contexts, whose end frees what they hold ----

CUresult CtxDestroy(CUcontext context) {
  Process::Get().ForgetContexts();
  return Booked([&](Books& b) { return b.CtxDestroy(context); });
}
CUresult DevicePrimaryCtxRelease(CUdevice device) {
  Process::Get().ForgetContexts();
  return Booked([&](Books& b) { return b.DevicePrimaryCtxRelease(device); });
}
CUresult DevicePrimaryCtxReset(CUdevice device) {
  Process::Get().ForgetContexts();
  return Booked([&](Books& b) { return b.DevicePrimaryCtxReset(device); });
}

}  // namespace

void AddMemoryHooks(Hooks* hooks) {
  GPUSHARE_HOOK(hooks, cuMemAlloc, &MemAlloc);
  GPUSHARE_HOOK(hooks, cuMemAllocPitch, &MemAllocPitch);
  GPUSHARE_HOOK(hooks, cuMemAllocManaged, &MemAllocManaged);
  GPUSHARE_HOOK(hooks, cuMemFree, &MemFree);

  GPUSHARE_HOOK(hooks, cuArrayCreate, &ArrayCreate);
  GPUSHARE_HOOK(hooks, cuArray3DCreate, &Array3DCreate);
  GPUSHARE_HOOK(hooks, cuArrayDestroy, &ArrayDestroy);
  GPUSHARE_HOOK(hooks, cuMipmappedArrayCreate, &MipmappedArrayCreate);
  GPUSHARE_HOOK(hooks, cuMipmappedArrayDestroy, &MipmappedArrayDestroy);

  GPUSHARE_HOOK(hooks, cuMemCreate, &MemCreate);
  GPUSHARE_HOOK(hooks, cuMemRelease, &MemRelease);
  GPUSHARE_HOOK(hooks, cuMemRetainAllocationHandle, &MemRetainAllocationHandle);
  GPUSHARE_HOOK(hooks, cuMemImportFromShareableHandle, &MemImportFromShareableHandle);
  GPUSHARE_HOOK(hooks, cuMemMap, &MemMap);
  GPUSHARE_HOOK(hooks, cuMemUnmap, &MemUnmap);
  GPUSHARE_HOOK(hooks, cuMulticastCreate, &MulticastCreate);
  GPUSHARE_HOOK(hooks, cuMulticastBindMem, &MulticastBindMem);
  GPUSHARE_HOOK(hooks, cuMulticastBindAddr, &MulticastBindAddr);
  GPUSHARE_HOOK(hooks, cuMulticastUnbind, &MulticastUnbind);

  GPUSHARE_HOOK(hooks, cuImportExternalMemory, &ImportExternalMemory);
  GPUSHARE_HOOK(hooks, cuExternalMemoryGetMappedBuffer, &ExternalMemoryGetMappedBuffer);
  GPUSHARE_HOOK(hooks, cuDestroyExternalMemory, &DestroyExternalMemory);

  GPUSHARE_HOOK(hooks, cuMemAllocAsync, &MemAllocAsync);
  GPUSHARE_HOOK_VARIANT(hooks, cuMemAllocAsync, "_ptsz", &MemAllocAsyncPerThread);
  GPUSHARE_HOOK(hooks, cuMemAllocFromPoolAsync, &MemAllocFromPoolAsync);
  GPUSHARE_HOOK_VARIANT(hooks, cuMemAllocFromPoolAsync, "_ptsz", &MemAllocFromPoolAsyncPerThread);
  GPUSHARE_HOOK(hooks, cuMemFreeAsync, &MemFreeAsync);
  GPUSHARE_HOOK_VARIANT(hooks, cuMemFreeAsync, "_ptsz", &MemFreeAsyncPerThread);
  GPUSHARE_HOOK(hooks, cuMemPoolTrimTo, &MemPoolTrimTo);
  GPUSHARE_HOOK(hooks, cuMemPoolDestroy, &MemPoolDestroy);

  GPUSHARE_HOOK(hooks, cuGraphInstantiateWithFlags, &GraphInstantiateWithFlags);
  GPUSHARE_HOOK(hooks, cuGraphExecDestroy, &GraphExecDestroy);
  GPUSHARE_HOOK(hooks, cuGraphLaunch, &GraphLaunch);
  GPUSHARE_HOOK_VARIANT(hooks, cuGraphLaunch, "_ptsz", &GraphLaunchPerThread);
  GPUSHARE_HOOK(hooks, cuGraphUpload, &GraphUpload);
  GPUSHARE_HOOK_VARIANT(hooks, cuGraphUpload, "_ptsz", &GraphUploadPerThread);
  GPUSHARE_HOOK(hooks, cuDeviceGraphMemTrim, &DeviceGraphMemTrim);

  GPUSHARE_HOOK(hooks, cuCtxDestroy, &CtxDestroy);
  GPUSHARE_HOOK(hooks, cuDevicePrimaryCtxRelease, &DevicePrimaryCtxRelease);
  GPUSHARE_HOOK(hooks, cuDevicePrimaryCtxReset, &DevicePrimaryCtxReset);
}

}  // namespace gpushare::shim
