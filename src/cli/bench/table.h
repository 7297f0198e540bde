// SPDX-License-Identifier: Apache-2.0
// Results as tables for a terminal.
#ifndef GPUSHARE_CLI_BENCH_TABLE_H_
#define GPUSHARE_CLI_BENCH_TABLE_H_

#include <string>

#include "cli/exit_code.h"
#include "harness/results.h"

namespace gpushare::cli {

// A table for each case, with a row per figure and a column per method: the number of runs with figures (n), and the medians with
// their intervals.
std::string ResultsText(const harness::Results& results);

// `gpushare bench show`.
ExitCode ShowResults(const std::string& file);

// `gpushare bench compare`. kExitFailed: a figure became worse or is missing. Different conditions of the two files are reported and
// are no failure.
ExitCode CompareResults(const std::string& before, const std::string& after);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_TABLE_H_
