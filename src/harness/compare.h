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
  kSame,  // the intervals in which the medians lie have values in common, or it is too little to matter (LeastEffect)
  kBetter,     // neither, and the second is better
  kWorse,      // or worse
  kDifferent,  // or neither is better: the figure has no direction, or is by the host's clock
  kUnsure,     // or so few repetitions of so many figures may lie so by chance
  kMissing,    // the second has none, and the first has
  kNew,        // the first has none, and the second has
};
const char* VerdictName(Verdict verdict);
// Whether whoever changed something between the two has to look at it.
bool IsWorse(Verdict verdict);

// A verdict is wrong about two files of the same thing with at most this probability, over all that is compared. Of F
// figures each is given one at p <= kFalseVerdict / F alone, p being ChanceApart() of statistics.h (Bonferroni: whatever
// figures have to do with each other, the sum of these bounds the chance of any). Since p is at least 2 / C(2n, n) of n
// repetitions each, they have to be RepetitionsFor(F): of one figure 4, of 20 figures 6, of 300 figures 8, of 4,000 10.
// Three, with which 1 figure of 10 lies apart by chance, never give a verdict.
inline constexpr double kFalseVerdict = 0.05;
size_t RepetitionsFor(size_t figures);

// Less than this is no difference, however surely it is there: simulated runs with one seed repeat to the last digit.
// In the figure's unit, for medians of that size.
double LeastEffect(const std::string& unit, double before, double after);

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
// Of those the figures that have values on either side, by which verdicts are given.
size_t FiguresCompared(const std::vector<Comparison>& comparisons);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_COMPARE_H_
