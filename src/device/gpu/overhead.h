// SPDX-License-Identifier: Apache-2.0
// The memory that this process holds on a GPU beyond what is charged: contexts, modules and libraries' own memory.
#ifndef GPUSHARE_DEVICE_GPU_OVERHEAD_H_
#define GPUSHARE_DEVICE_GPU_OVERHEAD_H_

#include "absl/status/statusor.h"
#include "device/gpu/gpu.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

// Uses the driver's count for this process, from NVML. Unavailable: NVML has no figure.
absl::StatusOr<gpushare_overhead> Overhead(const Gpu& gpu);

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_GPU_OVERHEAD_H_
