// SPDX-License-Identifier: Apache-2.0
// Counts what a program executes between its marks (steps_here.h), instruction by instruction, with ptrace: no clock, so
// that the same build gives the same figures on a loaded machine.
//
// What runs within the driver (the simulated one's object, and what that calls) is not counted: only that it was called,
// and by which name.
#ifndef GPUSHARE_BENCH_FAST_PATH_STEPS_H_
#define GPUSHARE_BENCH_FAST_PATH_STEPS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace gpushare::fast_path {

struct Counts {
  uint64_t instructions = 0;  // outside of the driver
  uint64_t atomics = 0;       // those of them that lock the bus
  uint64_t syscalls = 0;
  uint64_t allocations = 0;  // calls of malloc and its like
  uint64_t clock_reads = 0;
  std::vector<std::string> driver_calls;  // by name, in their order

  bool operator<(const Counts& other) const { return instructions < other.instructions; }
};

// Each piece as often as it was marked, by name, in the order in which the names came first.
using Pieces = std::vector<std::pair<std::string, std::vector<Counts>>>;

// `driver`: what the path of the driver's object ends with. FailedPrecondition: this machine does not let a process
// trace another.
absl::StatusOr<Pieces> CountSteps(const std::vector<std::string>& command,
                                  const std::vector<std::string>& environment,
                                  const std::string& driver);

}  // namespace gpushare::fast_path

#endif  // GPUSHARE_BENCH_FAST_PATH_STEPS_H_
