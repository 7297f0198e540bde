// SPDX-License-Identifier: Apache-2.0
#include "workload/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace gpushare::workload {
namespace {

TEST(ArrivalsTest, SameSeedSameArrivals) {
  std::mt19937_64 a(7), b(7), c(8);
  const auto first = PoissonArrivals(100, Seconds(5), a);
  EXPECT_EQ(first, PoissonArrivals(100, Seconds(5), b));
  EXPECT_NE(first, PoissonArrivals(100, Seconds(5), c));
}

TEST(ArrivalsTest, AscendWithinTheHorizon) {
  std::mt19937_64 engine(1);
  const auto arrivals = PoissonArrivals(1000, Seconds(1), engine);
  ASSERT_FALSE(arrivals.empty());
  EXPECT_TRUE(std::is_sorted(arrivals.begin(), arrivals.end()));
  EXPECT_GT(arrivals.front(), Nanos(0));
  EXPECT_LT(arrivals.back(), Seconds(1));
}

// In a Poisson process the mean and the standard deviation of the gaps are both 1/rate. With 100,000 gaps each has a
// standard error below 0.5 %, so a tolerance of 2 % fails by chance for fewer than one in 10,000 seeds; the seed is
// fixed.
TEST(ArrivalsTest, GapsAreExponential) {
  std::mt19937_64 engine(42);
  constexpr int kGaps = 100'000;
  double sum = 0, squares = 0;
  for (int i = 0; i < kGaps; ++i) {
    const double gap = static_cast<double>(PoissonGap(250, engine).count()) / 1e9;
    sum += gap;
    squares += gap * gap;
  }
  const double mean = sum / kGaps;
  EXPECT_NEAR(mean, 1.0 / 250, 0.02 / 250);
  EXPECT_NEAR(std::sqrt(squares / kGaps - mean * mean), 1.0 / 250, 0.02 / 250);
}

TEST(ArrivalsTest, NoRateNoArrivals) {
  std::mt19937_64 engine(1);
  EXPECT_TRUE(PoissonArrivals(0, Seconds(1), engine).empty());
  EXPECT_TRUE(PoissonArrivals(-1, Seconds(1), engine).empty());
  EXPECT_TRUE(PoissonArrivals(std::nan(""), Seconds(1), engine).empty());
  EXPECT_TRUE(PoissonArrivals(100, Nanos(0), engine).empty());
}

}  // namespace
}  // namespace gpushare::workload
