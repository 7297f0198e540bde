// SPDX-License-Identifier: Apache-2.0
// The programs in which tenants play.
//
//   int main(int argc, char** argv) { return RunStage(argc, argv, OpenNativeStage); }
//
// One program plays on the driver directly, as most programs do; the other on virtual devices. Neither knows which limiter, if any,
// is in force.
#ifndef GPUSHARE_HARNESS_STAGE_STAGE_H_
#define GPUSHARE_HARNESS_STAGE_STAGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "harness/plan.h"
#include "harness/stage/asking.h"
#include "harness/stage/calls.h"
#include "harness/stage/witness.h"
#include "player/port.h"
#include "player/program.h"
#include "workload/trace.h"

namespace gpushare::harness {

// One tenant's stream, kernels and memory.
class Seat : public Memory {
 public:
  virtual player::Port& port() = 0;
  virtual const player::Program& program() const = 0;
  virtual CUstream_st* stream() const = 0;
  // The tenant's calls, for measuring their cost on the calling thread.
  virtual absl::StatusOr<std::unique_ptr<Calls>> MakeCalls() = 0;
};

class Stage {
 public:
  virtual ~Stage() = default;
  // Called before Sit(): the plan's tenants with specs completed for this device. Unimplemented: the plan cannot be played here, and
  // why.
  virtual absl::StatusOr<std::vector<TenantPlan>> Prepare(const Plan& plan) { return plan.tenants; }
  virtual absl::StatusOr<std::unique_ptr<Seat>> Sit(const TenantPlan& plan,
                                                    const workload::KernelTrace& trace) = 0;
};

// Opens the stage, which makes the first use of the GPU. The clock and the witness outlive the stage.
using OpenStage = std::function<absl::StatusOr<std::unique_ptr<Stage>>(base::Clock& clock)>;

// Plays the plan in the file argv[2] and writes the outcome. Ends when process argv[1] ends. Returns the exit status: 0 if the
// outcome was written. Errors go to standard error; in a tolerant plan they are part of the outcome as well.
int RunStage(int argc, char** argv, const OpenStage& open);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_STAGE_H_
