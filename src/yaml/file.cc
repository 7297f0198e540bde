// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/fd_io.h"
#include "base/unique_fd.h"
#include "yaml/document.h"

namespace gpushare::yaml {

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const base::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return absl::ErrnoToStatus(errno, path);
  struct stat status;
  if (fstat(file.get(), &status) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": it is not a file"));
  }
  std::string text;
  // EFBIG is no error here: Parse() refuses text of this length.
  const int error = base::ReadAll(file.get(), kMostBytes, &text);
  if (error != 0 && error != EFBIG) return absl::ErrnoToStatus(error, path);
  return text;
}

}  // namespace gpushare::yaml
