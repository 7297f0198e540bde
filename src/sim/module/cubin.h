// SPDX-License-Identifier: Apache-2.0
// Cubins: what of a compiled module's ELF file a driver needs that does not execute it. The names of kernels, where
// their parameters lie, how many threads they take, and the variables.
#ifndef GPUSHARE_SIM_MODULE_CUBIN_H_
#define GPUSHARE_SIM_MODULE_CUBIN_H_

#include "sim/module/module.h"

namespace gpushare::sim {

// Whether an image begins as an ELF file does.
bool IsElf(const void* image);

// A CUresult. An image has no length: what it says of itself is looked at before it is read, so that one that is broken
// is refused whatever is behind it. One of another compute capability is no binary for this GPU.
int ReadCubin(const void* image, int compute_major, int compute_minor, DeviceModule* module);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MODULE_CUBIN_H_
