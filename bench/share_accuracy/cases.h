// SPDX-License-Identifier: Apache-2.0
// All cases, and the traces that they play.
#ifndef GPUSHARE_BENCH_SHARE_ACCURACY_CASES_H_
#define GPUSHARE_BENCH_SHARE_ACCURACY_CASES_H_

#include <map>
#include <string>
#include <vector>

#include "bench/share_accuracy/figures.h"

namespace gpushare::bench {

using Traces = std::map<std::string, Trace>;

// By name: kernels of about so long, on how many SMs.
Traces SyntheticTraces();
// Adds those of the networks that src/workload builds.
absl::Status AddModels(Traces* traces);
// Adds those of real networks from `folder`; an error when one is missing.
absl::Status AddRealTraces(const std::string& folder, Traces* traces);

// `real`: `traces` has those of real networks.
std::vector<Case> Cases(const Traces& traces, bool real);

}  // namespace gpushare::bench

#endif  // GPUSHARE_BENCH_SHARE_ACCURACY_CASES_H_
