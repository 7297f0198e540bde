// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

namespace gpushare::cli {
namespace {

const char* interrupted = "";
bool on_terminal = false;
std::atomic<int> told{0};
static_assert(std::atomic<int>::is_always_lock_free);  // a handler sets it

void Say(const char* text) {
  // An error here cannot be handled.
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

// A signal handler: calls only async-signal-safe functions.
void EndNow(int signal) {
  if (on_terminal) Say("\r\x1b[2K");
  Say("gpushare ");
  Say(interrupted);
  Say(": interrupted\n");
  // SA_RESETHAND has restored the default action, so this ends the process by the signal, and the shell sees it.
  raise(signal);
}

void Tell(int signal) { told.store(signal); }

void Handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

void EndOnInterrupt(const char* command) {
  interrupted = command;
  on_terminal = isatty(STDERR_FILENO) != 0;
  Handle(SIGINT, &EndNow);
}

const std::atomic<int>& TellInterrupts() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    if (signal == SIGHUP && before.sa_handler == SIG_IGN) continue;  // nohup
    Handle(signal, &Tell);
  }
  return told;
}

void EndBySignal(const char* command, int signal) {
  std::fflush(nullptr);
  Say("gpushare ");
  Say(command);
  Say(": interrupted\n");
  Handle(signal, SIG_DFL);
  raise(signal);
  _exit(128 + signal);  // reached only if the signal is blocked
}

}  // namespace gpushare::cli
