// SPDX-License-Identifier: Apache-2.0
// Runs a third-party program that ends when the harness does:
//
//   with_parent [--group] PARENT COMMAND [ARGUMENT]...
//
// COMMAND is searched for on the PATH. The parent-death signal survives exec, but children of COMMAND, such as the parts of a shell
// command, do not inherit it. With --group this process, the leader of a process group, stays and kills the whole group when the
// harness has ended.
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

// The signal that the kernel sends when the harness ends; nobody else uses it.
constexpr int kParentEnded = SIGUSR2;

int Become(char** command) {
  execvp(command[0], command);
  std::fprintf(stderr, "%s: %s\n", command[0],
               std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
  return 127;
}

// The exit status that mirrors how the child ended.
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
  // Signals to the group are meant for the program, so they are blocked here; this process waits for its end.
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
    if (sigwait(&all, &got) == 0 && got == kParentEnded) kill(0, SIGKILL);  // includes this process
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
