// SPDX-License-Identifier: Apache-2.0
// Where remains are kept, and what the kernel says of processes.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "broker/remains.h"

namespace gpushare::broker {
namespace {

constexpr off_t kMostFile = 64 << 20;

absl::StatusOr<std::string> ReadAll(int fd, size_t most) {
  std::string text;
  char buffer[1 << 14];
  for (;;) {
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, "read");
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > most) return absl::InvalidArgumentError("it is too long");
  }
}

// Of the kernel's; empty: it cannot be read.
std::string TextOf(const std::string& path) {
  const base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return "";
  return ReadAll(fd.get(), 1 << 16).value_or("");
}

absl::Status WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = write(fd, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return absl::ErrnoToStatus(errno, "write");
    text.remove_prefix(static_cast<size_t>(wrote));
  }
  return absl::OkStatus();
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

uint64_t BeganAt(int32_t pid) {
  const std::string stat = TextOf(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name = stat.rfind(") ");  // it may have parentheses and blanks of its own
  if (name == std::string::npos) return 0;
  constexpr size_t kBegan = 19;  // the 22nd of all; the third comes after the name
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(name + 2), ' ');
  uint64_t began = 0;
  if (fields.size() <= kBegan || !absl::SimpleAtoi(fields[kBegan], &began)) return 0;
  return began;
}

absl::StatusOr<std::optional<Remains>> RemainsFile::Read() const {
  // Not blocking, as a pipe of somebody's would.
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
  GPUSHARE_ASSIGN_OR_RETURN(const std::string text, ReadAll(fd.get(), kMostFile));
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
  if (text == written_) return absl::OkStatus();
  written_.reset();
  if (text.empty()) {
    if (unlink(path_.c_str()) != 0 && errno != ENOENT) {
      return absl::ErrnoToStatus(errno, Quoted(path_));
    }
    written_ = std::move(text);
    return absl::OkStatus();
  }
  // Not synchronised: it is for the next broker on this machine as it runs, which sees what was written last.
  const std::string next = path_ + ".new";
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  base::UniqueFd fd(open(next.c_str(), kFlags, 0600));
  if (!fd && errno == EEXIST && unlink(next.c_str()) == 0) {
    fd.Reset(open(next.c_str(), kFlags, 0600));
  }
  if (!fd) return absl::ErrnoToStatus(errno, Quoted(next));
  absl::Status done = WriteAll(fd.get(), text);
  if (done.ok() && rename(next.c_str(), path_.c_str()) != 0) {
    done = absl::ErrnoToStatus(errno, Quoted(path_));
  }
  if (!done.ok()) {
    unlink(next.c_str());
    return done;
  }
  written_ = std::move(text);
  return absl::OkStatus();
}

}  // namespace gpushare::broker
