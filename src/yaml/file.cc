// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "yaml/document.h"

namespace gpushare::yaml {

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  // Not to wait for the writer of a pipe.
  const base::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return absl::ErrnoToStatus(errno, path);
  struct stat status;
  if (fstat(file.get(), &status) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": it is not a file"));
  }
  std::string text;
  std::vector<char> part(65536);
  // One byte too many is enough to be refused.
  while (text.size() <= kMostBytes) {
    const ssize_t length = read(file.get(), part.data(), part.size());
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return absl::ErrnoToStatus(errno, path);
    if (length == 0) break;
    text.append(part.data(), static_cast<size_t>(length));
  }
  return text;
}

}  // namespace gpushare::yaml
