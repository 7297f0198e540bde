// SPDX-License-Identifier: Apache-2.0
#include "harness/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gpushare::harness {
namespace {

struct Measured {
  std::string unit;
  Figure::Better better = Figure::Better::kNeither;
  bool by_host = false;
  std::vector<double> values;
};

// All runs of one case by one method.
struct Runs {
  std::vector<std::string> order;  // of the figures
  std::map<std::string, Measured> figures;
  size_t good = 0, failed = 0;
  std::string error, not_supported;  // the latest
};

using Key = std::tuple<std::string, std::string, std::string>;  // scenario, case, method

std::map<Key, Runs> ByMethod(const Results& results, std::vector<Key>* order) {
  std::map<Key, Runs> all;
  for (const Result& run : results.runs) {
    const Key key = {run.scenario, run.one_case, run.method};
    const auto [at, is_new] = all.try_emplace(key);
    if (is_new) order->push_back(key);
    Runs& runs = at->second;
    if (!run.error.empty()) {
      ++runs.failed;
      runs.error = run.error;
    }
    if (!run.not_supported.empty()) runs.not_supported = run.not_supported;
    if (!run.figures.empty()) ++runs.good;
    for (const Figure& figure : run.figures) {
      const auto [measured, first] = runs.figures.emplace(
          figure.name, Measured{figure.unit, figure.better, figure.by_host, {}});
      if (first) runs.order.push_back(figure.name);
      if (figure.value.has_value()) measured->second.values.push_back(*figure.value);
    }
  }
  return all;
}

std::string HowRunsWent(const Runs& runs) {
  if (runs.failed > 0) {
    return absl::StrCat(runs.failed, " of ", runs.good + runs.failed, " failed: ", runs.error);
  }
  if (runs.good > 0) return absl::StrCat(runs.good);
  return runs.not_supported.empty() ? "not there"
                                    : absl::StrCat("not supported: ", runs.not_supported);
}

double FailedPart(const Runs& runs) {
  return runs.failed == 0
             ? 0
             : static_cast<double>(runs.failed) / static_cast<double>(runs.good + runs.failed);
}

Verdict VerdictOfRuns(const Runs& before, const Runs& after) {
  if (before.good > 0 && after.good == 0) return Verdict::kMissing;
  if (before.good == 0 && after.good > 0) return Verdict::kNew;
  if (FailedPart(after) > FailedPart(before)) return Verdict::kWorse;
  return FailedPart(after) < FailedPart(before) ? Verdict::kBetter : Verdict::kSame;
}

// `certain`: the greatest p at which a difference counts.
Verdict VerdictOf(const Measured& before, const Measured& after, const Median& a, const Median& b,
                  double certain) {
  if (a.n > 0 && b.n == 0) return Verdict::kMissing;
  if (a.n == 0 && b.n > 0) return Verdict::kNew;
  if (a.n == 0) return Verdict::kSame;
  if (a.low <= b.high && b.low <= a.high) return Verdict::kSame;
  if (std::fabs(a.value - b.value) < LeastEffect(before.unit, a.value, b.value)) {
    return Verdict::kSame;
  }
  if (ChanceApart(before.values, after.values) > certain) return Verdict::kUnsure;
  if (before.better == Figure::Better::kNeither || before.better != after.better ||
      before.by_host || after.by_host) {
    return Verdict::kDifferent;
  }
  const bool is_less = b.value < a.value;
  return is_less == (before.better == Figure::Better::kLower) ? Verdict::kBetter : Verdict::kWorse;
}

using AllRuns = std::map<Key, Runs>;

// The number of figures with values on both sides.
size_t FiguresOfBoth(const AllRuns& before, const AllRuns& after) {
  size_t figures = 0;
  for (const auto& [key, runs] : before) {
    const auto others = after.find(key);
    if (others == after.end()) continue;
    for (const auto& [name, measured] : runs.figures) {
      const auto other = others->second.figures.find(name);
      if (other == others->second.figures.end()) continue;
      if (!measured.values.empty() && !other->second.values.empty()) ++figures;
    }
  }
  return figures;
}

class Comparing {
 public:
  Comparing(const Key& key, const Runs& before, const Runs& after, double certain)
      : key_(key), before_(before), after_(after), certain_(certain) {}

