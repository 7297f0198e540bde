// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/read_results.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/fd_io.h"
#include "base/text.h"

namespace gpushare::cli {

absl::StatusOr<harness::Results> ReadResults(const std::string& file) {
  std::error_code there;
  if (std::filesystem::exists(file, there) && !std::filesystem::is_regular_file(file, there)) {
    return absl::InvalidArgumentError(absl::StrCat(Printable(file, 256), ": it is not a file"));
  }
  std::string text;
  if (const int error = base::ReadFile(file, SIZE_MAX, &text); error != 0) {
    return absl::NotFoundError(
        absl::StrCat(Printable(file, 256), ": it cannot be read: ", std::strerror(error)));
  }
  if (!text.empty() && text.front() != '{') {
    return absl::InvalidArgumentError(
        absl::StrCat(Printable(file, 256),
                     ":1: it is not what `gpushare bench run --out` writes; scenarios are run"));
  }
  absl::StatusOr<harness::Results> results = harness::ParseResults(text, file);
  if (results.ok() && results->cut) {
    std::fprintf(stderr, "gpushare bench: %s: its last line is cut and left out\n",
                 Printable(file, 256).c_str());
  }
  return results;
}

}  // namespace gpushare::cli
