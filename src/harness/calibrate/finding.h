// SPDX-License-Identifier: Apache-2.0
// What a program of `gpushare bench calibrate` found out, as it tells the harness: a line of JSON each, so that what was
// found before a crash is there.
#ifndef GPUSHARE_HARNESS_CALIBRATE_FINDING_H_
#define GPUSHARE_HARNESS_CALIBRATE_FINDING_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gpushare::harness {

// One of the three: samples, words, or why there are none.
struct Finding {
  static constexpr size_t kMostSamples = 100'000;
  std::string name;
  std::vector<double> samples = {};  // in the unit that figures.def has
  std::string words = {};
  std::string why_not = {};
};

std::string FormatFinding(const Finding& finding);  // with the end of its line
// InvalidArgument: it is none. Numbers are finite.
absl::StatusOr<Finding> ParseFinding(std::string_view line);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_CALIBRATE_FINDING_H_
