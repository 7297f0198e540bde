// SPDX-License-Identifier: Apache-2.0
// The table of what each hook may cost, and what a run says of it.
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
  std::string driver_calls;  // names, with commas
};
struct Budget {
  std::string build;  // compiler and options, of which instructions depend
  std::vector<Row> rows;
};

std::string ToText(const Budget& budget);
absl::StatusOr<Budget> FromText(const std::string& text);

// What differs, a line each; empty: nothing. All must be as it stands in the table, but that instructions may be fewer by
// 5 % (and more by 2 %), and are not compared between builds of different compilers.
std::vector<std::string> Compare(const Budget& table, const Budget& measured);

}  // namespace gpushare::fast_path

#endif  // GPUSHARE_BENCH_FAST_PATH_BUDGET_H_
