// SPDX-License-Identifier: Apache-2.0
#include "broker/call_limit.h"

#include <gtest/gtest.h>

namespace gpushare::broker {
namespace {

TEST(CallLimit, ABurstAndThenAsCallsComeBack) {
  CallLimit limit;
  Time now{Seconds(1)};
  for (int call = 1; call < CallLimit::kBurst; ++call) EXPECT_EQ(limit.Take(now), kNever) << call;
  EXPECT_EQ(limit.Take(now), now + 2 * CallLimit::kEvery);
  // Two calls come back; one of them may be needed to hear the process again.
  now += 2 * CallLimit::kEvery;
  EXPECT_EQ(limit.Take(now), kNever);
  EXPECT_EQ(limit.Take(now), now + 2 * CallLimit::kEvery);
  // After a pause all calls are available again, and no more than that.
  now += Seconds(10);
  int calls = 0;
  while (limit.Take(now) == kNever) ++calls;
  EXPECT_EQ(calls, CallLimit::kBurst - 1);
}

TEST(CallLimit, OverTimeNoMoreThanOneEach) {
  CallLimit limit;
  Time now{Seconds(1)};
  const Time end = now + Seconds(1);
  int calls = 0;
  while (now < end) {
    const Time again = limit.Take(now);
    ++calls;
    if (again != kNever) now = again;
  }
  EXPECT_NEAR(calls, CallLimit::kBurst + Seconds(1) / CallLimit::kEvery, 2);
}

}  // namespace
}  // namespace gpushare::broker
