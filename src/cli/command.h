// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARE_CLI_COMMAND_H_
#define GPUSHARE_CLI_COMMAND_H_

#include "cli/exit_code.h"

namespace gpushare::cli {

// Runs the command line. Throws only std::bad_alloc.
ExitCode RunCommand(int argc, char** argv);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_COMMAND_H_
