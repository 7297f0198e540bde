// SPDX-License-Identifier: Apache-2.0
#include "harness/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gpushare::harness {
namespace {

Results Of(const std::string& figure, Figure::Better better, const std::vector<double>& values) {
  Results results;
  for (const double value : values) {
    results.runs.push_back({.scenario = "share", .one_case = "two", .method = "gpushare"});
    results.runs.back().figures = {{figure, "pp", value, better}};
  }
  return results;
}

Verdict Judge(Figure::Better better, const std::vector<double>& before,
              const std::vector<double>& after) {
  const auto made = Compare(Of("error", better, before), Of("error", better, after));
  EXPECT_EQ(made.size(), 1u);
  return made.at(0).verdict;
}

std::vector<double> From(double first, size_t n) {
  std::vector<double> values;
  for (size_t i = 0; i < n; ++i) values.push_back(first + static_cast<double>(i));
  return values;
}

TEST(Compare, OnlyWhatRepetitionsDoNotExplainIsADifference) {
  constexpr auto kLower = Figure::Better::kLower, kHigher = Figure::Better::kHigher;
  EXPECT_EQ(Judge(kLower, {1, 2, 3}, {2.5, 4, 5}), Verdict::kSame);
  EXPECT_EQ(Judge(kLower, From(1, 5), From(6, 5)), Verdict::kWorse);
  EXPECT_EQ(Judge(kLower, From(6, 5), From(1, 5)), Verdict::kBetter);
  EXPECT_EQ(Judge(kHigher, From(6, 5), From(1, 5)), Verdict::kWorse);
  EXPECT_EQ(Judge(kHigher, From(1, 5), From(6, 5)), Verdict::kBetter);
  EXPECT_EQ(Judge(Figure::Better::kNeither, From(1, 5), From(6, 5)), Verdict::kDifferent);
  EXPECT_EQ(Judge(kLower, {2, 2, 2}, {2, 2, 2}), Verdict::kSame);
}

TEST(Compare, TooFewRepetitionsAreUnsure) {
  constexpr auto kLower = Figure::Better::kLower;
  EXPECT_EQ(Judge(kLower, {1}, {6}), Verdict::kUnsure);
  EXPECT_EQ(Judge(kLower, From(1, 3), From(6, 3)), Verdict::kUnsure);
  EXPECT_EQ(Judge(kLower, {1, 1, 1}, {6, 6, 6}), Verdict::kUnsure);  // the noise is still unknown
  EXPECT_EQ(Judge(kLower, From(1, 4), From(6, 4)), Verdict::kWorse);
  EXPECT_EQ(RepetitionsFor(1), 4u);
  EXPECT_EQ(RepetitionsFor(20), 6u);
  EXPECT_EQ(RepetitionsFor(300), 8u);
  EXPECT_EQ(RepetitionsFor(4000), 10u);
}

// Runs with `figures` figures each, and the same number of repetitions.
Results Runs(size_t figures, size_t repetitions, const std::function<double(size_t)>& value) {
  Results results;
  for (size_t n = 0; n < repetitions; ++n) {
    results.runs.push_back({.scenario = "share", .one_case = "two", .method = "gpushare"});
    for (size_t i = 0; i < figures; ++i) {
      results.runs.back().figures.push_back(
          {absl::StrCat("figure-", i), "us", value(i), Figure::Better::kLower});
    }
  }
  return results;
}

size_t VerdictsOf(const Results& before, const Results& after) {
  const auto made = Compare(before, after);
  return static_cast<size_t>(std::count_if(made.begin(), made.end(), [](const Comparison& each) {
    return each.verdict != Verdict::kSame && each.verdict != Verdict::kUnsure;
  }));
}

TEST(Compare, TwoOfOneThingHardlyEverDifferHoweverManyFiguresAndRepetitions) {
  std::mt19937_64 random(5);
  std::exponential_distribution<double> draw(1);
  constexpr size_t kFigures = 100;
  for (const size_t repetitions : std::vector<size_t>{3, 8, 12, 25}) {
    constexpr int kTrials = 200;
    int wrong = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      const auto any = [&](size_t) { return draw(random); };
      const Results before = Runs(kFigures, repetitions, any);
      wrong += VerdictsOf(before, Runs(kFigures, repetitions, any)) > 0 ? 1 : 0;
    }
    // The tolerance is 5 % and three standard deviations.
    EXPECT_LE(wrong, 0.05 * kTrials + 3 * std::sqrt(0.05 * 0.95 * kTrials)) << repetitions;
  }
}

TEST(Compare, ATrueDifferenceIsFoundAmongMany) {
  std::mt19937_64 random(6);
  std::normal_distribution<double> draw(100, 1);
  const auto any = [&](size_t) { return draw(random); };
  const auto one_is_more = [&](size_t i) { return draw(random) + (i == 17 ? 5 : 0); };
  for (const size_t repetitions : std::vector<size_t>{8, 25}) {
    const auto made = Compare(Runs(100, repetitions, any), Runs(100, repetitions, one_is_more));
    EXPECT_EQ(made.at(17).verdict, Verdict::kWorse) << repetitions;
  }
}

