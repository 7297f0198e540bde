// SPDX-License-Identifier: Apache-2.0
// What calls cost the host: of a tenant, beside the same calls past whatever shares the GPU.
//
//   GPUSHARE_ASSIGN_OR_RETURN(outcome.calls, MeasureCalls(seat->calls(), bare));
//
// Processor time of the calling thread, by the machine's clock, in bursts of either in turns: what disturbs the machine meets
// both. What differs from run to run is not for asserting.
#ifndef GPUSHARE_HARNESS_STAGE_CALLS_H_
#define GPUSHARE_HARNESS_STAGE_CALLS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "harness/plan.h"

namespace gpushare::harness {

// A burst is within a call, so that nothing but the calls is measured.
class Calls {
 public:
  virtual ~Calls() = default;
  virtual absl::Status Launch(int times) = 0;           // of a short kernel
  virtual absl::Status LaunchGraph(int times) = 0;      // of some of these
  virtual absl::Status AllocateAndFree(int times) = 0;  // of a piece of memory
  virtual absl::Status Drain() = 0;                     // until all that was launched has ended
};

// Bursts are short of what a limiter lets be under way at one time: a call that is held tells nothing of what calls cost.
inline constexpr int kCallRounds = 41, kKernelsInGraph = 4;

absl::StatusOr<std::vector<CallCost>> MeasureCalls(Calls& mine, Calls& bare);

// Of bursts with their times in ns, medians for each call. As many of either, in the order in which they were made.
CallCost CostOf(const std::string& call, std::vector<double> mine_ns, std::vector<double> bare_ns,
                int calls_in_burst);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_CALLS_H_
