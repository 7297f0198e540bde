// SPDX-License-Identifier: Apache-2.0
// One iteration of a program, out of many that were recorded: what comes again and again at the end.
//
//   GPUSHARE_ASSIGN_OR_RETURN(Iteration one, LastIteration(recorded));
//   // one.trace has the kernels of an iteration, one.repeats iterations were seen.
#ifndef GPUSHARE_WORKLOAD_ITERATION_H_
#define GPUSHARE_WORKLOAD_ITERATION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "workload/trace.h"

namespace gpushare::workload {

struct Iteration {
  KernelTrace trace;
  int64_t repeats = 0;
};

// So often it has to be there, whole, one after the other.
inline constexpr int64_t kLeastRepeats = 3;

// The sequence of names and footprints that the trace ends with kLeastRepeats times or more: of several the one whose repeats
// reach back furthest, and then the shortest. Each kernel takes the median of what it took in all repeats. It begins where the last repeat begins, which need not be where the program's own
// loop does. NotFound: there is none.
absl::StatusOr<Iteration> LastIteration(const KernelTrace& trace);

}  // namespace gpushare::workload

#endif  // GPUSHARE_WORKLOAD_ITERATION_H_
