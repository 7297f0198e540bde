// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace gpushare::cli {
namespace {

const char* interrupted = "";
bool on_terminal = false;
std::atomic<int> told{0};
std::atomic<int64_t> told_at_ns{0};
// A handler sets them.
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);
// timeout(1) signals the command and then the group that the command is in, and a shell that ends does much the same: signals so close
// to each other are one.
constexpr int64_t kOneInterruptNs = 500'000'000;

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

void Handle(int signal, void (*handler)(int), unsigned flags = SA_RESETHAND) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = static_cast<int>(flags | SA_NODEFER);
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

// A signal handler.
void Tell(int signal) {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t now_ns = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  if (told.load() == 0) {
    told_at_ns.store(now_ns);
    told.store(signal);
  } else if (now_ns - told_at_ns.load() > kOneInterruptNs) {
    Handle(signal, SIG_DFL);
    raise(signal);
  }
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
    Handle(signal, &Tell, /*flags=*/0);
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
