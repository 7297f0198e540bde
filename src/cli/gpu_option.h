// SPDX-License-Identifier: Apache-2.0
// The options --gpu and --device, of every command that runs on a GPU.
#ifndef GPUSHARE_CLI_GPU_OPTION_H_
#define GPUSHARE_CLI_GPU_OPTION_H_

#include <string>

#include "cli/open_gpu.h"

namespace CLI {
class App;
}

namespace gpushare::cli {

void AddGpuOptions(CLI::App* app, GpuKind* kind, std::string* device);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_GPU_OPTION_H_
