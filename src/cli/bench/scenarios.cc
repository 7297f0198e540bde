// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/scenarios.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "cli/run/preload_object.h"

namespace gpushare::cli {
namespace {

constexpr char kEnding[] = ".yaml";

}  // namespace

absl::StatusOr<std::vector<std::string>> ScenarioNames() {
  GPUSHARE_ASSIGN_OR_RETURN(const std::string folder, FindData("scenarios"));
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == kEnding) names.push_back(entry.path().stem().string());
  }
  if (error || names.empty()) {
    return absl::UnavailableError(absl::StrCat("there are no scenarios in ", folder));
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::string> FindScenario(const std::string& file_or_name) {
  if (absl::StrContains(file_or_name, '/') || absl::EndsWith(file_or_name, kEnding)) {
    return file_or_name;
  }
  // A scenario's name has precedence, so that it works in a folder with a file or folder of that name.
  GPUSHARE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ScenarioNames());
  if (!std::binary_search(names.begin(), names.end(), file_or_name)) {
    if (access(file_or_name.c_str(), F_OK) == 0) return file_or_name;
    return absl::NotFoundError(absl::StrCat("there is no file and no scenario ",
                                            Quoted(file_or_name),
                                            "; scenarios: ", absl::StrJoin(names, ", ")));
  }
  GPUSHARE_ASSIGN_OR_RETURN(const std::string folder, FindData("scenarios"));
  return absl::StrCat(folder, "/", file_or_name, kEnding);
}

}  // namespace gpushare::cli
