// SPDX-License-Identifier: Apache-2.0
// `gpushare bench calibrate`: the GPU at hand, measured, as a profile that the simulated GPU loads.
#ifndef GPUSHARE_CLI_BENCH_CALIBRATE_H_
#define GPUSHARE_CLI_BENCH_CALIBRATE_H_

#include <string>

#include "cli/exit_code.h"
#include "cli/open_gpu.h"

namespace gpushare::cli {

struct CalibrateCommand {
  GpuKind kind = GpuKind::kAuto;
  std::string device = "0";
  std::string out = "gpu-profile.yaml";
  bool force = false;  // `out` may be there already
  bool json = false;   // the figures on standard output, in place of the table
  bool quiet = false;
  int limit_s = 60, in_all_s = 480;
};

// kExitFailed: a part failed; the profile has what the others found out. Does not return when it is interrupted: what it
// started has ended by then, and nothing is written.
ExitCode CalibrateGpu(const CalibrateCommand& command);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_CALIBRATE_H_
