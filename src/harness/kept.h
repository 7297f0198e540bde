// SPDX-License-Identifier: Apache-2.0
// Caches the outcome of a baseline run that several methods are compared with, so that it is played once.
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
  // The outcome for the case and seed, played by `run` unless they are those of the last call. Errors are cached too. Valid until
  // the next call.
  template <typename Play>
  const absl::StatusOr<Outcome>& Of(const Case& one, uint64_t seed, const Play& play) {
    if (case_ == &one && seed_ == seed) return kept_;
    kept_ = play();
    // An interrupted run has not failed, so it is not cached.
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
