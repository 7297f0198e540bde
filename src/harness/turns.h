// SPDX-License-Identifier: Apache-2.0
// The order in which cases are run by methods, and an estimate of how long each run takes.
//
//   const std::vector<Turn> turns = TurnsOf(scenarios, methods, {.repetitions = 3, .seed = 1, .ground = Ground::kSimulated});
#ifndef GPUSHARE_HARNESS_TURNS_H_
#define GPUSHARE_HARNESS_TURNS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "harness/method.h"
#include "harness/scenario.h"

namespace gpushare::harness {

// One case by one method, once.
struct Turn {
  const Scenario* scenario;
  const Case* one;
  const Method* method;
  int repetition;
  std::string why_not = {};  // why the method cannot run the case; empty if it can
  double weight =
      0;  // estimate in s: device time and start-up, including the baseline runs that it waits for
};

struct TurnOptions {
  int repetitions = 1;
  uint64_t seed = 1;
  Ground ground = Ground::kSimulated;
};

// All methods of a case run next to each other, in an order that changes with each repetition, so that drifts of the machine affect
// all of them. The first method of a case waits for the baseline runs (alone.h).
std::vector<Turn> TurnsOf(const std::vector<Scenario>& scenarios,
                          const std::vector<Method>& methods, const TurnOptions& options);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_TURNS_H_
