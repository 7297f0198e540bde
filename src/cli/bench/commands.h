// SPDX-License-Identifier: Apache-2.0
// `gpushare bench`: does a way to share a GPU do what it is asked for?
#ifndef GPUSHARE_CLI_BENCH_COMMANDS_H_
#define GPUSHARE_CLI_BENCH_COMMANDS_H_

#include <functional>

#include "cli/exit_code.h"

namespace CLI {
class App;
}

namespace gpushare::cli {

// What is given on the command line is put into `chosen`. Where gpushare is built without the benchmarks, `record` alone.
void AddBenchCommands(CLI::App* app, std::function<ExitCode()>* chosen);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_COMMANDS_H_
