// SPDX-License-Identifier: Apache-2.0
// Finds what `gpushare bench` runs on, and describes it for results.
#ifndef GPUSHARE_CLI_BENCH_BED_H_
#define GPUSHARE_CLI_BENCH_BED_H_

#include "absl/status/statusor.h"
#include "cli/bench/card.h"
#include "harness/results.h"
#include "harness/run.h"

namespace gpushare::cli {

// The simulated GPU, with the programs beside this command. Unavailable: they were not found, and where they were searched for.
// InvalidArgument: there is no folder for a run's files.
absl::StatusOr<harness::Bed> FindBed();
// Likewise, with a real GPU.
absl::StatusOr<harness::Bed> FindBed(const FoundCard& card);

harness::Circumstances DescribeCircumstances();

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_BED_H_
