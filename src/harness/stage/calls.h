// SPDX-License-Identifier: Apache-2.0
// Measures what a tenant's calls cost the host, beside the same calls made to the driver directly.
//
//   GPUSHARE_ASSIGN_OR_RETURN(outcome.calls, MeasureCalls(seat->calls(), bare));
//
// The figure is processor time of the calling thread, on the machine's clock, over alternating bursts, so that disturbances affect
// both sides. It varies from run to run: do not assert on it.
#ifndef GPUSHARE_HARNESS_STAGE_CALLS_H_
#define GPUSHARE_HARNESS_STAGE_CALLS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "harness/plan.h"

namespace gpushare::harness {

// A burst is one virtual call, so that nothing else is measured.
class Calls {
 public:
  virtual ~Calls() = default;
  virtual absl::Status Launch(int times) = 0;           // of a short kernel
  virtual absl::Status LaunchGraph(int times) = 0;      // of some of these
  virtual absl::Status AllocateAndFree(int times) = 0;  // of a piece of memory
  virtual absl::Status Drain() = 0;                     // until all that was launched has ended
};

// Bursts are shorter than what a limiter lets be in flight: a held call would not tell what calls cost.
inline constexpr int kCallRounds = 41, kKernelsInGraph = 4;

absl::StatusOr<std::vector<CallCost>> MeasureCalls(Calls& mine, Calls& bare);

// The medians per call, from the bursts' times in ns. Both sides have the same number of bursts, in the order in which they were made.
CallCost CostOf(const std::string& call, std::vector<double> mine_ns, std::vector<double> bare_ns,
                int calls_in_burst);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_CALLS_H_
