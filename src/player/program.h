// SPDX-License-Identifier: Apache-2.0
// A kernel trace made ready to launch: its spin kernels loaded into the current context.
//
//   GPUSHARE_ASSIGN_OR_RETURN(auto program, Program::Load(driver, trace, device));
//   for (const Program::Step& step : program->steps()) { ... step.function, step.shape, step.params() ... }
//
// Threads: read-only after Load(). The context must be current for Load() and for the destructor.
#ifndef GPUSHARE_PLAYER_PROGRAM_H_
#define GPUSHARE_PLAYER_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "driver/driver.h"
#include "workload/spin.h"
#include "workload/trace.h"

namespace gpushare::player {

class Program {
 public:
  struct Step {
    driver::Function function;
    driver::LaunchShape shape;
    uint64_t duration_ns, block_ns;
    // The kernel's arguments in the form that launches take; valid while the step is.
    struct Params {
      void* pointers[2];
    };
    Params params() const {
      return {{const_cast<uint64_t*>(&duration_ns), const_cast<uint64_t*>(&block_ns)}};
    }
  };

  static absl::StatusOr<std::unique_ptr<Program>> Load(const driver::Driver& driver,
                                                       const workload::KernelTrace& trace,
                                                       const workload::SpinDevice& device);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const std::vector<Step>& steps() const { return steps_; }
  // Device time of one pass over the steps, when alone.
  Nanos duration() const { return duration_; }

 private:
  Program(const driver::Driver& driver, driver::Module module) : driver_(driver), module_(module) {}

  const driver::Driver& driver_;
  const driver::Module module_;
  std::vector<Step> steps_;
  Nanos duration_{0};
};

// What spin kernels must know of GPU `ordinal`.
absl::StatusOr<workload::SpinDevice> DescribeForSpin(const driver::Driver& driver, int ordinal);

}  // namespace gpushare::player

#endif  // GPUSHARE_PLAYER_PROGRAM_H_
