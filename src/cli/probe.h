// SPDX-License-Identifier: Apache-2.0
// `gpushare probe`: shows a GPU and the limits that apply to it.
#ifndef GPUSHARE_CLI_PROBE_H_
#define GPUSHARE_CLI_PROBE_H_

#include <string>

#include "cli/exit_code.h"
#include "cli/open_gpu.h"

namespace gpushare::cli {

ExitCode RunProbe(GpuKind kind, const std::string& name, bool json);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_PROBE_H_
