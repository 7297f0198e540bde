// SPDX-License-Identifier: Apache-2.0
// How long requests take on a device without other tenants: the baseline of the latency question.
//
//   Alone alone([&](const Scenario& scenario, const Case& one, const RunOptions& options) {
//     return Run(bed, scenario, one, {"native", Method::Kind::kNative}, options);
//   });
//   GPUSHARE_ASSIGN_OR_RETURN(const Outcome outcome, alone.Of(scenario, scenario.cases[0], seed));
#ifndef GPUSHARE_HARNESS_ALONE_H_
#define GPUSHARE_HARNESS_ALONE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/statusor.h"
#include "harness/kept.h"
#include "harness/run.h"

namespace gpushare::harness {

// The number of such runs for a case; 0 if its question needs none.
size_t RunsAlone(const Scenario& scenario, const Case& one);
// Whether these runs report SM time, like the method that is compared with them. For requests that is their latency.
bool AloneBySms(const Scenario& scenario, const Method& method);

class Alone {
 public:
  using Play = std::function<absl::StatusOr<Outcome>(const Scenario& scenario, const Case& one,
                                                     const RunOptions& options)>;
  explicit Alone(Play play) : play_(std::move(play)) {}

  // The outcome of each request-serving tenant of the case in a run of its own (kept.h). Valid until the next call.
  const absl::StatusOr<Outcome>& Of(const Scenario& scenario, const Case& one, uint64_t seed);

 private:
  absl::StatusOr<Outcome> PlayEach(const Scenario& scenario, const Case& one, uint64_t seed) const;

  const Play play_;
  Kept kept_;
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_ALONE_H_
