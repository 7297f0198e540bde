// SPDX-License-Identifier: Apache-2.0
// Runs one case by one method, once.
//
//   GPUSHARE_ASSIGN_OR_RETURN(const Outcome outcome, Run(bed, scenario, scenario.cases[0], method, {.seed = 7}));
#ifndef GPUSHARE_HARNESS_RUN_H_
#define GPUSHARE_HARNESS_RUN_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "harness/method.h"
#include "harness/plan.h"
#include "harness/scenario.h"
#include "harness/simulated.h"

namespace gpushare::harness {

// A GPU of the driver that the loader finds or GPUSHARE_DRIVER names.
struct Card {
  std::string driver;  // its path
  std::string uuid;    // as CUDA_VISIBLE_DEVICES knows it
  // The caller's GPUSHARE_SIM, if that driver is the simulated one.
  std::optional<std::string> settings = std::nullopt;
};

// The paths of the parts that a run needs.
struct Bed {
  std::string programs;   // the folder of those of stage/
  std::string preload;    // libgpushare_preload.so
  std::string simulated;  // the simulated libcuda.so.1
  Simulated gpu;          // the same, as the harness asks it
  std::optional<Card> card =
      std::nullopt;       // runs are there, with kernels as the witness; none: on the simulated one
  std::string temporary;  // a folder in which each run has one of its own (folder.h)
  Nanos limit = Seconds(120);  // of the machine's time; on a card beside the length of the run
  // Ends runs when nonzero: the number of a signal, set by its handler.
  const std::atomic<int>* interrupted = nullptr;
};

struct RunOptions {
  uint64_t seed = 1;  // of requests and of the simulated GPU's noise
  std::optional<size_t> only =
      std::nullopt;      // of the case's tenants this one alone, with the same requests
  bool sm_time = false;  // what tenants had is told as the time of SMs (plan.h)
  bool apart =
      false;  // each program has a GPU of its own, on the machine's clock, and plays for a moment
};

// The tenants' outcomes in the case's order. Unimplemented: the method cannot run the case here, and why. DeadlineExceeded: it
// hung. Internal: a program failed, with the end of its output. Cancelled: interrupted. When this returns, everything that was
// started has ended and its files are removed.
absl::StatusOr<Outcome> Run(const Bed& bed, const Scenario& scenario, const Case& one,
                            const Method& method, const RunOptions& options);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_RUN_H_
