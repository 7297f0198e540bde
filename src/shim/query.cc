// SPDX-License-Identifier: Apache-2.0
// What a program is told of the GPU's memory: its share's.
#include <algorithm>

#include "shim/hook.h"
#include "shim/process.h"

namespace gpushare::shim {
namespace {

// Of the quota what is left, but no more than the device has.
CUresult MemGetInfo(size_t* free, size_t* total) {
  Process& process = Process::Get();
  return Guarded([&] {
    const CUresult result = process.driver().MemGetInfo(free, total);
    device::VirtualDevice* const share = result == CUDA_SUCCESS ? process.Share().share : nullptr;
    if (share == nullptr) return result;
    process.books().Settle();
    uint64_t left = 0, quota = 0;
    share->Memory(&left, &quota);
    if (free != nullptr) *free = std::min<size_t>(*free, left);
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

}  // namespace

void AddQueryHooks(Hooks* hooks) {
  Add<CUresult(unsigned*, unsigned*)>(hooks, "cuMemGetInfo", &Refused);
  Add<CUresult(unsigned*, CUdevice)>(hooks, "cuDeviceTotalMem", &Refused);
  GPUSHARE_HOOK(hooks, cuMemGetInfo, &MemGetInfo);
  GPUSHARE_HOOK(hooks, cuDeviceTotalMem, &DeviceTotalMem);
}

}  // namespace gpushare::shim
