// SPDX-License-Identifier: Apache-2.0
#include "harness/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <random>
#include <vector>

namespace gpushare::harness {
namespace {

TEST(Statistics, FewValues) {
  EXPECT_EQ(MedianOf({}).value, 0);
  const Median one = MedianOf({5});
  EXPECT_EQ(one.value, 5);
  EXPECT_EQ(one.low, 5);
  EXPECT_EQ(one.high, 5);
  EXPECT_EQ(one.confidence, 0);
  const Median five = MedianOf({3, 1, 2, 5, 4});
  EXPECT_EQ(five.value, 3);
  EXPECT_EQ(five.low, 1);
  EXPECT_EQ(five.high, 5);
  EXPECT_DOUBLE_EQ(five.confidence, 1 - 2.0 / 32);  // unless all five are on one side
}

// From textbook tables: the extremes of 6 values, the second from either end of 9, and the sixth of 20.
TEST(Statistics, IntervalsAreThoseOfTheBinomialDistribution) {
  const auto interval = [](size_t n) {
    std::vector<double> values;
    for (size_t i = 1; i <= n; ++i) values.push_back(static_cast<double>(i));
    return MedianOf(values);
  };
  EXPECT_EQ(interval(6).low, 1);
  EXPECT_EQ(interval(9).low, 2);
  EXPECT_EQ(interval(9).high, 8);
  EXPECT_EQ(interval(20).low, 6);
  EXPECT_EQ(interval(20).high, 15);
  EXPECT_NEAR(interval(20).confidence, 0.9586, 1e-4);
  EXPECT_EQ(interval(20).n, 20u);
}

// A half to such a power is not a double any more. By the normal distribution n/2 - 1.96 sqrt(n)/2 values are left
// out.
TEST(Statistics, OfThousandsOfValuesToo) {
  std::vector<double> values;
  for (int i = 1; i <= 10'000; ++i) values.push_back(i);
  const Median median = MedianOf(values);
  EXPECT_NEAR(median.low, 5000 - 98, 2);
  EXPECT_NEAR(median.high, 5001 + 98, 2);
  EXPECT_NEAR(median.confidence, 0.95, 0.002);
}

TEST(Statistics, TheMedianLiesWithinAsOftenAsIsSaid) {
  std::mt19937_64 random(7);
  std::exponential_distribution<double> distribution(1);
  const double truth = 0.6931471805599453;
  int within = 0;
  constexpr int kTrials = 2000;
  double confidence = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values;
    for (int i = 0; i < 11; ++i) values.push_back(distribution(random));
    const Median median = MedianOf(values);
    confidence = median.confidence;
    if (median.low <= truth && truth <= median.high) ++within;
  }
  EXPECT_GE(confidence, 0.95);
  // The tolerance is four standard deviations.
  EXPECT_NEAR(static_cast<double>(within) / kTrials, confidence, 0.02);
}

TEST(Statistics, HowProbableItIsToLieApart) {
  EXPECT_NEAR(LeastChanceApart(3), 2.0 / 20, 1e-12);
  EXPECT_NEAR(LeastChanceApart(6), 2.0 / 924, 1e-12);
  EXPECT_NEAR(ChanceApart({1, 2, 3}, {4, 5, 6}), 2.0 / 20, 1e-12);
  EXPECT_NEAR(ChanceApart({4, 5, 6}, {1, 2}), 2.0 / 10, 1e-12);
  // In 10 of the 20 orders, the second value of one comes before the second of the other: all orders, counting both
  // ways.
  EXPECT_NEAR(ChanceApart({1, 2, 4}, {3, 5, 6}), 1, 1e-12);
  EXPECT_EQ(ChanceApart({1, 2, 3}, {1, 2, 3}), 1);
  EXPECT_EQ(ChanceApart({2, 2, 2}, {2, 2, 2}), 1);
  EXPECT_EQ(ChanceApart({}, {1}), 1);
}

TEST(Statistics, OfAllOrdersAsManyLieSoFarApart) {
  // All ways to choose the 4 of 9 places that belong to the one.
  std::vector<double> chances;
  for (unsigned chosen = 0; chosen < 1U << 9; ++chosen) {
    if (std::popcount(chosen) != 4) continue;
    std::vector<double> some, others;
    for (unsigned i = 0; i < 9; ++i) ((chosen >> i & 1U) != 0 ? some : others).push_back(i);
    chances.push_back(ChanceApart(some, others));
  }
  ASSERT_EQ(chances.size(), 126u);
  for (const double chance : chances) {
    const auto as_far = std::count_if(chances.begin(), chances.end(),
                                      [=](double each) { return each <= chance + 1e-9; });
    EXPECT_LE(static_cast<double>(as_far) / 126, chance + 1e-9);
  }
  EXPECT_NEAR(*std::min_element(chances.begin(), chances.end()), 2.0 / 126, 1e-12);
}

TEST(Statistics, Quantiles) {
  EXPECT_EQ(Quantile({}, 0.5), std::nullopt);
  EXPECT_EQ(Quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(Quantile({3, 1, 2}, 0), 1);
  EXPECT_EQ(Quantile({3, 1, 2}, 0.99), 3);
}

}  // namespace
}  // namespace gpushare::harness
