// SPDX-License-Identifier: Apache-2.0
// Where the files of a run lie while it lasts.
#ifndef GPUSHARE_HARNESS_FOLDER_H_
#define GPUSHARE_HARNESS_FOLDER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace gpushare::harness {

// What TMPDIR names, else /tmp. InvalidArgument: it is no folder, nothing can be made in it, or its name is not UTF-8,
// which the files of a run that name it are.
absl::StatusOr<std::string> TemporaryFolder();

// One of its own in `parent`; gone, with what is in it, when this is.
class Folder {
 public:
  static absl::StatusOr<std::unique_ptr<Folder>> Make(const std::string& parent);
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& file) const { return path_ + "/" + file; }
  std::string name() const { return path_.substr(path_.rfind('/') + 1); }

 private:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_FOLDER_H_
