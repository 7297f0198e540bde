// SPDX-License-Identifier: Apache-2.0
// `gpushare bench`: measures whether a method of sharing a GPU does what it is asked to do.
#ifndef GPUSHARE_CLI_BENCH_COMMANDS_H_
#define GPUSHARE_CLI_BENCH_COMMANDS_H_

#include <functional>

#include "cli/exit_code.h"

namespace CLI {
class App;
}

namespace gpushare::cli {

// Adds the commands; parsing sets `chosen`. A build without the benchmarks has only `record`.
void AddBenchCommands(CLI::App* app, std::function<ExitCode()>* chosen);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_COMMANDS_H_
