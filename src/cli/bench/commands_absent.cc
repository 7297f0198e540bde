// SPDX-License-Identifier: Apache-2.0
// Replaces commands.cc in builds without the libraries that read scenarios.
#include <CLI/CLI.hpp>

#include "cli/bench/commands.h"
#include "cli/bench/record.h"

namespace gpushare::cli {

void AddBenchCommands(CLI::App* app, std::function<ExitCode()>* chosen) {
  CLI::App* const bench =
      app->add_subcommand("bench", "Record what a program launches; built without scenarios");
  bench->require_subcommand(1);
  AddRecordCommand(bench, chosen);
}

}  // namespace gpushare::cli
