// SPDX-License-Identifier: Apache-2.0
// Is a GPU there, does it work, and which limits of others apply to it?
#ifndef GPUSHARE_DEVICE_GPU_PROBE_H_
#define GPUSHARE_DEVICE_GPU_PROBE_H_

#include <string>

#include "device/process/runtime.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

// Never fails: what is wrong is in the probe's state and reason.
gpushare_gpu_probe Probe(const Runtime& runtime, const std::string& name);

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_GPU_PROBE_H_
