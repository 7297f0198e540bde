// SPDX-License-Identifier: Apache-2.0
// Converts the callers' ways to name a place of managed memory.
#ifndef GPUSHARE_SIM_MEMORY_PLACE_H_
#define GPUSHARE_SIM_MEMORY_PLACE_H_

#include "sim/api/api.h"

namespace gpushare::sim {

inline CUresult ReadPlace(const CUmemLocation& location, ManagedPlace* place) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      *place = {CU_MEM_LOCATION_TYPE_DEVICE, location.id};
      return FindDevice(location.id) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
      *place = {CU_MEM_LOCATION_TYPE_HOST, 0};
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      // The simulated machine has one node.
      *place = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
      return location.id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      *place = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// The location that the older forms express as one number.
inline CUmemLocation LocationOf(CUdevice device) {
  CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, device};
  if (device == CU_DEVICE_CPU) location = {CU_MEM_LOCATION_TYPE_HOST, 0};
  return location;
}

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MEMORY_PLACE_H_
