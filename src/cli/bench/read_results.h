// SPDX-License-Identifier: Apache-2.0
// Reads results from a file named on the command line.
#ifndef GPUSHARE_CLI_BENCH_READ_RESULTS_H_
#define GPUSHARE_CLI_BENCH_READ_RESULTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "harness/results.h"

namespace gpushare::cli {

// NotFound: the file cannot be read. Other errors are those of ParseResults().
absl::StatusOr<harness::Results> ReadResults(const std::string& file);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_READ_RESULTS_H_
