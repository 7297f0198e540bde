// SPDX-License-Identifier: Apache-2.0
// The file of remains, and the identity of processes from /proc.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/fd_io.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "broker/remains.h"

namespace gpushare::broker {
namespace {

constexpr off_t kMostFile = 64 << 20;
constexpr size_t kMostAdded = 256 << 10;  // or the length of the first line, if that is more

// The text of a file in /proc; empty if it cannot be read.
std::string TextOf(const std::string& path) {
  const base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return "";
  std::string text;
  return base::ReadAll(fd.get(), 1 << 16, &text) == 0 ? text : "";
}

// A field of /proc/PID/stat, by its number in proc(5); 0 if it is not there.
uint64_t FigureOf(int32_t pid, size_t number) {
  const std::string stat = TextOf(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name = stat.rfind(") ");  // the name itself may contain parentheses and blanks
  if (name == std::string::npos) return 0;
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(name + 2), ' ');
  const size_t at = number - 3;  // field 3 is the first after the name
  uint64_t figure = 0;
  return at < fields.size() && absl::SimpleAtoi(fields[at], &figure) ? figure : 0;
}

}  // namespace

Where WhereThisIs() {
  Where where;
  where.boot = TextOf("/proc/sys/kernel/random/boot_id");
  while (!where.boot.empty() && where.boot.back() == '\n') where.boot.pop_back();
  struct stat found;
  if (stat("/proc/self/ns/pid", &found) == 0) where.pid_namespace = found.st_ino;
  return where;
}

uint64_t BeganAt(int32_t pid) { return FigureOf(pid, 22); }

// The start of the stack, which the kernel randomizes for each exec unless randomization is off. The kernel shows 1 to callers
// that may not know it.
uint64_t ImageOf(int32_t pid) {
  const uint64_t stack = FigureOf(pid, 28);
  return stack == 1 ? 0 : stack;
}

absl::StatusOr<std::optional<Remains>> RemainsFile::Read() const {
  // Without O_NONBLOCK, opening a pipe that somebody put there would block.
  const base::UniqueFd fd(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd && errno == ENOENT) return std::nullopt;
  if (!fd) return absl::ErrnoToStatus(errno, Quoted(path_));
  struct stat found;
  if (fstat(fd.get(), &found) != 0) return absl::ErrnoToStatus(errno, Quoted(path_));
  if (!S_ISREG(found.st_mode)) return absl::FailedPreconditionError("it is no file");
  if (found.st_uid != geteuid()) {
    return absl::FailedPreconditionError(
        absl::StrCat("it is user ", found.st_uid, "'s, not user ", geteuid(), "'s"));
  }
  if ((found.st_mode & 0077) != 0) {
    return absl::FailedPreconditionError("others than its owner may use it");
  }
  if (found.st_size > kMostFile) return absl::InvalidArgumentError("it is too long");
  std::string text;
  const int error = base::ReadAll(fd.get(), kMostFile, &text);
  if (error == EFBIG) return absl::InvalidArgumentError("it is too long");
  if (error != 0) return absl::ErrnoToStatus(error, Quoted(path_));
  Where where;
  GPUSHARE_ASSIGN_OR_RETURN(Remains remains, RemainsFromJson(text, &where));
  if (where.boot != where_.boot || where_.boot.empty()) return std::nullopt;
  if (where.pid_namespace != where_.pid_namespace || where_.pid_namespace == 0) {
    for (Remains::Process& process : remains.processes) process.pid = 0;
  }
  return remains;
}

absl::Status RemainsFile::Write(const Remains& remains) {
  std::string text = remains.empty() ? "" : ToJson(remains, where_);
  if (text == written_ && added_ == 0) return absl::OkStatus();
  written_.reset();
  lines_.Reset();
  added_ = 0;
  if (text.empty()) {
    if (unlink(path_.c_str()) != 0 && errno != ENOENT) {
      return absl::ErrnoToStatus(errno, Quoted(path_));
    }
    written_ = std::move(text);
    return absl::OkStatus();
  }
  // No fsync(): the file is only for the next broker in this boot of the machine, which sees what was written last.
  const std::string next = path_ + ".new";
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  base::UniqueFd fd(open(next.c_str(), kFlags, 0600));
  if (!fd && errno == EEXIST && unlink(next.c_str()) == 0) {
    fd.Reset(open(next.c_str(), kFlags, 0600));
  }
  if (!fd) return absl::ErrnoToStatus(errno, Quoted(next));
  int error = base::WriteAll(fd.get(), text);
  if (error == 0 && rename(next.c_str(), path_.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(next.c_str());
    return absl::ErrnoToStatus(error, Quoted(path_));
  }
  written_ = std::move(text);
  lines_ = std::move(fd);
  return absl::OkStatus();
}

bool RemainsFile::Add(const Remains::Growth& growth) {
  struct stat found;
  // The file may have been removed by somebody.
  if (!lines_ || fstat(lines_.get(), &found) != 0 || found.st_nlink == 0) return false;
  if (growth.processes.empty() && growth.gone.empty()) return true;
  const std::string line = ToJson(growth);
  if (added_ + line.size() > std::max(kMostAdded, written_->size())) return false;
  added_ += line.size();
  return base::WriteAll(lines_.get(), line) == 0;
}

}  // namespace gpushare::broker
