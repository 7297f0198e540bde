// SPDX-License-Identifier: Apache-2.0
// Hooks of virtual memory management and multicast objects, charged to the process's share (src/books).
#include "shim/hook.h"
#include "shim/process.h"

namespace gpushare::shim {
namespace {

using books::Books;
using books::Payer;
using driver::Table;

// Charges the share on the GPU that the properties name. It need not be the current context's, nor need there be one.
template <typename Charged, typename Plain>
CUresult ChargeWhere(const CUmemAllocationProp* properties, const Charged& charged,
                     const Plain& plain) {
  return ChargeTo(
      [&](Process& process) {
        const bool on_device =
            properties != nullptr && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
        int gpus = 0;  // for other devices the driver returns its own error
        return on_device && properties->location.id >= 0 &&
                       process.driver().DeviceGetCount(&gpus) == CUDA_SUCCESS &&
                       properties->location.id < gpus
                   ? process.ShareOn(properties->location.id)
                   : Process::Found{};
      },
      charged, plain);
}

CUresult MemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                   const CUmemAllocationProp* properties, unsigned long long flags) {
  return ChargeWhere(
      properties,
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
  return Booked([&](Books& b) {
    return b.MemImportFromShareableHandle(PayerOn, handle, shareable, type).result;
  });
}
CUresult MemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                    CUmemAllocationHandleType type, unsigned long long flags) {
  return Booked(
      [&](Books& b) { return b.MemExportToShareableHandle(shareable, handle, type, flags); });
}
CUresult MemMap(CUdeviceptr address, size_t bytes, size_t offset,
                CUmemGenericAllocationHandle handle, unsigned long long flags) {
  CUmemAllocationProp properties;
  const bool known =
      !Process::Forked() && Process::Get().driver().MemGetAllocationPropertiesFromHandle(
                                &properties, handle) == CUDA_SUCCESS;
  return ChargeWhere(
      known ? &properties : nullptr,
      [&](Books& b, const Payer& p) { return b.MemMap(p, address, bytes, offset, handle, flags); },
      [&](const Table& d) { return d.MemMap(address, bytes, offset, handle, flags); });
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

}  // namespace

void AddVirtualMemoryHooks(Hooks* hooks) {
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
  GPUSHARE_HOOK(hooks, cuMemExportToShareableHandle, &MemExportToShareableHandle);
}

}  // namespace gpushare::shim
