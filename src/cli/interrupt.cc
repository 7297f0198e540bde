// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

namespace gpushare::cli {
namespace {

const char* interrupted = "";
bool on_terminal = false;

void Say(const char* text) {
  // Nothing can be done about an error here.
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

// Calls only what is safe in a signal handler.
void EndNow(int signal) {
  if (on_terminal) Say("\r\x1b[2K");
  Say("gpushare ");
  Say(interrupted);
  Say(": interrupted\n");
  // The default action is back (SA_RESETHAND): so that the shell sees by what the process ended.
  raise(signal);
}

}  // namespace

void EndOnInterrupt(const char* command) {
  interrupted = command;
  on_terminal = isatty(STDERR_FILENO) != 0;
  struct sigaction action = {};
  action.sa_handler = &EndNow;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace gpushare::cli
