// SPDX-License-Identifier: Apache-2.0
// What a run says about the question of its scenario.
#ifndef GPUSHARE_HARNESS_FIGURES_H_
#define GPUSHARE_HARNESS_FIGURES_H_

#include <string>
#include <vector>

#include "harness/plan.h"
#include "harness/scenario.h"

namespace gpushare::harness {

struct Figure {
  enum class Better : uint8_t { kNeither, kLower, kHigher };
  std::string name;  // "train-a.share"
  std::string unit;  // "%", "pp", "us", ""
  double value = 0;
  Better better = Better::kNeither;
};

// By the question, all of the time after the warm-up:
//   share    TENANT.share     % of what all of them used
//            worst_error      pp; the largest difference from what was asked in any window
//            busy             % of the time
//   cap      TENANT.share     % of the time
//            worst_over       pp; how much more than its cap any tenant had in any window
//            worst_under      pp; how much less, though nothing but its cap held it
//   latency  TENANT.p50 .p95 .p99 .p999   us, of each tenant that serves requests
//            TENANT.p99_ratio the same ÷ that alone
//            TENANT.share     % of the time, of the others
// A window begins at each sample. `alone` is the run of those that serve requests by themselves; others have none.
std::vector<Figure> FiguresOf(const Scenario& scenario, const Case& one, const Outcome& outcome,
                              const Outcome& alone);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_FIGURES_H_
