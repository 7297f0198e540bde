// SPDX-License-Identifier: Apache-2.0
// What requests take on a device that nobody else uses: what the latency question compares with.
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

// How many runs that is: of a case whose question asks for none, 0.
size_t RunsAlone(const Scenario& scenario, const Case& one);
// Whether they are told as the time of SMs, as the method that is compared with them is; of requests that is their time.
bool AloneBySms(const Scenario& scenario, const Method& method);

class Alone {
 public:
  using Play = std::function<absl::StatusOr<Outcome>(const Scenario& scenario, const Case& one,
                                                     const RunOptions& options)>;
  explicit Alone(Play play) : play_(std::move(play)) {}

  // Of each tenant of the case that serves requests, in a run without any other (kept.h). Valid until the next call.
  const absl::StatusOr<Outcome>& Of(const Scenario& scenario, const Case& one, uint64_t seed);

 private:
  absl::StatusOr<Outcome> PlayEach(const Scenario& scenario, const Case& one, uint64_t seed) const;

  const Play play_;
  Kept kept_;
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_ALONE_H_
