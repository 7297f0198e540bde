// SPDX-License-Identifier: Apache-2.0
#include "bench/fast_path/budget.h"

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gpushare::fast_path {
namespace {

constexpr char kBuild[] = "# build: ";
constexpr double kMore = 1.02, kFewer = 0.95;

}  // namespace

std::string ToText(const Budget& budget) {
  std::string text = absl::StrCat(
      "# What each hook costs beside the driver's own calls; see README.md. Written by the target "
      "fast_path_budget.\n",
      kBuild, budget.build,
      "\n# hook; instructions; atomics; clock reads; allocations; syscalls; calls of the driver\n");
  for (const Row& row : budget.rows) {
    absl::StrAppend(&text, absl::StrFormat("%-36s; %5d; %2d; %d; %d; %d; %s\n", row.hook,
                                           row.instructions, row.atomics, row.clock_reads,
                                           row.allocations, row.syscalls, row.driver_calls));
  }
  return text;
}

absl::StatusOr<Budget> FromText(const std::string& text) {
  Budget budget;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (absl::ConsumePrefix(&line, kBuild)) budget.build = std::string(line);
    if (line.empty() || line.front() == '#' || line == budget.build) continue;
    std::vector<std::string> fields = absl::StrSplit(line, ';');
    for (std::string& field : fields) field = std::string(absl::StripAsciiWhitespace(field));
    Row row;
    if (fields.size() != 7 || !absl::SimpleAtoi(fields[1], &row.instructions) ||
        !absl::SimpleAtoi(fields[2], &row.atomics) ||
        !absl::SimpleAtoi(fields[3], &row.clock_reads) ||
        !absl::SimpleAtoi(fields[4], &row.allocations) ||
        !absl::SimpleAtoi(fields[5], &row.syscalls)) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, " is no row of the table: ", line));
    }
    row.hook = fields[0];
    row.driver_calls = fields[6];
    budget.rows.push_back(row);
  }
  return budget;
}

std::vector<std::string> Compare(const Budget& table, const Budget& measured) {
  std::vector<std::string> differences;
  for (const Row& row : measured.rows) {
    const auto wanted = std::find_if(table.rows.begin(), table.rows.end(),
                                     [&](const Row& r) { return r.hook == row.hook; });
    if (wanted == table.rows.end()) {
      differences.push_back(absl::StrCat(row.hook, ": not in the table"));
      continue;
    }
    const auto expect = [&](const char* what, uint64_t is, uint64_t was) {
      if (is != was)
        differences.push_back(absl::StrCat(row.hook, ": ", is, " ", what, ", in the table ", was));
    };
    expect("atomics", row.atomics, wanted->atomics);
    expect("clock reads", row.clock_reads, wanted->clock_reads);
    expect("allocations", row.allocations, wanted->allocations);
    expect("syscalls", row.syscalls, wanted->syscalls);
    if (row.driver_calls != wanted->driver_calls) {
      differences.push_back(absl::StrCat(row.hook, ": calls ", row.driver_calls, ", in the table ",
                                         wanted->driver_calls));
    }
    if (table.build != measured.build) continue;
    const double ratio = static_cast<double>(row.instructions) /
                         std::max(1.0, static_cast<double>(wanted->instructions));
    if (ratio > kMore || ratio < kFewer)
      expect("instructions", row.instructions, wanted->instructions);
  }
  for (const Row& row : table.rows) {
    const bool there = std::any_of(measured.rows.begin(), measured.rows.end(),
                                   [&](const Row& r) { return r.hook == row.hook; });
    if (!there) differences.push_back(absl::StrCat(row.hook, ": in the table, and not measured"));
  }
  return differences;
}

}  // namespace gpushare::fast_path
