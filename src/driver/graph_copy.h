// SPDX-License-Identifier: Apache-2.0
// The bytes that a copy node of a graph moves between the host and a device.
#ifndef GPUSHARE_DRIVER_GRAPH_COPY_H_
#define GPUSHARE_DRIVER_GRAPH_COPY_H_

#include <cuda.h>

#include "driver/driver.h"
#include "driver/table.h"

namespace gpushare::driver {

// Whether one end of a copy is in host memory. The driver is asked about unified addresses and about device addresses, which
// may be mapped host memory. It does not tell where managed memory resides.
inline bool OnHost(const Table& driver, CUmemorytype type, CUdeviceptr address) {
  if (type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED) {
    return type == CU_MEMORYTYPE_HOST;
  }
  unsigned found = 0;
  if (driver.PointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) !=
      CUDA_SUCCESS) {
    return type == CU_MEMORYTYPE_UNIFIED;
  }
  return found == CU_MEMORYTYPE_HOST;
}

inline GraphCopy CopyOf(const Table& driver, CUgraphNode node, const CUDA_MEMCPY3D& copy) {
  GraphCopy moved = {.node = node};
  const bool to_host = OnHost(driver, copy.dstMemoryType, copy.dstDevice);
  const bool from_host = OnHost(driver, copy.srcMemoryType, copy.srcDevice);
  if (to_host == from_host) return moved;
  (to_host ? moved.to_host : moved.to_device) =
      uint64_t{copy.WidthInBytes} * copy.Height * copy.Depth;
  return moved;
}

}  // namespace gpushare::driver

#endif  // GPUSHARE_DRIVER_GRAPH_COPY_H_
