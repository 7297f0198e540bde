// SPDX-License-Identifier: Apache-2.0
#include "harness/folder.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/env.h"
#include "base/text.h"

namespace gpushare::harness {

absl::StatusOr<std::string> TemporaryFolder() {
  std::string path = base::GetEnv("TMPDIR").value_or("/tmp");
  std::string why;
  struct stat there;
  if (!IsUtf8(path)) {
    why = "its name is not UTF-8";
  } else if (stat(path.c_str(), &there) != 0 || access(path.c_str(), W_OK | X_OK) != 0) {
    why = std::strerror(errno);
  } else if (!S_ISDIR(there.st_mode)) {
    why = "it is no folder";
  }
  if (why.empty()) return path;
  return absl::InvalidArgumentError(absl::StrCat("the folder for a run's files, ", Quoted(path),
                                                 ": ", why, "; TMPDIR names another"));
}

absl::StatusOr<std::unique_ptr<Folder>> Folder::Make(const std::string& parent) {
  std::string path = absl::StrCat(parent, "/gpushare-bench-XXXXXX");
  if (mkdtemp(path.data()) == nullptr) return absl::ErrnoToStatus(errno, path);
  return std::unique_ptr<Folder>(new Folder(std::move(path)));
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace gpushare::harness
