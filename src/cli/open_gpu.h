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
  std::string note;  // why the simulated GPU was chosen; empty if it was asked for
};

// Opens GPU `name` (ordinal, UUID or PCI id). kAuto chooses the simulated GPU if the machine has no GPU
// and GPUSHARE_DRIVER names no driver. Unavailable, NotFound: there is no such GPU, with the reason.
// InvalidArgument: an environment variable is wrong.
absl::StatusOr<OpenedGpu> OpenGpu(GpuKind kind, const std::string& name);

// The exit code of a command for an error of OpenGpu().
ExitCode ExitCodeOf(const absl::Status& not_opened);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_OPEN_GPU_H_
