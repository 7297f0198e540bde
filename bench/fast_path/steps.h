// SPDX-License-Identifier: Apache-2.0
// Counts what a program executes between its marks (steps_here.h), instruction by instruction, with ptrace. No clock is
// involved, so the same build gives the same figures on a loaded machine.
//
// Code within the driver (the simulated driver's object, and what it calls) is not counted. Only the call is recorded, with the
// name of the function.
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
  uint64_t instructions = 0;  // outside the driver
  uint64_t atomics = 0;       // those of them that lock the bus
  uint64_t syscalls = 0;
  uint64_t allocations = 0;  // calls of malloc and similar functions
  uint64_t clock_reads = 0;
  std::vector<std::string> driver_calls;  // names in the order of the calls

  bool operator<(const Counts& other) const { return instructions < other.instructions; }
};

// All occurrences of each piece, by name, in the order of the names' first occurrence.
using Pieces = std::vector<std::pair<std::string, std::vector<Counts>>>;

// `driver`: how the path of the driver's object ends. FailedPrecondition: this machine does not let a process trace another.
absl::StatusOr<Pieces> CountSteps(const std::vector<std::string>& command,
                                  const std::vector<std::string>& environment,
                                  const std::string& driver);

}  // namespace gpushare::fast_path

#endif  // GPUSHARE_BENCH_FAST_PATH_STEPS_H_
