// SPDX-License-Identifier: Apache-2.0
// Work that goes on long after its predicted end, and is charged while it does.
#include <vector>

#include "gtest/gtest.h"
#include "sched/arbiter.h"

namespace gpushare::sched {
namespace {

Time At(Nanos t) { return Time(t); }

// Charges `tenant` 10 us each 10 ms from `from` to `to`, as the reconciler does for what is overdue.
void Accrue(Arbiter& arbiter, TenantId tenant, Phase phase, Nanos from, Nanos to) {
  for (Nanos t = from; t < to; t += Millis(10)) {
    arbiter.Settle(tenant, phase, Nanos(0), Micros(10), 0, At(t));
  }
}
std::vector<Grant> GrantsAt(Arbiter& arbiter, Nanos now) {
  std::vector<Grant> grants;
  arbiter.Run(At(now), grants);
  return grants;
}

TEST(Overdue, AnExclusiveRequestDoesNotWaitForEver) {
  Arbiter arbiter{ArbiterOptions{}};
  const TenantId persistent = arbiter.Add({}, At(Nanos(0))), other = arbiter.Add({}, At(Nanos(0)));
  arbiter.Block(persistent, Micros(20), false, At(Nanos(0)));
  const std::vector<Grant> first = GrantsAt(arbiter, Nanos(0));
  ASSERT_EQ(first.size(), 1u);
  arbiter.Launched(persistent, 1, At(Micros(1)));
  arbiter.Block(other, Micros(20), /*exclusive=*/true, At(Micros(2)));
  EXPECT_TRUE(GrantsAt(arbiter, Micros(2)).empty());
  Accrue(arbiter, persistent, first[0].phase, Millis(10), Millis(60));
  EXPECT_EQ(GrantsAt(arbiter, Millis(60)).size(), 1u);  // stale: 50 ms after its predicted end
  EXPECT_STREQ(arbiter.CheckInvariants(), "");
}

TEST(Overdue, AHighCommandDoesNotCloseForEver) {
  Arbiter arbiter{ArbiterOptions{}};
  const TenantId high = arbiter.Add({.band = Band::kHigh}, At(Nanos(0)));
  const TenantId normal = arbiter.Add({}, At(Nanos(0)));
  const Phase phase = arbiter.Charge(high, Micros(50), At(Nanos(0)));
  arbiter.Block(normal, Micros(10), false, At(Micros(1)));
  Accrue(arbiter, high, phase, Millis(10), Millis(60));
  EXPECT_EQ(GrantsAt(arbiter, Millis(60)).size(), 1u);
  EXPECT_STREQ(arbiter.CheckInvariants(), "");
}

TEST(Overdue, WhatIsChargedMeanwhileIsKept) {
  Arbiter arbiter{ArbiterOptions{}};
  const TenantId t = arbiter.Add({}, At(Nanos(0)));
  arbiter.Block(t, Micros(20), false, At(Nanos(0)));
  const std::vector<Grant> grants = GrantsAt(arbiter, Nanos(0));
  ASSERT_EQ(grants.size(), 1u);
  Accrue(arbiter, t, grants[0].phase, Millis(10), Millis(60));
  EXPECT_EQ(arbiter.View(t).outstanding, grants[0].amount);
  EXPECT_EQ(arbiter.View(t).charged, grants[0].amount + 5 * Micros(10));
  arbiter.Settle(t, grants[0].phase, grants[0].amount, Micros(30), 1, At(Millis(61)));
  EXPECT_EQ(arbiter.View(t).outstanding, Nanos(0));
  EXPECT_EQ(arbiter.View(t).charged, Micros(30) + 5 * Micros(10));
}

}  // namespace
}  // namespace gpushare::sched
