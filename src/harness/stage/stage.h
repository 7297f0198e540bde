// SPDX-License-Identifier: Apache-2.0
// Where tenants play, and what their programs have in common.
//
//   int main(int argc, char** argv) { return RunStage(argc, argv, OpenNativeStage); }
//
// One program plays on the driver as any program does, the other on virtual devices. Which limiter is about is not
// theirs to know.
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

// One tenant's place: its stream and its kernels there, and its memory.
class Seat : public Memory {
 public:
  virtual player::Port& port() = 0;
  virtual const player::Program& program() const = 0;
  virtual CUstream_st* stream() const = 0;
  // Its calls, as its program makes them; by the thread that asks for them.
  virtual absl::StatusOr<std::unique_ptr<Calls>> MakeCalls() = 0;
};

class Stage {
 public:
  virtual ~Stage() = default;
  // Before anybody sits: the plan's tenants, with what of their specs depends on the device. Unimplemented: it cannot be
  // done there, and why.
  virtual absl::StatusOr<std::vector<TenantPlan>> Prepare(const Plan& plan) { return plan.tenants; }
  virtual absl::StatusOr<std::unique_ptr<Seat>> Sit(const TenantPlan& plan,
                                                    const workload::KernelTrace& trace) = 0;
};

// The first use of the GPU is within; the clock and the witness outlive the stage.
using OpenStage = std::function<absl::StatusOr<std::unique_ptr<Stage>>(base::Clock& clock)>;

// Plays the plan in the file argv[2] and writes what came of it; ends with the process of the number argv[1]. The process's
// exit status: 0 when the answer is written. What went wrong is on standard error; of a tolerant plan it is an answer too.
int RunStage(int argc, char** argv, const OpenStage& open);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_STAGE_H_
