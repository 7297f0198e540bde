// SPDX-License-Identifier: Apache-2.0
#include "harness/children.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "harness/log.h"
#include "harness/orphans.h"

namespace gpushare::harness {
namespace {

// How often WaitUntil() polls its condition.
constexpr auto kLookEvery = std::chrono::milliseconds(2);
// Bounds a sleep, since a signal may arrive after `interrupted` was read and before the sleep that it should end.
constexpr auto kLongestRest = std::chrono::milliseconds(50);

std::vector<std::string> Lines(const Variables& variables) {
  std::vector<std::string> lines;
  lines.reserve(variables.size());
  for (const auto& [name, value] : variables) lines.push_back(absl::StrCat(name, "=", value));
  return lines;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status)) return absl::StrCat("was ended by signal ", WTERMSIG(status));
  return absl::StrCat("ended with status ", WEXITSTATUS(status));
}

}  // namespace

absl::Status Children::Start(const Program& program) {
  Variables environment = program.environment;
  environment.insert(MarkOfThisProcess());
  std::vector<std::string> arguments = program.command, variables = Lines(environment);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, program.log.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                   0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, arguments.front().c_str(), &files, &attributes,
                                Pointers(arguments).data(), Pointers(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) return absl::ErrnoToStatus(error, arguments.front());
  children_.push_back({program.name, program.log, pid, program.may_be_killed, program.serves,
                       program.stays,
                       base::UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)))});
  return absl::OkStatus();
}

absl::Status Children::Look(bool may_end, bool* all) {
  *all = true;
  for (Child& child : children_) {
    if (child.ended) continue;
    // The pid and the process group cannot be reused before waitpid() has reaped the child (WNOWAIT leaves it).
    siginfo_t how = {};
    if (waitid(P_PID, static_cast<id_t>(child.pid), &how, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        how.si_pid == 0) {
      *all = *all && child.serves;
      continue;
    }
    kill(-child.pid, SIGKILL);
    int status = 0;
    const pid_t waited = waitpid(child.pid, &status, 0);
    child.ended = true;
    const bool well =
        status == 0 || (child.may_be_killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    if (waited == child.pid && well && may_end && !child.stays) continue;
    const absl::Status failed = absl::InternalError(
        absl::StrCat(child.name, " ", HowItEnded(status), ": ", EndOfLog(child.log)));
    End();
    return failed;
  }
  return absl::OkStatus();
}

void Children::Rest() const {
  std::vector<pollfd> ends;
  for (const Child& child : children_) {
    if (child.ended) continue;
    if (!child.end) return std::this_thread::sleep_for(kLookEvery);
    ends.push_back({child.end.get(), POLLIN, 0});
  }
  poll(ends.data(), ends.size(), static_cast<int>(kLongestRest.count()));
}

absl::Status Children::WaitFor(const std::function<bool()>* there, Nanos limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  for (;;) {
    if (there != nullptr && (*there)()) return absl::OkStatus();
    bool all = false;
    GPUSHARE_RETURN_IF_ERROR(Look(/*may_end=*/there == nullptr, &all));
    if (all && there == nullptr) return absl::OkStatus();
    if (interrupted_ != nullptr && interrupted_->load() != 0) {
      End();
      return absl::CancelledError("it was interrupted");
    }
    if (std::chrono::steady_clock::now() >= until) {
      End();
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit).count();
      // What is waited for until it has begun is the latest.
      return absl::DeadlineExceededError(
          there == nullptr
              ? absl::StrCat("it had not ended after ", seconds, " s")
              : absl::StrCat(children_.back().name, " had not begun after ", seconds, " s"));
    }
    if (there == nullptr) {
      Rest();
    } else {
      std::this_thread::sleep_for(kLookEvery);
    }
  }
}

absl::Status Children::Wait(Nanos limit) { return WaitFor(nullptr, limit); }

absl::Status Children::WaitUntil(const std::function<bool()>& there, Nanos limit) {
  return WaitFor(&there, limit);
}

void Children::Dismiss(Nanos limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  for (const Child& child : children_) {
    if (child.stays && !child.ended) kill(-child.pid, SIGTERM);
  }
  for (Child& child : children_) {
    if (!child.stays || child.ended) continue;
    siginfo_t how = {};
    while (waitid(P_PID, static_cast<id_t>(child.pid), &how, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           how.si_pid == 0 && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(kLookEvery);
    }
  }
  End();
}

void Children::End() {
  for (Child& child : children_) {
    if (child.ended) continue;
    kill(-child.pid, SIGKILL);
    while (waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    child.ended = true;
  }
}

Children::~Children() {
  End();
  EndOrphans();
}

}  // namespace gpushare::harness
