// SPDX-License-Identifier: Apache-2.0
// A descriptor that a library keeps open inside somebody else's program.
//
//   UniqueFd fd = ClearOfStdio(UniqueFd(eventfd(0, EFD_CLOEXEC)));
//   if (!fd) return absl::ErrnoToStatus(errno, "eventfd");
//
// A program that has closed its standard input, output or error may go on writing to those numbers. The next descriptor to
// be opened gets one of them, so a library's descriptor could receive that output.
#ifndef GPUSHARE_BASE_HOST_FD_H_
#define GPUSHARE_BASE_HOST_FD_H_

#include <fcntl.h>
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

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_HOST_FD_H_
