// SPDX-License-Identifier: Apache-2.0
// Compares two files of results figure by figure: which figures differ by more than repetitions do, and which are missing.
#ifndef GPUSHARE_HARNESS_COMPARE_H_
#define GPUSHARE_HARNESS_COMPARE_H_

#include <string>
#include <vector>

#include "harness/results.h"
#include "harness/statistics.h"

namespace gpushare::harness {

enum class Verdict : uint8_t {
  kSame,  // the medians' intervals overlap, or the difference is too small to matter (LeastEffect)
  kBetter,     // they differ, and the second is better
  kWorse,      // they differ, and the second is worse
  kDifferent,  // they differ, and the figure has no direction or is by the host's clock
  kUnsure,     // they differ, but for this number of repetitions and figures it may be chance
  kMissing,    // only the first file has the figure
  kNew,        // only the second file has the figure
};
const char* VerdictName(Verdict verdict);
// Whether the author of the change between the two files has to look at this figure.
bool IsWorse(Verdict verdict);

// The probability of at least one wrong verdict when both files measure the same thing. With F figures, a figure gets a verdict
// only if p <= kFalseVerdict / F, where p is ChanceApart() of statistics.h (Bonferroni: the sum bounds the probability of any
// error, however the figures depend on each other). With n repetitions on each side p is at least 2 / C(2n, n), so
// RepetitionsFor(F) of them are needed: 4 for one figure, 6 for 20, 8 for 300, 10 for 4,000. Three repetitions, with which one
// figure in ten differs by chance, never give a verdict.
inline constexpr double kFalseVerdict = 0.05;
size_t RepetitionsFor(size_t figures);

// The smallest difference that counts, in the figure's unit, for medians of this size. Simulated runs with one seed repeat
// exactly, so even a negligible difference would be significant.
double LeastEffect(const std::string& unit, double before, double after);

struct Comparison {
  struct Side {
    Median median;
    std::string
        why;  // that has no value: "not there", "no samples", "not supported: ...", "failed: ..."
  };
  // `figure` is "runs" for the row that tells how many runs there are: "3", "1 of 3 failed: ...".
  std::string scenario, one_case, method, figure, unit;
  Side before, after;
  Verdict verdict = Verdict::kSame;
};

// A row for each figure of either file, in the first one's order. A failed run has no figures and is not a repetition. A case and
// method have a row "runs" before their figures if a run of either side failed, and instead of them if a side has no runs.
std::vector<Comparison> Compare(const Results& before, const Results& after);
// The number of figures with values on both sides: those that can get a verdict.
size_t FiguresCompared(const std::vector<Comparison>& comparisons);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_COMPARE_H_
