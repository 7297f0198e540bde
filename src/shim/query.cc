// SPDX-License-Identifier: Apache-2.0
// Hooks of queries of the GPU's memory: a program gets its share's.
#include <algorithm>
#include <cstdint>

#include "shim/hook.h"
#include "shim/process.h"

namespace gpushare::shim {
namespace {

// Reports what is left of the quota, but at most what the device has free, including memory that is being reclaimed from ended
// processes.
CUresult MemGetInfo(size_t* free, size_t* total) {
  Process& process = Process::Get();
  return Guarded([&] {
    const CUresult result = process.driver().MemGetInfo(free, total);
    if (result != CUDA_SUCCESS) return result;
    const Process::Found found = process.Share();
    device::VirtualDevice* const share = found.share;
    if (share == nullptr && found.refused) {
      // Without a share the program can allocate nothing, so nothing is shown as free.
      if (free != nullptr) *free = 0;
      CUdevice device = found.device;
      if (device < 0) process.driver().CtxGetDevice(&device);
      if (total != nullptr) *total = process.MemoryOf(device, *total);
    }
    if (share == nullptr) return result;
    process.books().Settle();
    uint64_t left = 0, quota = 0;
    const uint64_t reclaiming = share->ReclaimingMemory();
    share->Memory(&left, &quota);
    if (free != nullptr) *free = std::min<size_t>(*free + reclaiming, left);
    if (total != nullptr) *total = std::min<size_t>(*total, quota);
    return result;
  });
}

CUresult DeviceTotalMem(size_t* bytes, CUdevice device) {
  Process& process = Process::Get();
  return Guarded([&] {
    const CUresult result = process.driver().DeviceTotalMem(bytes, device);
    if (result == CUDA_SUCCESS && bytes != nullptr) *bytes = process.MemoryOf(device, *bytes);
    return result;
  });
}

// The exports of before CUDA 3.2 report sizes in 32 bits, saturated here. LLVM's OpenMP uses them.
unsigned Saturated(size_t bytes) {
  return static_cast<unsigned>(std::min<size_t>(bytes, UINT32_MAX));
}

CUresult MemGetInfoOf32Bits(unsigned* free, unsigned* total) {
  size_t left = 0, quota = 0;
  const CUresult result = MemGetInfo(&left, &quota);
  if (result != CUDA_SUCCESS) return result;
  if (free != nullptr) *free = Saturated(left);
  if (total != nullptr) *total = Saturated(quota);
  return result;
}

CUresult DeviceTotalMemOf32Bits(unsigned* bytes, CUdevice device) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  size_t quota = 0;
  const CUresult result = DeviceTotalMem(&quota, device);
  if (result == CUDA_SUCCESS) *bytes = Saturated(quota);
  return result;
}

}  // namespace

void AddQueryHooks(Hooks* hooks) {
  Add<CUresult(unsigned*, unsigned*)>(hooks, "cuMemGetInfo", &MemGetInfoOf32Bits);
  Add<CUresult(unsigned*, CUdevice)>(hooks, "cuDeviceTotalMem", &DeviceTotalMemOf32Bits);
  GPUSHARE_HOOK(hooks, cuMemGetInfo, &MemGetInfo);
  GPUSHARE_HOOK(hooks, cuDeviceTotalMem, &DeviceTotalMem);
}

}  // namespace gpushare::shim
