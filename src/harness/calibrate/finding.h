// SPDX-License-Identifier: Apache-2.0
// A finding that a program of `gpushare bench calibrate` reports to the harness. Each is one line of JSON, so that findings before
// a crash are kept.
#ifndef GPUSHARE_HARNESS_CALIBRATE_FINDING_H_
#define GPUSHARE_HARNESS_CALIBRATE_FINDING_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gpushare::harness {

// Has exactly one of: samples, words, or the reason why there are none.
struct Finding {
  static constexpr size_t kMostSamples = 100'000;
  std::string name;
  std::vector<double> samples = {};  // in the unit given in figures.def
  std::string words = {};
  std::string why_not = {};
};

std::string FormatFinding(const Finding& finding);  // with its newline
// InvalidArgument: the line is not a finding. Numbers are finite.
absl::StatusOr<Finding> ParseFinding(std::string_view line);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_CALIBRATE_FINDING_H_
