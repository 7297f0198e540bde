// SPDX-License-Identifier: Apache-2.0
#include "harness/compare.h"

#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gpushare::harness {
namespace {

struct Measured {
  std::string unit;
  Figure::Better better = Figure::Better::kNeither;
  std::vector<double> values;
};

// All runs of a case by a method.
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
      const auto [measured, first] =
          runs.figures.emplace(figure.name, Measured{figure.unit, figure.better, {}});
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

Verdict VerdictOf(const Measured& before, const Measured& after, const Median& a, const Median& b) {
  if (a.n > 0 && b.n == 0) return Verdict::kMissing;
  if (a.n == 0 && b.n > 0) return Verdict::kNew;
  if (a.n == 0) return Verdict::kSame;
  if (a.n < kLeastRepetitions || b.n < kLeastRepetitions) return Verdict::kUnsure;
  if (a.low <= b.high && b.low <= a.high) return Verdict::kSame;
  if (before.better == Figure::Better::kNeither || before.better != after.better) {
    return Verdict::kDifferent;
  }
  const bool is_less = b.value < a.value;
  return is_less == (before.better == Figure::Better::kLower) ? Verdict::kBetter : Verdict::kWorse;
}

class Comparing {
 public:
  Comparing(const Key& key, const Runs& before, const Runs& after)
      : key_(key), before_(before), after_(after) {}

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
    made.verdict = VerdictOf(one, other, made.before.median, made.after.median);
  }

  const Key& key_;
  const Runs& before_;
  const Runs& after_;
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

bool IsWorse(Verdict verdict) { return verdict == Verdict::kWorse || verdict == Verdict::kMissing; }

std::vector<Comparison> Compare(const Results& before, const Results& after) {
  std::vector<Key> order, order_after;
  std::map<Key, Runs> first = ByMethod(before, &order), second = ByMethod(after, &order_after);
  for (const Key& key : order_after) {
    if (first.count(key) == 0) order.push_back(key);
  }
  std::vector<Comparison> comparisons;
  for (const Key& key : order) {
    for (Comparison& made : Comparing(key, first[key], second[key]).Do()) {
      comparisons.push_back(std::move(made));
    }
  }
  return comparisons;
}

}  // namespace gpushare::harness
