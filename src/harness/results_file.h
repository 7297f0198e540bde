// SPDX-License-Identifier: Apache-2.0
// Where results go, line by line, as soon as each is known: of a line all or nothing.
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
  // It is written anew. Unavailable: it cannot be, and why.
  static absl::StatusOr<ResultsFile> Open(const std::string& path);
  // Its lines come behind what was written there before.
  static ResultsFile OfStdout();

  // Unavailable: it could not be written, and why. What a part of the line had got there is taken away again, where
  // that can be done, so that the lines before it can be read; no more lines are to follow.
  absl::Status Put(std::string_view line);

 private:
  ResultsFile(base::UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  base::UniqueFd fd_;
  std::string path_;  // empty: nowhere
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_RESULTS_FILE_H_
