// SPDX-License-Identifier: Apache-2.0
// The commands about brokers.
#ifndef GPUSHARE_CLI_BROKER_COMMANDS_H_
#define GPUSHARE_CLI_BROKER_COMMANDS_H_

#include <functional>

#include "cli/exit_code.h"

namespace CLI {
class App;
}

namespace gpushare::cli {

// Adds the commands to `app`. Parsing one of them sets `*chosen` to the function that runs it, which is called once.
void AddBrokerCommands(CLI::App* app, std::function<ExitCode()>* chosen);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_COMMANDS_H_
