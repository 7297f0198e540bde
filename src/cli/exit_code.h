// SPDX-License-Identifier: Apache-2.0
// The exit statuses of the gpushare command (docs/cli.md).
#ifndef GPUSHARE_CLI_EXIT_CODE_H_
#define GPUSHARE_CLI_EXIT_CODE_H_

namespace gpushare::cli {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,    // something that should work did not
  kExitUsage = 2,     // an option, an argument or a value is wrong
  kExitNoGpu = 3,     // no driver, no GPU, or one that does not work
  kExitBadTrace = 4,  // a trace file cannot be read
  kExitOutput = 5,    // an output file cannot be written
  kExitNoBroker = 6,  // no broker answers
  kExitTimeout = 7,   // a wait timed out
};

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_EXIT_CODE_H_
