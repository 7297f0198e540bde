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

// Their names, sorted. Unavailable: they are not beside this command; where they were looked for.
absl::StatusOr<std::vector<std::string>> ScenarioNames();

// A file: what is a path, or there, is taken as it is; else it is a name. NotFound: it is neither; which names there are.
absl::StatusOr<std::string> FindScenario(const std::string& file_or_name);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_SCENARIOS_H_
