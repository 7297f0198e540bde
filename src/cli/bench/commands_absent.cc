// SPDX-License-Identifier: Apache-2.0
// In place of commands.cc where gpushare is built without what reads scenarios.
#include "cli/bench/commands.h"

namespace gpushare::cli {

void AddBenchCommands(CLI::App*, std::function<ExitCode()>*) {}

}  // namespace gpushare::cli
