// SPDX-License-Identifier: Apache-2.0
// What `gpushare bench` runs on, and how it is described in results.
#ifndef GPUSHARE_CLI_BENCH_BED_H_
#define GPUSHARE_CLI_BENCH_BED_H_

#include "absl/status/statusor.h"
#include "cli/bench/card.h"
#include "harness/results.h"
#include "harness/run.h"

namespace gpushare::cli {

// The simulated GPU and the programs beside this command. Unavailable: they are not there; where they were looked for.
// InvalidArgument: there is no folder for a run's files.
absl::StatusOr<harness::Bed> FindBed();
// The same but for the simulated GPU, with a card in place of it.
absl::StatusOr<harness::Bed> FindBed(const FoundCard& card);

harness::Circumstances DescribeCircumstances();

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_BED_H_
