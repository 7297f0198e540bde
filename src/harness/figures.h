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
  // By the host's clock, not the device's: what else the machine does goes into it.
  bool by_host = false;
};

// By the question (questions/), all of the time after the warm-up. A window begins at each sample. It counts for a tenant
// (but for what is above a cap) where that had work all the time: one that serves requests where some were waiting or being
// served throughout. Where another had none in between, what it left is nobody's error: then only what is missing counts. A
// request that was not served when the run ended took at least until then. `alone`: those that serve requests, each by
// itself (alone.h); others have none. `ungated`: all of them natively.
std::vector<Figure> FiguresOf(const Scenario& scenario, const Case& one, const Outcome& outcome,
                              const Outcome& alone, const Outcome& ungated = {});

// In %; of nothing nothing.
std::optional<double> PercentOf(const std::optional<double>& part);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_FIGURES_H_
