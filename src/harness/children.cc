// SPDX-License-Identifier: Apache-2.0
#include "harness/children.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/text.h"

extern char** environ;

namespace gpushare::harness {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(2);

std::vector<std::string> Environment(const std::vector<std::pair<std::string, std::string>>& over) {
  std::map<std::string, std::string> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    const char* const equals = std::strchr(*each, '=');
    if (equals != nullptr)
      variables[std::string(*each, static_cast<size_t>(equals - *each))] = equals + 1;
  }
  for (const auto& [name, value] : over) variables[name] = value;
  std::vector<std::string> lines;
  for (const auto& [name, value] : variables) lines.push_back(absl::StrCat(name, "=", value));
  return lines;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string EndOf(const std::string& log) {
  constexpr size_t kMost = 400;
  std::ifstream file(log, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string end = text.size() > kMost ? text.substr(text.size() - kMost) : text;
  return end.empty() ? "it wrote nothing" : Printable(end, 2 * kMost);
}

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status)) return absl::StrCat("was ended by signal ", WTERMSIG(status));
  return absl::StrCat("ended with status ", WEXITSTATUS(status));
}

}  // namespace

absl::Status Children::Start(const Program& program) {
  std::vector<std::string> arguments = program.command,
                           variables = Environment(program.environment);
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
  children_.push_back({program.name, program.log, pid});
  return absl::OkStatus();
}

absl::Status Children::Wait(Nanos limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  for (;;) {
    bool all = true;
    for (Child& child : children_) {
      if (child.ended) continue;
      int status = 0;
      const pid_t ended = waitpid(child.pid, &status, WNOHANG);
      if (ended == 0 || (ended < 0 && errno == EINTR)) {
        all = false;
        continue;
      }
      child.ended = true;
      if (ended == child.pid && status == 0) continue;
      const absl::Status failed = absl::InternalError(
          absl::StrCat(child.name, " ", HowItEnded(status), ": ", EndOf(child.log)));
      End();
      return failed;
    }
    if (all) return absl::OkStatus();
    if (std::chrono::steady_clock::now() >= until) {
      End();
      return absl::DeadlineExceededError(
          absl::StrCat("it had not ended after ",
                       std::chrono::duration_cast<std::chrono::seconds>(limit).count(), " s"));
    }
    std::this_thread::sleep_for(kLookEvery);
  }
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

Children::~Children() { End(); }

}  // namespace gpushare::harness
