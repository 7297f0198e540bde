// SPDX-License-Identifier: Apache-2.0
#include "harness/compare.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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

TEST(Compare, OnlyWhatRepetitionsDoNotExplainIsADifference) {
  constexpr auto kLower = Figure::Better::kLower, kHigher = Figure::Better::kHigher;
  EXPECT_EQ(Judge(kLower, {1, 2, 3}, {2.5, 4, 5}), Verdict::kSame);
  EXPECT_EQ(Judge(kLower, {1, 2, 3}, {4, 5, 6}), Verdict::kWorse);
  EXPECT_EQ(Judge(kLower, {4, 5, 6}, {1, 2, 3}), Verdict::kBetter);
  EXPECT_EQ(Judge(kHigher, {4, 5, 6}, {1, 2, 3}), Verdict::kWorse);
  EXPECT_EQ(Judge(kHigher, {1, 2, 3}, {4, 5, 6}), Verdict::kBetter);
  EXPECT_EQ(Judge(Figure::Better::kNeither, {1, 2, 3}, {4, 5, 6}), Verdict::kDifferent);
  EXPECT_EQ(Judge(kLower, {1, 2}, {4, 5, 6}), Verdict::kUnsure);
  EXPECT_EQ(Judge(kLower, {2, 2, 2}, {2, 2, 2}), Verdict::kSame);
}

// One row, as "figure: before -> after: verdict".
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
