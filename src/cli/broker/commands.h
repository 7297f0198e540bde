// SPDX-License-Identifier: Apache-2.0
// The commands that concern a broker, as the command line has them.
#ifndef GPUSHARE_CLI_BROKER_COMMANDS_H_
#define GPUSHARE_CLI_BROKER_COMMANDS_H_

#include <functional>

#include "cli/exit_code.h"

namespace CLI {
class App;
}

namespace gpushare::cli {

// Adds them to `app`. Parsing sets `*chosen` to what is to be done, if it is one of them; it is called once.
void AddBrokerCommands(CLI::App* app, std::function<ExitCode()>* chosen);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_COMMANDS_H_
