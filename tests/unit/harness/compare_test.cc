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

TEST(Compare, WhatOneOfThemLacksIsLeftOut) {
  const Results one = Of("error", Figure::Better::kLower, {1, 2, 3});
  EXPECT_TRUE(Compare(one, Of("busy", Figure::Better::kHigher, {1, 2, 3})).empty());
  Results failed = one;
  for (Result& run : failed.runs) run.figures.clear();
  EXPECT_TRUE(Compare(one, failed).empty());
  EXPECT_TRUE(Compare({}, {}).empty());
}

}  // namespace
}  // namespace gpushare::harness
