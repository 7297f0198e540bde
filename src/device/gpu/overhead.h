// SPDX-License-Identifier: Apache-2.0
// What this process holds of a GPU beside what is charged: contexts, modules and what libraries keep for themselves.
#ifndef GPUSHARE_DEVICE_GPU_OVERHEAD_H_
#define GPUSHARE_DEVICE_GPU_OVERHEAD_H_

#include "absl/status/statusor.h"
#include "device/gpu/gpu.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

// By the driver's own count of this process, which NVML tells. Unavailable: it does not.
absl::StatusOr<gpushare_overhead> Overhead(const Gpu& gpu);

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_GPU_OVERHEAD_H_
