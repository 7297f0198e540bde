// SPDX-License-Identifier: Apache-2.0
#include "harness/stage/calibrate/meeting.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/unique_fd.h"

namespace gpushare::harness {

absl::StatusOr<Meeting> Meeting::Open(const std::string& path) {
  const base::UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (file.get() < 0) return absl::ErrnoToStatus(errno, path);
  // Adds zeros, so it does not matter which process comes first. On a full disk it fails, where a touch of the page would be SIGBUS.
  if (const int error = posix_fallocate(file.get(), 0, sizeof(Page)); error != 0) {
    return absl::ErrnoToStatus(error, path);
  }
  void* const page = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (page == MAP_FAILED) return absl::ErrnoToStatus(errno, path);
  return Meeting(static_cast<Page*>(page));
}

}  // namespace gpushare::harness
