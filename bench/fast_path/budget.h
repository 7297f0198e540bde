// SPDX-License-Identifier: Apache-2.0
// The table of what each hook may cost, and its comparison with a run.
#ifndef GPUSHARE_BENCH_FAST_PATH_BUDGET_H_
#define GPUSHARE_BENCH_FAST_PATH_BUDGET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gpushare::fast_path {

struct Row {
  std::string hook;
  uint64_t instructions = 0, atomics = 0, clock_reads = 0, allocations = 0, syscalls = 0;
  std::string driver_calls;  // names, separated by commas
};
struct Budget {
  std::string build;  // compiler and options, on which the instruction counts depend
  std::vector<Row> rows;
};

std::string ToText(const Budget& budget);
absl::StatusOr<Budget> FromText(const std::string& text);

// The differences, one per line; empty if there are none. All figures must be equal to the table's, except that there may be 5
// % fewer or 2 % more instructions. Instructions are not compared between builds of different compilers.
std::vector<std::string> Compare(const Budget& table, const Budget& measured);

}  // namespace gpushare::fast_path

#endif  // GPUSHARE_BENCH_FAST_PATH_BUDGET_H_
