// SPDX-License-Identifier: Apache-2.0
#include "harness/statistics.h"

#include <gtest/gtest.h>

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
  EXPECT_DOUBLE_EQ(five.confidence, 1 - 2.0 / 32);  // all five on one side
}

// The table of any textbook: of 6 values the ends, of 9 the second from each, of 20 the sixth.
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

// Half to the power of so many is no double any more. By the normal distribution n/2 - 1.96 sqrt(n)/2 are left out.
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
  // Four standard deviations.
  EXPECT_NEAR(static_cast<double>(within) / kTrials, confidence, 0.02);
}

TEST(Statistics, Quantiles) {
  EXPECT_EQ(Quantile({}, 0.5), std::nullopt);
  EXPECT_EQ(Quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(Quantile({3, 1, 2}, 0), 1);
  EXPECT_EQ(Quantile({3, 1, 2}, 0.99), 3);
}

}  // namespace
}  // namespace gpushare::harness
