// SPDX-License-Identifier: Apache-2.0
// Two files of results, figure by figure: what is different beyond what repetitions differ by, and what one of them lacks.
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
  kMissing,    // the second has none, and the first has
  kNew,        // the first has none, and the second has
};
const char* VerdictName(Verdict verdict);
// Whether whoever changed something between the two has to look at it.
bool IsWorse(Verdict verdict);

inline constexpr size_t kLeastRepetitions = 3;

struct Comparison {
  struct Side {
    Median median;
    std::string
        why;  // that has no value: "not there", "no samples", "not supported: ...", "failed: ..."
  };
  // `figure` is "runs" where it is about whether there are any: "3", "1 of 3 failed: ...".
  std::string scenario, one_case, method, figure, unit;
  Side before, after;
  Verdict verdict = Verdict::kSame;
};

// What either has, in the first one's order. A run that failed has no figures, and is no repetition. Of a case and a method
// there is a row "runs" before its figures where a run of either failed, and in their place where either has none at all.
std::vector<Comparison> Compare(const Results& before, const Results& after);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_COMPARE_H_
