// SPDX-License-Identifier: Apache-2.0
// The temporary folder of a run's files.
#ifndef GPUSHARE_HARNESS_FOLDER_H_
#define GPUSHARE_HARNESS_FOLDER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace gpushare::harness {

// TMPDIR, else /tmp. InvalidArgument: it is not a folder, it is not writable, or its name is not UTF-8 and so cannot be named in
// the run's files.
absl::StatusOr<std::string> TemporaryFolder();

// A new folder in `parent`, removed with its contents by the destructor.
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
