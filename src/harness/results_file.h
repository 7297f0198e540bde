// SPDX-License-Identifier: Apache-2.0
// The file that results are appended to, line by line, as soon as they are known. A line is written whole or not at all.
//
//   ResultsFile file;                                   // nowhere
//   GPUSHARE_ASSIGN_OR_RETURN(file, ResultsFile::Open("results.jsonl"));
//   if (const absl::Status put = file.Put(FormatResult(result)); !put.ok()) ...
#ifndef GPUSHARE_HARNESS_RESULTS_FILE_H_
#define GPUSHARE_HARNESS_RESULTS_FILE_H_

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace gpushare::harness {

class ResultsFile {
 public:
  ResultsFile() = default;
  // Truncates or creates the file, and keeps other runs from writing it. Unavailable: it cannot be written, and why.
  static absl::StatusOr<ResultsFile> Open(const std::string& path);
  // Appends to the existing file.
  static ResultsFile OfStdout();

  // Unavailable: the line could not be written, and why. A partial line is removed again if possible, so that the lines before it
  // can be read. Do not call Put() again after an error.
  absl::Status Put(std::string_view line);

 private:
  ResultsFile(base::UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  base::UniqueFd fd_;
  std::string path_;  // empty: nowhere
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_RESULTS_FILE_H_
