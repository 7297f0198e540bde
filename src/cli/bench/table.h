// SPDX-License-Identifier: Apache-2.0
// Results for a terminal.
#ifndef GPUSHARE_CLI_BENCH_TABLE_H_
#define GPUSHARE_CLI_BENCH_TABLE_H_

#include <string>

#include "cli/exit_code.h"
#include "harness/results.h"

namespace gpushare::cli {

// A table for each case: a row a figure, a column a method; medians over the repetitions, with the interval in which they
// lie behind them where there are several.
std::string ResultsText(const harness::Results& results);

// `gpushare bench show`.
ExitCode ShowResults(const std::string& file);

// `gpushare bench compare`: kExitFailed where a figure became worse.
ExitCode CompareResults(const std::string& before, const std::string& after);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_TABLE_H_
