// SPDX-License-Identifier: Apache-2.0
// The outcome of a run that several methods are compared with: it is played once for all of them.
//
//   Kept ungated;
//   const absl::StatusOr<Outcome>& outcome = ungated.Of(scenario.cases[0], seed, [&] { return Run(...); });
#ifndef GPUSHARE_HARNESS_KEPT_H_
#define GPUSHARE_HARNESS_KEPT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "harness/plan.h"
#include "harness/scenario.h"

namespace gpushare::harness {

class Kept {
 public:
  // Of the case and the seed that were asked for last the answer is kept, an error too. Valid until the next call.
  template <typename Play>
  const absl::StatusOr<Outcome>& Of(const Case& one, uint64_t seed, const Play& play) {
    if (case_ == &one && seed_ == seed) return kept_;
    kept_ = play();
    // An interrupted one has not failed.
    case_ = absl::IsCancelled(kept_.status()) ? nullptr : &one;
    seed_ = seed;
    return kept_;
  }

 private:
  const Case* case_ = nullptr;
  uint64_t seed_ = 0;
  absl::StatusOr<Outcome> kept_ = Outcome();
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_KEPT_H_
