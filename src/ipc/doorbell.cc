// SPDX-License-Identifier: Apache-2.0
#include "ipc/doorbell.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/host_fd.h"
#include "base/no_cancel.h"

namespace gpushare::ipc {
namespace {

// Unknown where there is no /proc: then it is taken for what it is said to be.
bool IsEventFd(int fd) {
  std::array<char, 64> target{};
  const ssize_t length =
      readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), target.data(), target.size());
  if (length < 0) return true;
  return std::string_view(target.data(), static_cast<size_t>(length)) == "anon_inode:[eventfd]";
}

}  // namespace

absl::StatusOr<Doorbell> Doorbell::Create() {
  base::UniqueFd fd = base::ClearOfStdio(base::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (!fd) return absl::ErrnoToStatus(errno, "eventfd");
  return Doorbell(base::HostFd(std::move(fd)));
}

absl::StatusOr<Doorbell> Doorbell::Of(base::UniqueFd fd) {
  const int flags = fcntl(fd.get(), F_GETFL);
  if (flags < 0) return absl::ErrnoToStatus(errno, "a doorbell");
  if (!IsEventFd(fd.get()) || (flags & O_NONBLOCK) == 0) {
    return absl::InvalidArgumentError("not a doorbell: it is no eventfd that does not block");
  }
  return Doorbell(base::HostFd::Apart(std::move(fd)));
}

void Doorbell::Ring() const {
  if (!fd_.IsThere()) return;
  const base::NoCancel whole;  // it is rung by the program's threads
  const uint64_t once = 1;
  // Full (EAGAIN): it has been rung often enough.
  while (write(fd_.get(), &once, sizeof(once)) < 0 && errno == EINTR) {
  }
}

bool Doorbell::Answer() const {
  uint64_t times = 0;
  ssize_t length;
  while ((length = read(fd_.get(), &times, sizeof(times))) < 0 && errno == EINTR) {
  }
  return length == sizeof(times);
}

}  // namespace gpushare::ipc
