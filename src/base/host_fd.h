// SPDX-License-Identifier: Apache-2.0
// A descriptor that a library keeps open inside somebody else's program.
//
//   HostFd stop = HostFd::Apart(UniqueFd(eventfd(0, EFD_CLOEXEC)));
//   if (!stop) return absl::ErrnoToStatus(errno, "eventfd");
//   if (stop.IsThere()) write(stop.get(), &once, sizeof(once));
//
// Programs take their numbers for their own. One that has closed its standard input, output or error may go on writing to those
// numbers; one that closes all descriptors (closefrom()), or puts another file at a number (dup2()), does so with a library's
// too, and a file that it opens next has the number. What a library writes then is in the program's file.
#ifndef GPUSHARE_BASE_HOST_FD_H_
#define GPUSHARE_BASE_HOST_FD_H_

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <utility>

#include "base/unique_fd.h"

namespace gpushare::base {

// Returns the same open file under a number above 2, with FD_CLOEXEC. Empty, with errno set, if `fd` is empty or no number is
// left.
inline UniqueFd ClearOfStdio(UniqueFd fd) {
  if (!fd || fd.get() > STDERR_FILENO) return fd;
  return UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

// Threading: thread-safe but for moves and Reset().
class HostFd {
 public:
  HostFd() = default;
  explicit HostFd(UniqueFd fd);
  // Moves it to a high number, which the program's next files do not get, if one is free; always above 2.
  static HostFd Apart(UniqueFd fd);
  HostFd(HostFd&& other) noexcept = default;
  HostFd& operator=(HostFd&& other) noexcept {
    if (this == &other) return *this;
    Reset();
    fd_ = std::move(other.fd_);
    device_ = other.device_, inode_ = other.inode_;
    return *this;
  }
  ~HostFd() { Reset(); }

  explicit operator bool() const { return static_cast<bool>(fd_); }
  int get() const { return fd_.get(); }
  // Whether the number still is this file. Files without an inode of their own, such as an eventfd, are not told from each other.
  bool IsThere() const;
  // Closes it if it is there.
  void Reset();

 private:
  UniqueFd fd_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_HOST_FD_H_
