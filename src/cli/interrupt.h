// SPDX-License-Identifier: Apache-2.0
// Makes Ctrl-C end the command at once, whatever its threads and the driver are waiting for.
//
//   EndOnInterrupt("demo");     // before the first thread
//
// Or, if the command has to clean up first:
//
//   const std::atomic<int>& interrupted = TellInterrupts();
//   while (interrupted == 0) ...
//   EndBySignal("bench", interrupted);
#ifndef GPUSHARE_CLI_INTERRUPT_H_
#define GPUSHARE_CLI_INTERRUPT_H_

#include <atomic>

namespace gpushare::cli {

// From now on SIGINT clears a progress bar, reports that `command` was interrupted, and ends the process by
// that signal, even if it was inherited as ignored, as in the background of a script. Nothing is waited for:
// the system and the driver release the process's resources. `command` must stay valid.
void EndOnInterrupt(const char* command);

// 0 until SIGINT, SIGTERM or SIGHUP (unless ignored) arrives, then its number. A second one half a second later or more ends the process
// at once.
const std::atomic<int>& TellInterrupts();
// Reports that `command` was interrupted and ends the process by that signal, so that a shell sees it (130, 143, 129).
[[noreturn]] void EndBySignal(const char* command, int signal);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_INTERRUPT_H_