  std::vector<Comparison> Do() {
    const bool both = before_.good > 0 && after_.good > 0;
    if (!both || before_.failed > 0 || after_.failed > 0) AddRuns();
    if (both) {
      for (const std::string& figure : before_.order) AddFigure(figure);
      for (const std::string& figure : after_.order) {
        if (before_.figures.count(figure) == 0) AddFigure(figure);
      }
    }
    return std::move(made_);
  }

 private:
  Comparison& Add(const std::string& figure) {
    Comparison& made = made_.emplace_back();
    std::tie(made.scenario, made.one_case, made.method) = key_;
    made.figure = figure;
    return made;
  }

  void AddRuns() {
    Comparison& made = Add("runs");
    made.before.why = HowRunsWent(before_);
    made.after.why = HowRunsWent(after_);
    made.verdict = VerdictOfRuns(before_, after_);
  }

  void AddFigure(const std::string& name) {
    const auto first = before_.figures.find(name), second = after_.figures.find(name);
    const Measured none;
    const Measured& one = first == before_.figures.end() ? none : first->second;
    const Measured& other = second == after_.figures.end() ? none : second->second;
    Comparison& made = Add(name);
    made.unit = first == before_.figures.end() ? other.unit : one.unit;
    made.before.median = MedianOf(one.values);
    made.after.median = MedianOf(other.values);
    if (one.values.empty()) made.before.why = &one == &none ? "not there" : "no samples";
    if (other.values.empty()) made.after.why = &other == &none ? "not there" : "no samples";
    made.verdict = VerdictOf(one, other, made.before.median, made.after.median, certain_);
  }

  const Key& key_;
  const Runs& before_;
  const Runs& after_;
  const double certain_;
  std::vector<Comparison> made_;
};

}  // namespace

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSame:
      return "same";
    case Verdict::kBetter:
      return "better";
    case Verdict::kWorse:
      return "worse";
    case Verdict::kDifferent:
      return "different";
    case Verdict::kUnsure:
      return "unsure";
    case Verdict::kMissing:
      return "missing";
    case Verdict::kNew:
      return "new";
  }
  return "";
}

size_t RepetitionsFor(size_t figures) {
  size_t n = 1;
  while (LeastChanceApart(n) * static_cast<double>(figures) > kFalseVerdict) ++n;
  return n;
}

double LeastEffect(const std::string& unit, double before, double after) {
  // A tenth of a point for percentages, else one percent of the value.
  if (unit == "%" || unit == "pp") return 0.1;
  return 0.01 * std::max(std::fabs(before), std::fabs(after));
}

bool IsWorse(Verdict verdict) { return verdict == Verdict::kWorse || verdict == Verdict::kMissing; }

std::vector<Comparison> Compare(const Results& before, const Results& after) {
  std::vector<Key> order, order_after;
  AllRuns first = ByMethod(before, &order), second = ByMethod(after, &order_after);
  const auto figures = static_cast<double>(std::max<size_t>(FiguresOfBoth(first, second), 1));
  for (const Key& key : order_after) {
    if (first.count(key) == 0) order.push_back(key);
  }
  std::vector<Comparison> comparisons;
  for (const Key& key : order) {
    for (Comparison& made : Comparing(key, first[key], second[key], kFalseVerdict / figures).Do()) {
      comparisons.push_back(std::move(made));
    }
  }
  return comparisons;
}

size_t FiguresCompared(const std::vector<Comparison>& comparisons) {
  return static_cast<size_t>(std::count_if(
      comparisons.begin(), comparisons.end(),
      [](const Comparison& each) { return each.before.median.n > 0 && each.after.median.n > 0; }));
}

}  // namespace gpushare::harness
