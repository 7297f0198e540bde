// SPDX-License-Identifier: Apache-2.0
// Finds out whether a GPU exists and works, and which limits of others apply to it.
#ifndef GPUSHARE_DEVICE_GPU_PROBE_H_
#define GPUSHARE_DEVICE_GPU_PROBE_H_

#include <string>

#include "device/process/runtime.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

// Never fails: errors are in the probe's state and reason.
gpushare_gpu_probe Probe(const Runtime& runtime, const std::string& name);

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_GPU_PROBE_H_
