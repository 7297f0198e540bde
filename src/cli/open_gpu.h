// SPDX-License-Identifier: Apache-2.0
// `--gpu real|sim|auto`: which GPU a command runs on.
#ifndef GPUSHARE_CLI_OPEN_GPU_H_
#define GPUSHARE_CLI_OPEN_GPU_H_

#include <string>

#include "absl/status/statusor.h"
#include "gpushare/gpu.h"
#include "gpushare/runtime.h"

namespace gpushare::cli {

enum class GpuKind { kAuto, kReal, kSimulated };

struct OpenedGpu {
  Runtime runtime;
  Gpu gpu;
  GpuProbe probe;
  bool simulated;
  std::string note;  // why the simulated GPU was taken; empty when it was asked for
};

// kAuto: the real GPU `name` (ordinal, UUID or PCI id), else the simulated one. Errors: Unavailable or
// NotFound when there is none, with the reason.
absl::StatusOr<OpenedGpu> OpenGpu(GpuKind kind, const std::string& name);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_OPEN_GPU_H_
