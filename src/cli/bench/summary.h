// SPDX-License-Identifier: Apache-2.0
// Results as sentences for a terminal, for each method in each scenario.
#ifndef GPUSHARE_CLI_BENCH_SUMMARY_H_
#define GPUSHARE_CLI_BENCH_SUMMARY_H_

#include <string>

#include "harness/results.h"

namespace gpushare::cli {

std::string SummaryText(const harness::Results& results);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_SUMMARY_H_