TEST(Compare, WhatIsTooLittleToMatterIsTheSame) {
  constexpr auto kLower = Figure::Better::kLower;
  const std::vector<double> none(10, 0), little(10, 0.09), more(10, 0.11);
  EXPECT_EQ(Judge(kLower, none, little), Verdict::kSame);  // pp
  EXPECT_EQ(Judge(kLower, none, more), Verdict::kWorse);
  const auto in = [](const char* unit, double before, double after) {
    const auto one = [&](double value) {
      Results results = Of("figure", Figure::Better::kLower, std::vector<double>(10, value));
      for (Result& run : results.runs) run.figures[0].unit = unit;
      return results;
    };
    return Compare(one(before), one(after)).at(0).verdict;
  };
  EXPECT_EQ(in("us", 1000, 1009), Verdict::kSame);
  EXPECT_EQ(in("us", 1000, 1011), Verdict::kWorse);
  EXPECT_EQ(in("x", 1.01, 1), Verdict::kSame);
  EXPECT_EQ(in("x", 1.02, 1), Verdict::kBetter);
  EXPECT_EQ(in("", 0, 1), Verdict::kWorse);
}

TEST(Compare, TheHostsClockIsNobodysFault) {
  const auto by_host = [](double first, size_t n) {
    Results results = Of("launch", Figure::Better::kLower, From(first, n));
    for (Result& run : results.runs) run.figures[0].by_host = true;
    return results;
  };
  const auto made = Compare(by_host(1, 5), by_host(6, 5));
  EXPECT_EQ(made.at(0).verdict, Verdict::kDifferent);
  EXPECT_FALSE(IsWorse(made.at(0).verdict));
  // Results from before figures said which direction is better.
  EXPECT_EQ(Compare(Of("launch", Figure::Better::kLower, From(1, 5)), by_host(6, 5)).at(0).verdict,
            Verdict::kDifferent);
}

// A comparison's row as "figure: before -> after: verdict".
std::vector<std::string> Told(const Results& before, const Results& after) {
  const auto side = [](const Comparison::Side& one) {
    return one.why.empty() ? std::to_string(one.median.n) + " values" : one.why;
  };
  std::vector<std::string> rows;
  for (const Comparison& each : Compare(before, after)) {
    rows.push_back(each.figure + ": " + side(each.before) + " -> " + side(each.after) + ": " +
                   VerdictName(each.verdict));
  }
  return rows;
}

TEST(Compare, WhatOneOfThemLacksIsTold) {
  using Rows = std::vector<std::string>;
  const Results one = Of("error", Figure::Better::kLower, {1, 2, 3});
  EXPECT_EQ(Told(one, Of("busy", Figure::Better::kHigher, {1, 2, 3})),
            (Rows{"error: 3 values -> not there: missing", "busy: not there -> 3 values: new"}));
  Results failed = one;
  for (Result& run : failed.runs) run = {"share", "two", "gpushare", 0, "", "it hung"};
  EXPECT_EQ(Told(one, failed), (Rows{"runs: 3 -> 3 of 3 failed: it hung: missing"}));
  EXPECT_EQ(Told(failed, one), (Rows{"runs: 3 of 3 failed: it hung -> 3: new"}));
  EXPECT_EQ(Told(one, {}), (Rows{"runs: 3 -> not there: missing"}));
  EXPECT_EQ(Told({}, one), (Rows{"runs: not there -> 3: new"}));
  Results cannot = failed;
  for (Result& run : cannot.runs) run = {"share", "two", "gpushare", 0, "no share"};
  EXPECT_EQ(Told(one, cannot), (Rows{"runs: 3 -> not supported: no share: missing"}));
  EXPECT_EQ(Told(cannot, cannot),
            (Rows{"runs: not supported: no share -> not supported: no share: same"}));
  EXPECT_TRUE(Compare({}, {}).empty());
}

TEST(Compare, OneRunThatFailedIsTold) {
  using Rows = std::vector<std::string>;
  const Results good = Of("error", Figure::Better::kLower, {2, 2, 2});
  Results once = good;
  once.runs.push_back({"share", "two", "gpushare", 3, "", "it crashed"});
  EXPECT_EQ(Told(good, once), (Rows{"runs: 3 -> 1 of 4 failed: it crashed: worse",
                                    "error: 3 values -> 3 values: same"}));
  EXPECT_EQ(Told(once, good).at(0), "runs: 1 of 4 failed: it crashed -> 3: better");
  EXPECT_EQ(Told(once, once).at(0),
            "runs: 1 of 4 failed: it crashed -> 1 of 4 failed: it crashed: same");
}

TEST(Compare, WhatHasNoSamplesIsTold) {
  const Results good = Of("error", Figure::Better::kLower, {2, 2, 2});
  Results none = good;
  for (Result& run : none.runs) run.figures[0].value = std::nullopt;
  EXPECT_EQ(Told(good, none).at(0), "error: 3 values -> no samples: missing");
  EXPECT_EQ(Told(none, good).at(0), "error: no samples -> 3 values: new");
}

TEST(Compare, WhatIsWorse) {
  for (const Verdict good :
       {Verdict::kSame, Verdict::kBetter, Verdict::kDifferent, Verdict::kUnsure, Verdict::kNew}) {
    EXPECT_FALSE(IsWorse(good)) << VerdictName(good);
  }
  EXPECT_TRUE(IsWorse(Verdict::kWorse));
  EXPECT_TRUE(IsWorse(Verdict::kMissing));
}

}  // namespace
}  // namespace gpushare::harness
