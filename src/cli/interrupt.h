// SPDX-License-Identifier: Apache-2.0
// Ctrl-C ends the command at once, whatever its threads and the driver wait for.
//
//   EndOnInterrupt("demo");     // before the first thread
#ifndef GPUSHARE_CLI_INTERRUPT_H_
#define GPUSHARE_CLI_INTERRUPT_H_

namespace gpushare::cli {

// From now on SIGINT clears a progress bar, says that `command` was interrupted, and ends the process by
// that signal; also where the shell had it ignored, as in the background of a script. Nothing is waited for:
// the system and the driver take back what the process had. `command` must stay valid.
void EndOnInterrupt(const char* command);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_INTERRUPT_H_
