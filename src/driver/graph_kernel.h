// SPDX-License-Identifier: Apache-2.0
// The launch that a kernel node of a graph makes.
#ifndef GPUSHARE_DRIVER_GRAPH_KERNEL_H_
#define GPUSHARE_DRIVER_GRAPH_KERNEL_H_

#include <cuda.h>

#include "driver/driver.h"

namespace gpushare::driver {

inline GraphKernel KernelOf(const CUDA_KERNEL_NODE_PARAMS& node) {
  return {node.func != nullptr ? node.func : reinterpret_cast<Function>(node.kern),
          {{node.gridDimX, node.gridDimY, node.gridDimZ},
           {node.blockDimX, node.blockDimY, node.blockDimZ},
           node.sharedMemBytes},
          node.ctx};
}

}  // namespace gpushare::driver

#endif  // GPUSHARE_DRIVER_GRAPH_KERNEL_H_
