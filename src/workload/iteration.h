// SPDX-License-Identifier: Apache-2.0
// Finds one iteration of a program in a recording of many: the sequence that repeats at the end.
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

// The sequence must occur at least this often, whole, without gaps.
inline constexpr int64_t kLeastRepeats = 3;

// The sequence of names and footprints that occurs kLeastRepeats times or more at the end of the trace. Of several such
// sequences, the one with repeats that reach back furthest; of these, the shortest. Each kernel gets its median duration over
// all repeats. The sequence begins where the last repeat begins, which need not be where the program's own loop begins.
// NotFound: there is none.
// loop does. NotFound: there is none.
absl::StatusOr<Iteration> LastIteration(const KernelTrace& trace);

}  // namespace gpushare::workload

#endif  // GPUSHARE_WORKLOAD_ITERATION_H_
