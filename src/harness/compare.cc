// SPDX-License-Identifier: Apache-2.0
#include "harness/compare.h"

#include <map>
#include <tuple>
#include <utility>

namespace gpushare::harness {
namespace {

using Key = std::tuple<std::string, std::string, std::string, std::string>;

struct Measured {
  std::string unit;
  Figure::Better better = Figure::Better::kNeither;
  std::vector<double> values;
};

// `order`: the keys as they are met first.
std::map<Key, Measured> ByFigure(const Results& results, std::vector<Key>* order) {
  std::map<Key, Measured> figures;
  for (const Result& run : results.runs) {
    for (const Figure& figure : run.figures) {
      const Key key = {run.scenario, run.one_case, run.method, figure.name};
      const auto [at, is_new] = figures.emplace(key, Measured{figure.unit, figure.better, {}});
      if (is_new && order != nullptr) order->push_back(key);
      at->second.values.push_back(figure.value);
    }
  }
  return figures;
}

Verdict VerdictOf(const Measured& before, const Measured& after, const Median& a, const Median& b) {
  if (before.values.size() < kLeastRepetitions || after.values.size() < kLeastRepetitions) {
    return Verdict::kUnsure;
  }
  if (a.low <= b.high && b.low <= a.high) return Verdict::kSame;
  if (before.better == Figure::Better::kNeither) return Verdict::kDifferent;
  const bool is_less = b.value < a.value;
  return is_less == (before.better == Figure::Better::kLower) ? Verdict::kBetter : Verdict::kWorse;
}

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
  }
  return "";
}

std::vector<Comparison> Compare(const Results& before, const Results& after) {
  std::vector<Key> order;
  const std::map<Key, Measured> first = ByFigure(before, &order), second = ByFigure(after, nullptr);
  std::vector<Comparison> comparisons;
  for (const Key& key : order) {
    const auto other = second.find(key);
    if (other == second.end()) continue;
    const Measured& one = first.at(key);
    Comparison& made = comparisons.emplace_back();
    std::tie(made.scenario, made.one_case, made.method, made.figure) = key;
    made.unit = one.unit;
    made.before = MedianOf(one.values);
    made.after = MedianOf(other->second.values);
    made.verdict = VerdictOf(one, other->second, made.before, made.after);
  }
  return comparisons;
}

}  // namespace gpushare::harness
