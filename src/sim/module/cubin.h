// SPDX-License-Identifier: Apache-2.0
// Cubins: what a driver that does not execute kernels needs from a compiled module's ELF file: the names of kernels, the
// offsets of their parameters, their limits on threads, and the variables.
#ifndef GPUSHARE_SIM_MODULE_CUBIN_H_
#define GPUSHARE_SIM_MODULE_CUBIN_H_

#include "sim/module/module.h"

namespace gpushare::sim {

// Whether the image begins like an ELF file.
bool IsElf(const void* image);

// Returns a CUresult. An image has no length, so its headers are checked before anything is read by them, and a broken image is
// refused whatever lies behind it. An image for an incompatible compute capability is no binary for this GPU.
int ReadCubin(const void* image, int compute_major, int compute_minor, DeviceModule* module);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MODULE_CUBIN_H_
