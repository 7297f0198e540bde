// SPDX-License-Identifier: Apache-2.0
// Hooks of stream-ordered memory, charged to the process's share (src/books).
#include "shim/gated.h"
#include "shim/hook.h"
#include "shim/process.h"

namespace gpushare::shim {
namespace {

using books::Books;
using books::Payer;
using driver::Table;

// ---- stream-ordered ----

CUresult MemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return ChargeOn(
      stream, [&](Books& b, const Payer& p) { return b.MemAllocAsync(p, pointer, bytes, stream); },
      [&](const Table& d) { return d.MemAllocAsync(pointer, bytes, stream); });
}
CUresult MemAllocAsyncPerThread(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return MemAllocAsync(pointer, bytes, PerThread(stream));
}
CUresult MemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool,
                               CUstream stream) {
  // The memory comes from the pool's GPU, which may be another than the stream's.
  return ChargeTo(
      [&](Process& process) {
        const int device = process.books().PoolDevice(pool);
        return device >= 0 ? process.ShareOn(device) : process.ShareFor(stream);
      },
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
CUresult MemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  return Booked([&](Books& b) { return b.MemPoolCreate(pool, properties); });
}
CUresult MemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  return Booked([&](Books& b) { return b.MemPoolTrimTo(pool, keep); });
}
CUresult MemPoolDestroy(CUmemoryPool pool) {
  return Booked([&](Books& b) { return b.MemPoolDestroy(pool); });
}

// If the program destroys a pool that still has allocations, the driver keeps the pool. Calls on it are refused here.
template <Name kName, typename... A>
CUresult CallOfPool(CUmemoryPool pool, A... a) {
  return Booked([&](Books& b) {
    return b.IsDestroyed(pool) ? CUDA_ERROR_INVALID_VALUE
                               : Driver<kName, CUresult(CUmemoryPool, A...)>::Call(pool, a...);
  });
}
template <Name kName, typename... A>
void AddCallOfPool(Hooks* hooks) {
  Add<CUresult(CUmemoryPool, A...)>(hooks, kName.text, &CallOfPool<kName, A...>);
}
CUresult DeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  return Booked([&](Books& b) {
    return b.IsDestroyed(pool) ? CUDA_ERROR_INVALID_VALUE
                               : Process::Get().driver().DeviceSetMemPool(device, pool);
  });
}
// Selects the pool by location, in drivers since 13.0.
CUresult MemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  return Booked([&](Books& b) {
    using Function = CUresult(CUmemLocation*, CUmemAllocationType, CUmemoryPool);
    return b.IsDestroyed(pool) ? CUDA_ERROR_INVALID_VALUE
                               : Driver<"cuMemSetMemPool", Function>::Call(location, type, pool);
  });
}
// The default or current pool of a location, in drivers since 13.0. That of the host is known to be the host's only from here.
template <Name kName>
CUresult MemPoolOf(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  return Booked([&](Books& b) {
    using Function = CUresult(CUmemoryPool*, CUmemLocation*, CUmemAllocationType);
    const CUresult result = Driver<kName, Function>::Call(pool, location, type);
    if (result == CUDA_SUCCESS) b.MemPoolIsAt(*pool, *location, type);
    return result;
  });
}

}  // namespace

void AddPoolHooks(Hooks* hooks) {
  GPUSHARE_HOOK(hooks, cuMemAllocAsync, &MemAllocAsync);
  GPUSHARE_HOOK_VARIANT(hooks, cuMemAllocAsync, "_ptsz", &MemAllocAsyncPerThread);
  GPUSHARE_HOOK(hooks, cuMemAllocFromPoolAsync, &MemAllocFromPoolAsync);
  GPUSHARE_HOOK_VARIANT(hooks, cuMemAllocFromPoolAsync, "_ptsz", &MemAllocFromPoolAsyncPerThread);
  GPUSHARE_HOOK(hooks, cuMemFreeAsync, &MemFreeAsync);
  GPUSHARE_HOOK_VARIANT(hooks, cuMemFreeAsync, "_ptsz", &MemFreeAsyncPerThread);
  GPUSHARE_HOOK(hooks, cuMemPoolTrimTo, &MemPoolTrimTo);
  GPUSHARE_HOOK(hooks, cuMemPoolDestroy, &MemPoolDestroy);
  GPUSHARE_HOOK(hooks, cuMemPoolCreate, &MemPoolCreate);
  AddCallOfPool<"cuMemPoolSetAttribute", CUmemPool_attribute, void*>(hooks);
  AddCallOfPool<"cuMemPoolGetAttribute", CUmemPool_attribute, void*>(hooks);
  AddCallOfPool<"cuMemPoolSetAccess", const CUmemAccessDesc*, size_t>(hooks);
  GPUSHARE_HOOK(hooks, cuDeviceSetMemPool, &DeviceSetMemPool);
  Add(hooks, "cuMemSetMemPool", &MemSetMemPool);
  Add(hooks, "cuMemGetDefaultMemPool", &MemPoolOf<"cuMemGetDefaultMemPool">);
  Add(hooks, "cuMemGetMemPool", &MemPoolOf<"cuMemGetMemPool">);
}

}  // namespace gpushare::shim
