// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARE_CLI_COMMAND_H_
#define GPUSHARE_CLI_COMMAND_H_

#include "cli/exit_code.h"

namespace gpushare::cli {

// Does what the command line asks for. Throws std::bad_alloc at most.
ExitCode RunCommand(int argc, char** argv);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_COMMAND_H_
