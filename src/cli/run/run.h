// SPDX-License-Identifier: Apache-2.0
// `gpushare run [options] -- program [arguments]`: an unmodified program within a share.
//
// The program gets the preloaded library and its share by its environment, and takes this process's place. What
// the share asks for is checked before, since a preloaded library has no one to tell.
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
  bool device_given = false;  // else the program sees all, and the share is tried on the first
  std::string spec;           // the whole text, or what the options below leave out
  std::string memory, compute, cap, priority, policy;
  bool audit = false;
  // With whom the share is had: a broker's socket; "private": one of the program's own, for all its processes; "none":
  // each process for itself; "auto": GPUSHARE_BROKER's, else private on a real GPU.
  std::string broker = "auto";
  std::string tenant;  // empty: GPUSHARE_TENANT's, else the program's name and number
  std::vector<std::string> command;
};

void AddRunOptions(CLI::App* app, RunOptions* options);
// Comes back only with what went wrong.
ExitCode Run(const RunOptions& options);

// The spec's text of all options together. InvalidArgument: what the spec says.
absl::StatusOr<std::string> SpecOf(const RunOptions& options);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_RUN_RUN_H_
