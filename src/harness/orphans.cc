// SPDX-License-Identifier: Apache-2.0
#include "harness/orphans.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/fd_io.h"

namespace gpushare::harness {
namespace {

bool HasChildren() {
  siginfo_t ignored;
  return waitid(P_ALL, 0, &ignored, WEXITED | WNOHANG | WNOWAIT) == 0;
}

// The text of a file in /proc; empty if it cannot be read, for instance because the process has ended.
std::string TextOf(const std::string& path) {
  std::string text;
  return base::ReadFile(path, 1 << 22, &text) == 0 ? text : "";
}

// 0 if the process has ended.
pid_t ParentOf(pid_t process) {
  const std::string text = TextOf(absl::StrCat("/proc/", process, "/stat"));
  // "7 (name) S 1 ...": the name may contain parentheses and blanks.
  const size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos || name_end + 4 > text.size()) return 0;
  return static_cast<pid_t>(std::strtol(text.c_str() + name_end + 4, nullptr, 10));
}

bool HasMark(pid_t process) {
  const std::string text = TextOf(absl::StrCat("/proc/", process, "/environ"));
  const auto [name, value] = MarkOfThisProcess();
  for (const absl::string_view line : absl::StrSplit(text, '\0')) {
    if (line == absl::StrCat(name, "=", value)) return true;
  }
  return false;
}

std::vector<pid_t> Orphans() {
  std::vector<pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> all(opendir("/proc"), &closedir);
  if (all == nullptr) return children;
  while (const dirent* const entry = readdir(all.get())) {
    pid_t process = 0;
    const char* const end = entry->d_name + std::strlen(entry->d_name);
    const auto read = std::from_chars(entry->d_name, end, process);
    if (read.ec != std::errc() || read.ptr != end) continue;
    if (ParentOf(process) == getpid() && HasMark(process)) children.push_back(process);
  }
  return children;
}

}  // namespace

std::pair<std::string, std::string> MarkOfThisProcess() {
  return {"GPUSHARE_BENCH_RUN", absl::StrCat(getpid())};
}

void AdoptOrphans() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  // SIGCHLD may have been inherited as ignored; then children are reaped without notice.
  signal(SIGCHLD, SIG_DFL);
}

void EndOrphans() {
  int adopts = 0;
  if (prctl(PR_GET_CHILD_SUBREAPER, &adopts) != 0 || adopts == 0) return;
  // A child of an ended process becomes ours in the next round. The bound is for processes that fork faster than this loop.
  for (int round = 0; round < 100 && HasChildren(); ++round) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {  // a zombie has no environment to look at
    }
    const std::vector<pid_t> orphans = Orphans();
    if (orphans.empty()) return;
    for (const pid_t child : orphans) {
      kill(child, SIGKILL);
      while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }
}

}  // namespace gpushare::harness
