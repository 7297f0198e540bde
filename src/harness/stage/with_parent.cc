// SPDX-License-Identifier: Apache-2.0
// Somebody else's program that ends with the harness:
//
//   with_parent [--group] PARENT COMMAND [ARGUMENT]...
//
// COMMAND is looked for on the PATH. What the kernel was told of its parent's end holds for what this process becomes; not
// for what that starts, as a shell does with each part of a command. With --group this process, the first of a process
// group, stays beside it, and ends the whole group when the harness has ended.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "harness/stage/parent.h"

namespace {

// Sent by the kernel when the harness ends; nobody else sends it.
constexpr int kParentEnded = SIGUSR2;

int Become(char** command) {
  execvp(command[0], command);
  std::fprintf(stderr, "%s: %s\n", command[0],
               std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
  return 127;
}

// Ends as it does.
int EndAs(int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(WTERMSIG(status), SIG_DFL);
  raise(WTERMSIG(status));
  return 1;
}

int Guard(const char* parent, char** command) {
  // What is sent to the group is for the program; how that ends is waited for.
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  if (!gpushare::harness::EndWithParent(parent, kParentEnded)) return 2;
  const pid_t program = fork();
  if (program < 0) {
    std::perror("fork");
    return 1;
  }
  if (program == 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return Become(command);
  }
  for (;;) {
    int status = 0;
    if (waitpid(program, &status, WNOHANG) == program) return EndAs(status);
    int got = 0;
    if (sigwait(&all, &got) == 0 && got == kParentEnded) kill(0, SIGKILL);  // this process as well
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool group = argc > 1 && std::string_view(argv[1]) == "--group";
  argv += group ? 1 : 0;
  argc -= group ? 1 : 0;
  if (argc < 3) return 2;
  if (group) return Guard(argv[1], argv + 2);
  return gpushare::harness::EndWithParent(argv[1]) ? Become(argv + 2) : 2;
}
