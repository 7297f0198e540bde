// SPDX-License-Identifier: Apache-2.0
// The scenarios that come with gpushare, by their names.
//
//   GPUSHARE_ASSIGN_OR_RETURN(const std::string file, FindScenario("share"));   // .../share/gpushare/scenarios/share.yaml
#ifndef GPUSHARE_CLI_BENCH_SCENARIOS_H_
#define GPUSHARE_CLI_BENCH_SCENARIOS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gpushare::cli {

// Their names, sorted. Unavailable: they are not installed beside this command, and where they were searched for.
absl::StatusOr<std::vector<std::string>> ScenarioNames();

// The file for an argument, which is a path (it has a slash or the extension), the name of a scenario, or else an existing file.
// NotFound: it is none of these; the message lists the names.
absl::StatusOr<std::string> FindScenario(const std::string& file_or_name);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_SCENARIOS_H_
