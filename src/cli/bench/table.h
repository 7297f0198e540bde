// SPDX-License-Identifier: Apache-2.0
// Results for a terminal.
#ifndef GPUSHARE_CLI_BENCH_TABLE_H_
#define GPUSHARE_CLI_BENCH_TABLE_H_

#include <string>

#include "cli/exit_code.h"
#include "harness/results.h"

namespace gpushare::cli {

// A table for each case: a row a figure, a column a method; how many runs have figures (n), medians over them, with the
// interval in which these lie behind them where it is one.
std::string ResultsText(const harness::Results& results);

// `gpushare bench show`.
ExitCode ShowResults(const std::string& file);

// `gpushare bench compare`: kExitFailed where a figure became worse or is missing; what else is different in how the two
// were made is told and is no failure.
ExitCode CompareResults(const std::string& before, const std::string& after);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_TABLE_H_
