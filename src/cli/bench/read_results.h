// SPDX-License-Identifier: Apache-2.0
// Results from a file that a person has named.
#ifndef GPUSHARE_CLI_BENCH_READ_RESULTS_H_
#define GPUSHARE_CLI_BENCH_READ_RESULTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "harness/results.h"

namespace gpushare::cli {

// NotFound: the file cannot be read; else as ParseResults().
absl::StatusOr<harness::Results> ReadResults(const std::string& file);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_READ_RESULTS_H_
