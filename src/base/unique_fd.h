// SPDX-License-Identifier: Apache-2.0
// A file descriptor that is closed with its owner.
//
//   UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
//   if (!file) return absl::ErrnoToStatus(errno, path);
#ifndef GPUSHARE_BASE_UNIQUE_FD_H_
#define GPUSHARE_BASE_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

#include "base/no_cancel.h"

namespace gpushare::base {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { Reset(); }

  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1) {
    if (fd_ >= 0) {
      const NoCancel whole;  // close() is a cancellation point, and this may be a destructor
      close(fd_);
    }
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_UNIQUE_FD_H_
