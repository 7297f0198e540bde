// SPDX-License-Identifier: Apache-2.0
// `gpushare doctor`: the limits that an unmodified program would get here, and what would keep them from working.
#ifndef GPUSHARE_CLI_DOCTOR_H_
#define GPUSHARE_CLI_DOCTOR_H_

#include "cli/exit_code.h"
#include "cli/open_gpu.h"

namespace gpushare::cli {

// Reports on all GPUs. kExitFailed: something would keep limits from holding, or a program from running.
ExitCode RunDoctor(GpuKind kind, bool json);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_DOCTOR_H_
