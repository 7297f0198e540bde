// SPDX-License-Identifier: Apache-2.0
// In which order cases are run by which methods, and about how long each of these takes beside the others.
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
  std::string why_not = {};  // the method cannot do it; empty: it can
  double weight =
      0;  // s, of the device's time and of what starting takes; with the runs alone that it waits for
};

struct TurnOptions {
  int repetitions = 1;
  uint64_t seed = 1;
  Ground ground = Ground::kSimulated;
};

// All methods in one case beside one another, in an order that changes from one repetition to the next: what drifts with
// the machine meets all of them. Of what methods are compared with the first of them waits for (alone.h).
std::vector<Turn> TurnsOf(const std::vector<Scenario>& scenarios,
                          const std::vector<Method>& methods, const TurnOptions& options);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_TURNS_H_
