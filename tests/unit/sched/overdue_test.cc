// SPDX-License-Identifier: Apache-2.0
// Work that runs long past its predicted end, and is charged while it does.
#include <vector>

#include "gtest/gtest.h"
#include "sched/arbiter.h"

namespace gpushare::sched {
namespace {

Time At(Nanos t) { return Time(t); }

// Charges `tenant` 10 us every 10 ms from `from` to `to`, like the reconciler for overdue work.
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
  EXPECT_EQ(GrantsAt(arbiter, Millis(60)).size(),
            1u);  // stale: 50 ms after the work's predicted end
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

// The number of 100 us commands that `other` completes in 100 ms, one after the other, beside a tenant that has
// launched `stalled` worth of work that never ends.
int DoneBeside(Nanos stalled) {
  Arbiter arbiter{ArbiterOptions{}};
  const TenantId stuck = arbiter.Add({}, At(Nanos(0))), other = arbiter.Add({}, At(Nanos(0)));
  arbiter.Block(stuck, stalled, false, At(Nanos(0)));
  EXPECT_EQ(GrantsAt(arbiter, Nanos(0)).size(), 1u);
  arbiter.Launched(stuck, 1, At(Micros(1)));
  int done = 0;
  const Nanos begin = stalled + Millis(60);
  std::vector<Grant> grants;
  bool asks = false;
  for (Nanos t = begin; t < begin + Millis(100); t += Micros(100)) {
    if (!asks) arbiter.Block(other, Micros(100), false, At(t));
    asks = true;
    // The stuck tenant keeps launching behind that work, as long as it is admitted.
    arbiter.Block(stuck, Micros(50), false, At(t));
    grants.clear();
    arbiter.Run(At(t), grants);
    for (const Grant& grant : grants) {
      arbiter.Launched(grant.tenant, 1, At(t + Micros(1)));
      if (grant.tenant != other) continue;
      arbiter.Settle(other, grant.phase, grant.amount, Micros(100), 1, At(t + Micros(99)));
      ++done;
      asks = false;
    }
  }
  EXPECT_STREQ(arbiter.CheckInvariants(), "");
  return done;
}

TEST(Overdue, StalledWorkHoldsUpNobodyElse) {
  EXPECT_GE(DoneBeside(Micros(20)), 900);  // out of 1000
  EXPECT_GE(DoneBeside(Millis(5)), 900);
  EXPECT_GE(DoneBeside(Seconds(1)), 900);
}

TEST(Overdue, WhatMovesAgainIsCountedAgain) {
  Arbiter arbiter{ArbiterOptions{}};
  const TenantId t = arbiter.Add({}, At(Nanos(0)));
  arbiter.Block(t, Millis(5), false, At(Nanos(0)));
  const std::vector<Grant> first = GrantsAt(arbiter, Nanos(0));
  ASSERT_EQ(first.size(), 1u);
  GrantsAt(arbiter, Millis(60));
  EXPECT_EQ(arbiter.Outstanding(At(Millis(60))), Nanos(0));
  arbiter.Settle(t, first[0].phase, Millis(4), Millis(64), 1, At(Millis(64)));  // it ends after all
  arbiter.Block(t, Millis(2), false, At(Millis(64)));
  ASSERT_EQ(GrantsAt(arbiter, Millis(64)).size(), 1u);
  EXPECT_EQ(arbiter.Outstanding(At(Millis(64))), Millis(2));
  EXPECT_EQ(arbiter.View(t).outstanding, Millis(3));
  EXPECT_STREQ(arbiter.CheckInvariants(), "");
}

TEST(Overdue, WhatWaitsForTheHostHoldsUpNobodyElse) {
  Arbiter arbiter{ArbiterOptions{}};
  const TenantId waits = arbiter.Add({}, At(Nanos(0))), other = arbiter.Add({}, At(Nanos(0)));
  arbiter.Block(waits, Millis(1), false, At(Nanos(0)));
  const std::vector<Grant> first = GrantsAt(arbiter, Nanos(0));
  ASSERT_EQ(first.size(), 1u);
  arbiter.Launched(waits, 8, At(Nanos(0)));
  arbiter.Block(other, Micros(100), false, At(Micros(1)));
  EXPECT_TRUE(GrantsAt(arbiter, Micros(1)).empty());
  arbiter.HoldUp(waits, At(Micros(2)));
  EXPECT_EQ(arbiter.Outstanding(At(Micros(2))), Nanos(0));
  const std::vector<Grant> passed = GrantsAt(arbiter, Micros(2));
  ASSERT_EQ(passed.size(), 1u);
  arbiter.Launched(other, 1, At(Micros(3)));
  arbiter.Settle(other, passed[0].phase, passed[0].amount, passed[0].amount, 1, At(Micros(110)));
  // A whole window of such work is in flight already, so the tenant gets no more before a part of it is done.
  arbiter.Block(waits, Micros(100), false, At(Micros(111)));
  EXPECT_TRUE(GrantsAt(arbiter, Millis(20)).empty());
  arbiter.Settle(waits, first[0].phase, Micros(900), Micros(900), 4, At(Millis(21)));
  EXPECT_EQ(GrantsAt(arbiter, Millis(21)).size(), 1u);
  EXPECT_STREQ(arbiter.CheckInvariants(), "");
  const Nanos left = arbiter.View(waits).outstanding;
  const Nanos counted = arbiter.Outstanding(At(Millis(21)));
  arbiter.Resume(waits, At(Millis(21)));
  EXPECT_EQ(arbiter.Outstanding(At(Millis(21))), counted + left);
  EXPECT_STREQ(arbiter.CheckInvariants(), "");
}

TEST(Overdue, WhoWaitsForTheHostMayChangeItsBand) {
  Arbiter arbiter{ArbiterOptions{}};
  const TenantId t = arbiter.Add({}, At(Nanos(0)));
  arbiter.Block(t, Micros(100), false, At(Nanos(0)));
  ASSERT_EQ(GrantsAt(arbiter, Nanos(0)).size(), 1u);
  arbiter.HoldUp(t, At(Micros(1)));
  arbiter.Update(t, {.band = Band::kHigh}, At(Micros(2)));
  EXPECT_STREQ(arbiter.CheckInvariants(), "");
  arbiter.Resume(t, At(Micros(3)));
  EXPECT_STREQ(arbiter.CheckInvariants(), "");
}

}  // namespace
}  // namespace gpushare::sched
