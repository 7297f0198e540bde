// SPDX-License-Identifier: Apache-2.0
// The options of `gpushare demo`.
#ifndef GPUSHARE_CLI_DEMO_OPTIONS_H_
#define GPUSHARE_CLI_DEMO_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/open_gpu.h"

namespace CLI {
class App;
}

namespace gpushare::cli {

inline constexpr int kDemoTenants = 4;

struct DemoOptions {
  GpuKind gpu = GpuKind::kAuto;
  std::string gpu_name = "0";
  std::vector<std::string> traces;  // replace the tenants' workloads, in order
  std::string policy = "burst-share";
  double seconds = 20;
  uint64_t seed = 1;
  double load = 0.10;
  std::string json_path, plot_path, trace_path;
  bool progress = false;  // show progress without a terminal, too
  bool quiet = false;
};

// Declares the options on `app`. Parsing checks their ranges and fills `options`.
void AddDemoOptions(CLI::App* app, DemoOptions* options);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_DEMO_OPTIONS_H_
