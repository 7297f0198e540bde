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

// The file of what is a path, has the ending of one, is a name or, if nothing is called that, is there. NotFound: it is none
// of these; which names there are.
absl::StatusOr<std::string> FindScenario(const std::string& file_or_name);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_SCENARIOS_H_
