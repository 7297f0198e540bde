// SPDX-License-Identifier: Apache-2.0
// One case by one method, once.
//
//   GPUSHARE_ASSIGN_OR_RETURN(const Outcome outcome, Run(bed, scenario, scenario.cases[0], method, {.seed = 7}));
#ifndef GPUSHARE_HARNESS_RUN_H_
#define GPUSHARE_HARNESS_RUN_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "harness/method.h"
#include "harness/plan.h"
#include "harness/scenario.h"

namespace gpushare::harness {

inline constexpr Nanos kSample = Millis(10);

// Where the parts lie that a run needs.
struct Bed {
  std::string programs;        // the folder of those of stage/
  std::string preload;         // libgpushare_preload.so
  std::string simulated;       // the simulated libcuda.so.1
  Nanos limit = Seconds(120);  // of the machine's time
};

struct RunOptions {
  uint64_t seed = 1;            // of requests and of the simulated GPU's noise
  bool requests_alone = false;  // only the tenants that serve requests
};

// The tenants' outcomes in the case's order. Errors: DeadlineExceeded (the method hung), Internal (a program failed, with
// what it said); what else was started has ended by then.
absl::StatusOr<Outcome> Run(const Bed& bed, const Scenario& scenario, const Case& one,
                            const Method& method, const RunOptions& options);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_RUN_H_
