// SPDX-License-Identifier: Apache-2.0
// What a run says about the question of its scenario.
#ifndef GPUSHARE_HARNESS_FIGURES_H_
#define GPUSHARE_HARNESS_FIGURES_H_

#include <optional>
#include <string>
#include <vector>

#include "harness/plan.h"
#include "harness/scenario.h"

namespace gpushare::harness {

struct Figure {
  enum class Better : uint8_t { kNeither, kLower, kHigher };
  std::string name;                 // "train-a.share"
  std::string unit;                 // "%", "pp", "us", ""
  std::optional<double> value = 0;  // nothing: there was no sample
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
//            TENANT.served    % of the requests that came
//            TENANT.p99_ratio the same ÷ that alone
//            TENANT.share     % of the time, of the others
// A window begins at each sample. It counts for a tenant (but for what is above a cap) where that had work all the time: one
// that serves requests where some were waiting or being served throughout. Where another had none in between, what it left
// is nobody's error: then only what is missing counts. A request that was not served when the run ended took at least until
// then. `alone`: those that serve requests, each by itself (alone.h); others have none.
std::vector<Figure> FiguresOf(const Scenario& scenario, const Case& one, const Outcome& outcome,
                              const Outcome& alone);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_FIGURES_H_
