// SPDX-License-Identifier: Apache-2.0
// `gpushare bench calibrate`: measures a GPU and writes a profile that the simulated GPU can load.
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
  bool force = false;  // overwrite `out`
  bool json = false;   // write the figures as JSON to standard output, instead of the table
  bool quiet = false;
  int limit_s = 60, in_all_s = 480;
};

// kExitFailed: a part failed; the profile has the findings of the others. Does not return when interrupted: it ends what it started
// and writes nothing.
ExitCode CalibrateGpu(const CalibrateCommand& command);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_CALIBRATE_H_
