// SPDX-License-Identifier: Apache-2.0
// What a program is told of the GPU's memory: its share's.
#include <algorithm>
#include <cstdint>

#include "shim/hook.h"
#include "shim/process.h"

namespace gpushare::shim {
namespace {

// Of the quota what is left, but no more than the device has, or has when it has taken back what processes held that
// have ended.
CUresult MemGetInfo(size_t* free, size_t* total) {
  Process& process = Process::Get();
  return Guarded([&] {
    const CUresult result = process.driver().MemGetInfo(free, total);
    if (result != CUDA_SUCCESS) return result;
    const Process::Found found = process.Share();
    device::VirtualDevice* const share = found.share;
    if (share == nullptr && found.refused) {
      // It gets no memory at all, and is not shown any.
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

// Those of before CUDA 3.2 tell sizes in 32 bits: the most that these hold, where there is more. LLVM's OpenMP asks so.
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
