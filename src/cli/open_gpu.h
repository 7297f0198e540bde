// SPDX-License-Identifier: Apache-2.0
// `--gpu real|sim|auto`: which GPU a command runs on.
#ifndef GPUSHARE_CLI_OPEN_GPU_H_
#define GPUSHARE_CLI_OPEN_GPU_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/exit_code.h"
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

// GPU `name` (ordinal, UUID or PCI id). kAuto: of the simulated ones when the machine has none at all
// and GPUSHARE_DRIVER names no driver. Errors: Unavailable or NotFound when there is none, with the
// reason; InvalidArgument when a variable of the environment is wrong.
absl::StatusOr<OpenedGpu> OpenGpu(GpuKind kind, const std::string& name);

// How a command exits for that error.
ExitCode ExitCodeOf(const absl::Status& not_opened);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_OPEN_GPU_H_
