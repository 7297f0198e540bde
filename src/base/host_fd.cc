// SPDX-License-Identifier: Apache-2.0
#include "base/host_fd.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>

namespace gpushare::base {
namespace {

// Programs use the low numbers. Each process has a table of 64; a larger one takes the kernel 8 to 16 ms where there are threads.
int HighNumber() {
  constexpr rlim_t kTable = 64;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min(limit.rlim_cur, kTable) / 4 * 3);
}

}  // namespace

HostFd::HostFd(UniqueFd fd) : fd_(std::move(fd)) {
  struct stat file {};
  if (fd_ && fstat(fd_.get(), &file) == 0) device_ = file.st_dev, inode_ = file.st_ino;
}

HostFd HostFd::Apart(UniqueFd fd) {
  UniqueFd high(fd ? fcntl(fd.get(), F_DUPFD_CLOEXEC, std::max(HighNumber(), STDERR_FILENO + 1))
                   : -1);
  return HostFd(high ? std::move(high) : ClearOfStdio(std::move(fd)));
}

bool HostFd::IsThere() const {
  struct stat file {};
  return fd_ && fstat(fd_.get(), &file) == 0 && file.st_dev == device_ && file.st_ino == inode_;
}

void HostFd::Reset() {
  if (!IsThere()) static_cast<void>(fd_.Release());
  fd_.Reset();
}

}  // namespace gpushare::base
