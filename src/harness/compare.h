// SPDX-License-Identifier: Apache-2.0
// Two files of results, figure by figure: what is different beyond what repetitions differ by.
#ifndef GPUSHARE_HARNESS_COMPARE_H_
#define GPUSHARE_HARNESS_COMPARE_H_

#include <string>
#include <vector>

#include "harness/results.h"
#include "harness/statistics.h"

namespace gpushare::harness {

enum class Verdict : uint8_t {
  kSame,       // the intervals in which the medians lie have values in common
  kBetter,     // they have not, and the second is better
  kWorse,      // or worse
  kDifferent,  // or neither is better: the figure has no direction
  kUnsure,     // one of them was measured less than kLeastRepetitions times
};
const char* VerdictName(Verdict verdict);

inline constexpr size_t kLeastRepetitions = 3;

struct Comparison {
  std::string scenario, one_case, method, figure, unit;
  Median before, after;
  Verdict verdict = Verdict::kSame;
};

// What both have, in the first one's order. A run that failed has no figures, and is no repetition.
std::vector<Comparison> Compare(const Results& before, const Results& after);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_COMPARE_H_
