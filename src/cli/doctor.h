// SPDX-License-Identifier: Apache-2.0
// `gpushare doctor`: what an unmodified program would run with here, and what stands in its way.
#ifndef GPUSHARE_CLI_DOCTOR_H_
#define GPUSHARE_CLI_DOCTOR_H_

#include "cli/exit_code.h"
#include "cli/open_gpu.h"

namespace gpushare::cli {

// Of all GPUs. kExitFailed: something would keep limits from holding, or the program from running.
ExitCode RunDoctor(GpuKind kind, bool json);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_DOCTOR_H_
