// SPDX-License-Identifier: Apache-2.0
// `gpushare run [options] -- program [arguments]`: an unmodified program within a share.
//
// The program gets the preloaded library and its limits through the environment, and replaces this process (exec). The limits are
// checked before, since a preloaded library could not report errors.
#ifndef GPUSHARE_CLI_RUN_RUN_H_
#define GPUSHARE_CLI_RUN_RUN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/exit_code.h"
#include "cli/open_gpu.h"

namespace CLI {
class App;
}

namespace gpushare::cli {

struct RunOptions {
  GpuKind kind = GpuKind::kAuto;
  std::string device = "0";
  bool device_given =
      false;         // otherwise the program sees all GPUs, and the spec is tried on the first
  std::string spec;  // a whole spec, or the keys that have no option below
  std::string memory, compute, cap, priority, policy;
  bool audit = false;
  // Which broker divides the share among the program's processes: a socket; "private": a broker of its own; "none": no broker, each
  // process has the whole share; "auto": GPUSHARE_BROKER, else private on a real GPU.
  std::string broker = "auto";
  std::string tenant;  // empty: GPUSHARE_TENANT, else the program's name and pid
  std::vector<std::string> command;
};

void AddRunOptions(CLI::App* app, RunOptions* options);
// Returns only on error.
ExitCode Run(const RunOptions& options);

// The text of the spec that all options give together. InvalidArgument: the spec is invalid.
absl::StatusOr<std::string> SpecOf(const RunOptions& options);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_RUN_RUN_H_
