// SPDX-License-Identifier: Apache-2.0
// Ctrl-C ends the command at once, whatever its threads and the driver wait for.
//
//   EndOnInterrupt("demo");     // before the first thread
//
// Or it is told, and the command puts away what would stay behind it:
//
//   const std::atomic<int>& interrupted = TellInterrupts();
//   while (interrupted == 0) ...
//   EndBySignal("bench", interrupted);
#ifndef GPUSHARE_CLI_INTERRUPT_H_
#define GPUSHARE_CLI_INTERRUPT_H_

#include <atomic>

namespace gpushare::cli {

// From now on SIGINT clears a progress bar, says that `command` was interrupted, and ends the process by
// that signal; also where the shell had it ignored, as in the background of a script. Nothing is waited for:
// the system and the driver take back what the process had. `command` must stay valid.
void EndOnInterrupt(const char* command);

// 0 until the first of SIGINT, SIGTERM and SIGHUP (unless that is ignored), then its number. A second one ends the process
// at once.
const std::atomic<int>& TellInterrupts();
// Says that `command` was interrupted and ends the process by that signal, so that a shell sees it (130, 143, 129).
[[noreturn]] void EndBySignal(const char* command, int signal);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_INTERRUPT_H_
