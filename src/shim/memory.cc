// SPDX-License-Identifier: Apache-2.0
// Hooks of direct, pitched and managed memory, arrays and external memory, charged to the process's share (src/books).
#include "shim/hook.h"
#include "shim/process.h"

namespace gpushare::shim {
namespace {

using books::Books;
using books::Payer;
using driver::Table;

// ---- direct ----

CUresult MemAlloc(CUdeviceptr* pointer, size_t bytes) {
  return Charge<Cancelled::kInTheDriver>(
      [&](Books& b, const Payer& p) { return b.MemAlloc(p, pointer, bytes); },
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
  return Booked<Cancelled::kInTheDriver>([&](Books& b) { return b.MemFree(pointer); });
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
CUresult MemMapArrayAsync(CUarrayMapInfo* list, unsigned count, CUstream stream) {
  return Booked([&](Books& b) { return b.MemMapArrayAsync(list, count, stream); });
}
CUresult MemMapArrayAsyncPerThread(CUarrayMapInfo* list, unsigned count, CUstream stream) {
  return MemMapArrayAsync(list, count, PerThread(stream));
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
CUresult ExternalMemoryGetMappedMipmappedArray(
    CUmipmappedArray* array, CUexternalMemory handle,
    const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* descriptor) {
  return Booked(
      [&](Books& b) { return b.ExternalMemoryGetMappedMipmappedArray(array, handle, descriptor); });
}
CUresult DestroyExternalMemory(CUexternalMemory handle) {
  return Booked([&](Books& b) { return b.DestroyExternalMemory(handle); });
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
  GPUSHARE_HOOK(hooks, cuImportExternalMemory, &ImportExternalMemory);
  GPUSHARE_HOOK(hooks, cuExternalMemoryGetMappedBuffer, &ExternalMemoryGetMappedBuffer);
  GPUSHARE_HOOK(hooks, cuExternalMemoryGetMappedMipmappedArray,
                &ExternalMemoryGetMappedMipmappedArray);
  GPUSHARE_HOOK(hooks, cuDestroyExternalMemory, &DestroyExternalMemory);
  GPUSHARE_HOOK(hooks, cuMemMapArrayAsync, &MemMapArrayAsync);
  GPUSHARE_HOOK_VARIANT(hooks, cuMemMapArrayAsync, "_ptsz", &MemMapArrayAsyncPerThread);

  Add<CUresult(unsigned*, unsigned)>(hooks, "cuMemAlloc", &Refused);
  Add<CUresult(unsigned*, unsigned*, unsigned, unsigned, unsigned)>(hooks, "cuMemAllocPitch",
                                                                    &Refused);
  Add<CUresult(CUarray*, const void*)>(hooks, "cuArrayCreate", &Refused);
  Add<CUresult(CUarray*, const void*)>(hooks, "cuArray3DCreate", &Refused);
  Add<CUresult(unsigned)>(hooks, "cuMemFree", &Refused);
}

}  // namespace gpushare::shim
