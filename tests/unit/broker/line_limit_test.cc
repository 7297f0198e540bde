// SPDX-License-Identifier: Apache-2.0
#include "broker/line_limit.h"

#include <gtest/gtest.h>

#include <optional>

namespace gpushare::broker {
namespace {

TEST(LineLimit, ABurstOfEachUserAndThenOneEach) {
  LineLimit limit;
  Time now{Seconds(1)};
  for (int64_t line = 0; line < LineLimit::kBurst; ++line) ASSERT_EQ(limit.Take(7, now), 0u);
  EXPECT_EQ(limit.Take(7, now), std::nullopt);
  EXPECT_EQ(limit.Take(8, now), 0u) << "of another user";
  EXPECT_EQ(limit.Take(7, now + LineLimit::kEvery - Nanos(1)), std::nullopt);
  now += LineLimit::kEvery;
  EXPECT_EQ(limit.Take(7, now), 2u) << "were left out";
  EXPECT_EQ(limit.Take(7, now), std::nullopt);
  int written = 0;
  for (const Time end = now + Seconds(10); now < end; now += Millis(1)) {
    written += limit.Take(7, now).has_value();
  }
  EXPECT_NEAR(written, Seconds(10) / LineLimit::kEvery, 1);
}

TEST(LineLimit, AfterAPauseThereIsABurstAndNoMore) {
  LineLimit limit;
  Time now{Seconds(1)};
  while (limit.Take(7, now).has_value()) {
  }
  now += Seconds(100'000);
  EXPECT_EQ(limit.Take(7, now), 1u);
  int64_t written = 1;
  while (limit.Take(7, now).has_value()) ++written;
  EXPECT_EQ(written, LineLimit::kBurst);
}

TEST(LineLimit, UsersWithoutEndDoNotFillIt) {
  LineLimit limit;
  Time now{Seconds(1)};
  while (limit.Take(1, now).has_value()) {
  }
  for (uint32_t uid = 2; uid < 100'000; ++uid) {
    limit.Take(uid, now += LineLimit::kEvery);
    ASSERT_LE(limit.users(), LineLimit::kMostUsers + 1);
  }
  EXPECT_EQ(limit.Take(1, now), 1u) << "what was left out is not forgotten";
}

}  // namespace
}  // namespace gpushare::broker
