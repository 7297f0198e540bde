// SPDX-License-Identifier: Apache-2.0
// The arbiter's calls one by one: the effect of each on the books.
#include "sched/arbiter.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace gpushare::sched {
namespace {

Time At(Nanos t) { return Time(t); }
Time AtMicros(int64_t us) { return Time(Micros(us)); }

struct Books {
  explicit Books(const ArbiterOptions& options = {}) : arbiter(options) {}
  ~Books() { EXPECT_STREQ(arbiter.CheckInvariants(), ""); }
  std::vector<Grant> Run(Time now) {
    std::vector<Grant> grants;
    again = arbiter.Run(now, grants);
    return grants;
  }
  Arbiter arbiter;
  Time again = kNever;
};

TEST(Arbiter, GrantsToTheOnlyTenantAtOnce) {
  Books b;
  const TenantId a = b.arbiter.Add({}, AtMicros(0));
  EXPECT_TRUE(b.Run(AtMicros(1)).empty());
  EXPECT_EQ(b.again, kNever);
  b.arbiter.Block(a, Micros(14), false, AtMicros(2));
  const auto grants = b.Run(AtMicros(2));
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].tenant, a);
  EXPECT_EQ(grants[0].amount, ArbiterOptions().sole_grant);
  EXPECT_FALSE(b.arbiter.View(a).blocked);
  EXPECT_EQ(b.arbiter.View(a).outstanding, grants[0].amount);
}

// Others may come back at any time, and a cap has to hold. So such tenants get smaller grants, although they are alone.
TEST(Arbiter, GrantsAreSmallerWhereOthersAreRegisteredOrACapHolds) {
  for (const TenantLimits& limits : {TenantLimits{}, TenantLimits{.cap = 0.5}}) {
    Books b;
    const TenantId a = b.arbiter.Add(limits, AtMicros(0));
    const TenantId other = limits.cap < 1 ? kNoTenant : b.arbiter.Add(TenantLimits{}, AtMicros(0));
    b.arbiter.Block(a, Micros(14), false, AtMicros(2));
    const auto grants = b.Run(AtMicros(2));
    ASSERT_EQ(grants.size(), 1u);
    EXPECT_EQ(grants[0].amount, ArbiterOptions().lone_grant);
    if (other == kNoTenant) continue;
    b.arbiter.Settle(a, grants[0].phase, grants[0].amount, grants[0].amount, 1, AtMicros(200));
    b.arbiter.Remove(other, AtMicros(200));
    b.arbiter.Block(a, Micros(14), false, AtMicros(201));
    const Grant sole = b.Run(AtMicros(201))[0];
    EXPECT_EQ(sole.amount, ArbiterOptions().sole_grant) << "the other is gone";
    b.arbiter.Settle(a, sole.phase, sole.amount, sole.amount, 1, AtMicros(2'201));
    b.arbiter.Block(a, Micros(14), false, AtMicros(2'202), 1, /*known=*/false);
    EXPECT_EQ(b.Run(AtMicros(2'202))[0].amount, ArbiterOptions().lone_grant) << "it is a guess";
  }
}

TEST(Arbiter, GrantCoversACommandLongerThanAnyLimit) {
  Books b;
  const TenantId a = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Block(a, Millis(30), false, AtMicros(0));
  const auto grants = b.Run(AtMicros(0));
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].amount, Millis(30));
}

TEST(Arbiter, ContendedGrantIsSmall) {
  Books b;
  const TenantId a = b.arbiter.Add({}, AtMicros(0)), c = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Block(a, Micros(3), false, AtMicros(0));
  b.arbiter.Block(c, Micros(1), false, AtMicros(0));
  const auto grants = b.Run(AtMicros(0));
  ASSERT_EQ(grants.size(), 2u);
  EXPECT_EQ(grants[0].amount, Micros(12));  // ArbiterOptions::grant
  EXPECT_EQ(grants[1].amount, Micros(8));   // 8 commands of 1 us
}

// Otherwise each command of more than half of `grant` has a grant of its own.
TEST(Arbiter, ContendedGrantHoldsAsManyCommandsAsAreWantedAtOnce) {
  struct Case {
    int tenants;
    Nanos predicted;
    int at_once;
    Nanos amount;
  };
  for (const Case& c : {
           Case{2, Micros(40), 1, Micros(50)},
           Case{2, Micros(40), 2, Micros(80)},
           Case{2, Micros(50), 2, Micros(100)},
           Case{2, Micros(20), 2, Micros(50)},  // fits it twice anyway
           Case{2, Micros(51), 2, Micros(51)},  // is more than `grant` alone
           Case{3, Micros(40), 2, Micros(80)},
           Case{4, Micros(40), 2, Micros(50)},  // two are more than a part of the window
           Case{1, Micros(60), 2, Micros(100)},
       }) {
    Books b({.window = Micros(240),
             .grant = Micros(50),
             .grant_commands = 64,
             .lone_grant = Micros(100),
             .sole_grant = Nanos(0)});
    std::vector<TenantId> ids;
    for (int i = 0; i < c.tenants; ++i) ids.push_back(b.arbiter.Add({}, AtMicros(0)));
    for (const TenantId id : ids) b.arbiter.Block(id, c.predicted, false, AtMicros(0), c.at_once);
    const auto grants = b.Run(AtMicros(0));
    ASSERT_FALSE(grants.empty());
    EXPECT_EQ(grants[0].amount, c.amount)
        << c.tenants << " tenants, " << c.predicted.count() << " ns, " << c.at_once;
  }
}

// A request does not keep the number from the request that it replaces.
TEST(Arbiter, WhatIsWantedAtOnceIsOfOneRequest) {
  Books b({.window = Micros(240), .grant = Micros(50), .grant_commands = 64});
  const TenantId a = b.arbiter.Add({}, AtMicros(0)), c = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Block(c, Micros(40), false, AtMicros(0));
  b.arbiter.Block(a, Micros(40), false, AtMicros(0), 2);
  b.arbiter.Block(a, Micros(40), false, AtMicros(0));
  for (const Grant& grant : b.Run(AtMicros(0))) EXPECT_EQ(grant.amount, Micros(50));
}

TEST(Arbiter, EntitledIsByGuaranteeOrByWeightAmongThoseThatAreActive) {
  Books b;
  const TenantId a = b.arbiter.Add({.weight = 7}, AtMicros(0));
  const TenantId c = b.arbiter.Add({.weight = 3}, AtMicros(0));
  const TenantId d = b.arbiter.Add({.weight = 1, .guarantee = 0.4}, AtMicros(0));
  b.arbiter.Block(a, Micros(14), false, AtMicros(0));
  EXPECT_DOUBLE_EQ(b.arbiter.Entitled(a), 1);    // active alone
  EXPECT_DOUBLE_EQ(b.arbiter.Entitled(c), 0.3);  // the share if it became active now
  b.arbiter.Block(c, Micros(14), false, AtMicros(0));
  EXPECT_DOUBLE_EQ(b.arbiter.Entitled(a), 0.7);
  EXPECT_DOUBLE_EQ(b.arbiter.Entitled(c), 0.3);
  EXPECT_DOUBLE_EQ(b.arbiter.Entitled(d), 0.4);
  EXPECT_DOUBLE_EQ(b.arbiter.Entitled(d + 1), 1);  // no such tenant
}

TEST(Arbiter, ReturnAndSettleTakeTheGrantOffTheBooks) {
  Books b;
  const TenantId a = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Block(a, Micros(14), false, AtMicros(0));
  const auto grants = b.Run(AtMicros(0));
  ASSERT_EQ(grants.size(), 1u);
  b.arbiter.Launched(a, 1, AtMicros(3));
  b.arbiter.Return(a, grants[0].phase, grants[0].amount - Micros(14), AtMicros(3));
  EXPECT_EQ(b.arbiter.View(a).outstanding, Micros(14));
  b.arbiter.Settle(a, grants[0].phase, Micros(14), Micros(20), 1, AtMicros(30));
  EXPECT_EQ(b.arbiter.View(a).outstanding, Nanos(0));
  EXPECT_EQ(b.arbiter.View(a).charged, Micros(20));
  EXPECT_EQ(b.arbiter.Outstanding(AtMicros(30)), Nanos(0));
}

TEST(Arbiter, VirtualTimeAdvancesByDeviceTimeOverWeight) {
  Books b;
  const TenantId a = b.arbiter.Add({.weight = 4}, AtMicros(0));
  const double before = b.arbiter.View(a).virtual_time_ns;
  b.arbiter.Block(a, Millis(2), false, AtMicros(0));
  ASSERT_EQ(b.Run(AtMicros(0)).size(), 1u);
  EXPECT_DOUBLE_EQ(b.arbiter.View(a).virtual_time_ns - before, 2e6 / 4);
  b.arbiter.Settle(a, Phase::kWeight, Millis(2), Millis(6), 1, AtMicros(6000));
  EXPECT_DOUBLE_EQ(b.arbiter.View(a).virtual_time_ns - before, 6e6 / 4);
}

TEST(Arbiter, WindowHoldsBackAndDrainsByTheClock) {
  ArbiterOptions options;
  options.min_commands = 1;
  Books b(options);
  const TenantId a = b.arbiter.Add({}, AtMicros(0)), c = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Block(a, Micros(300), false, AtMicros(0));
  ASSERT_EQ(b.Run(AtMicros(0)).size(), 1u);
  b.arbiter.Launched(a, 1, AtMicros(0));
  b.arbiter.Block(c, Micros(50), false, AtMicros(1));
  EXPECT_TRUE(b.Run(AtMicros(1)).empty());
  // At 100 us, the 300 us outstanding fall below the window of 200 us without any settlement.
  EXPECT_GT(b.again, AtMicros(99));
  EXPECT_LE(b.again, AtMicros(101));
  const auto grants = b.Run(b.again);
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].tenant, c);
}

TEST(Arbiter, TheLastOfMinCommandsFollowsWhenLittleIsLeftByTheClock) {
  Books b;  // min_commands = 4
  std::vector<TenantId> ids;
  for (int i = 0; i < 6; ++i) {
    ids.push_back(b.arbiter.Add({}, AtMicros(0)));
    b.arbiter.Block(ids.back(), Millis(1), false, AtMicros(0));
  }
  EXPECT_EQ(b.Run(AtMicros(0)).size(), 3u);
  EXPECT_TRUE(b.Run(AtMicros(2599)).empty());
  EXPECT_EQ(b.again,
            AtMicros(2600) + Nanos(1));  // two windows before the clock says that all is over
  EXPECT_EQ(b.Run(b.again).size(), 1u);
  EXPECT_TRUE(b.Run(AtMicros(20'000)).empty());  // the clock is not believed for another one
}

TEST(Arbiter, WhoIsAloneOrBesideRoomHasMinCommandsInFlight) {
  ArbiterOptions options;
  options.min_commands = 2;
  for (const bool alone : {true, false}) {
    Books b(options);
    const TenantId a = b.arbiter.Add({}, AtMicros(0));
    if (!alone) {
      b.arbiter.Add({}, AtMicros(0));
      b.arbiter.SetLeaves(a, true);
    }
    for (int i = 0; i < 3; ++i) {
      b.arbiter.Block(a, Millis(2), false, AtMicros(0));
      EXPECT_EQ(b.Run(AtMicros(0)).size(), i < 2 ? 1u : 0u) << i;
      b.arbiter.Launched(a, 1, AtMicros(0));
    }
  }
}

// Commands that end early would otherwise leave the device idle.
TEST(Arbiter, WhereWorkEndsEarlyTheLastOfMinCommandsFollowsEarlier) {
  ArbiterOptions options;
  options.min_commands = 2;
  Books b(options);
  const TenantId a = b.arbiter.Add({}, AtMicros(0)), c = b.arbiter.Add({}, AtMicros(0));
  // When c may follow a command of a of 10 ms that began at `from`.
  const auto follows = [&](Time from) {
    b.arbiter.Block(a, Millis(10), false, from);
    EXPECT_EQ(b.Run(from).size(), 1u);
    b.arbiter.Launched(a, 1, from);
    b.arbiter.Block(c, Millis(1), false, from);
    EXPECT_TRUE(b.Run(from).empty());
    const Nanos at = b.again - from;
    b.arbiter.Unblock(c, from);
    return at;
  };
  Time now = AtMicros(0);
  EXPECT_EQ(follows(now), Millis(10) - Micros(400) + Nanos(1));
  for (int i = 0; i < 20; ++i) {
    now += Millis(9);
    b.arbiter.Settle(a, Phase::kWeight, Millis(10), Millis(9), 1, now);
    if (i < 19) follows(now);
  }
  const Nanos at = follows(now);
  EXPECT_GT(at, Millis(3));
  EXPECT_LT(at, Millis(5));  // early by a tenth on average, and six tenths are left
}

// A tenant whose commands leave room to others may have one in flight beside their long commands, but not a second
// one.
TEST(Arbiter, WhoLeavesRoomToOthersHasOneInFlightBesideThem) {
  ArbiterOptions options;
  options.min_commands = 2;
  for (const bool high : {false, true}) {
    Books b(options);
    const Time now = AtMicros(0);
    if (high) b.arbiter.Add({.band = Band::kHigh}, now);
    const TenantId other = b.arbiter.Add({}, now);
    b.arbiter.Block(other, Millis(1), false, now);
    ASSERT_EQ(b.Run(now).size(), 1u);
    b.arbiter.Launched(other, 1, now);
    const TenantId narrow = b.arbiter.Add({}, now);
    b.arbiter.Block(narrow, Micros(400), false, now);
    EXPECT_TRUE(b.Run(now).empty());
    b.arbiter.SetLeaves(narrow, true);
    // This does not apply when the high band waits for work in flight.
    EXPECT_EQ(b.Run(now).size(), high ? 0u : 1u);
    if (high) continue;
    b.arbiter.Launched(narrow, 1, now);
    b.arbiter.Block(narrow, Micros(400), false, now);
    EXPECT_TRUE(b.Run(now).empty());
  }
}

TEST(Arbiter, TheClockAloneDoesNotQueueWithoutEnd) {
  // 10 ms kernels predicted to take 20 us: nothing is settled, so the clock must not be trusted for long.
  Books b;
  const TenantId a = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Add({}, AtMicros(0));  // for which room is left
  int admitted = 0;
  for (int64_t us = 0; us < 10'000; us += 5) {
    if (!b.arbiter.View(a).blocked) b.arbiter.Block(a, Micros(20), false, AtMicros(us));
    for (const Grant& g : b.Run(AtMicros(us))) {
      ++admitted;
      b.arbiter.Launched(a, 1, AtMicros(us));
      b.arbiter.Return(a, g.phase, g.amount - Micros(20), AtMicros(us));
    }
  }
  EXPECT_GE(admitted, 10);
  EXPECT_LE(admitted, 32);  // (window + 2 windows) / 20 us, and one more
}

// A caller that knows when the device is done says so. The arbiter then trusts the clock, but only at that instant.
TEST(Arbiter, WhatIsForeseenIsBelieved) {
  ArbiterOptions options;
  options.window = Micros(20);
  options.min_commands = options.high_band_min_commands = 0;
  options.grant = options.lone_grant = Millis(4);
  Books b(options);
  const TenantId a = b.arbiter.Add({}, AtMicros(0)), c = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Block(a, Millis(4), false, AtMicros(0));
  ASSERT_EQ(b.Run(AtMicros(0)).size(), 1u);
  b.arbiter.Block(c, Millis(4), false, AtMicros(0));
  EXPECT_TRUE(b.Run(AtMicros(0)).empty());
  // Nothing is settled, so the clock may run ahead by at most two windows.
  EXPECT_TRUE(b.Run(AtMicros(3990)).empty());
  b.arbiter.Foresee(AtMicros(4500), AtMicros(3990));
  EXPECT_TRUE(b.Run(AtMicros(3990)).empty());
  EXPECT_GT(b.again, AtMicros(4470));
  EXPECT_LE(b.again, AtMicros(4490));
  EXPECT_TRUE(b.Run(AtMicros(4485)).empty());  // Foresee() was not called for this instant
  b.arbiter.Foresee(AtMicros(4500), AtMicros(4485));
  EXPECT_EQ(b.Run(AtMicros(4485)).size(), 1u);
  EXPECT_EQ(b.arbiter.View(a).outstanding, Millis(4));
}

// However small the awaited work is by prediction, and however overdue; but only at the instant of the call.
TEST(Arbiter, WhatIsAwaitedIsNotDrainedByTheClock) {
  ArbiterOptions options;
  options.window = Micros(20);
  options.min_commands = options.high_band_min_commands = 0;
  Books b(options);
  const TenantId a = b.arbiter.Add({}, AtMicros(0)), c = b.arbiter.Add({}, AtMicros(0));
  const TenantId high = b.arbiter.Add({.cap = 0.5, .band = Band::kHigh}, AtMicros(0));
  b.arbiter.Block(a, Micros(10), false, AtMicros(0));
  ASSERT_EQ(b.Run(AtMicros(0)).size(), 1u);
  b.arbiter.Block(c, Micros(10), false, AtMicros(0));
  for (int us = 0; us < 1000; us += 100) {
    b.arbiter.Await(AtMicros(us));
    EXPECT_TRUE(b.Run(AtMicros(us)).empty()) << us;
  }
  // The high band does not wait for it.
  b.arbiter.Block(high, Micros(10), false, AtMicros(1000));
  b.arbiter.Await(AtMicros(1000));
  ASSERT_EQ(b.Run(AtMicros(1000)).size(), 1u);
  b.arbiter.Settle(high, Phase::kWeight, b.arbiter.View(high).outstanding, Micros(10), 1,
                   AtMicros(1000));
  // Await() was not called for this instant.
  EXPECT_EQ(b.Run(AtMicros(2000)).size(), 1u);
}

TEST(Arbiter, AWaitingTenantOfLowerBandGoesLast) {
  ArbiterOptions options;
  options.high_band_min_commands = 1;
  Books b(options);
  const TenantId low = b.arbiter.Add({.band = Band::kLow}, AtMicros(0));
  const TenantId normal = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Block(low, Micros(100), false, AtMicros(0));
  b.arbiter.Block(normal, Micros(100), false, AtMicros(0));
  const auto grants = b.Run(AtMicros(0));
  ASSERT_FALSE(grants.empty());
  EXPECT_EQ(grants[0].tenant, normal);
  for (const Grant& g : grants) EXPECT_NE(g.tenant, low);
}

TEST(Arbiter, GrantsOfTheHighBandAreTheirOwn) {
  Books b({.lone_grant = Micros(100), .high_grant = Micros(300)});
  const TenantId high = b.arbiter.Add({.band = Band::kHigh}, AtMicros(0));
  for (const Nanos predicted : {Micros(14), Micros(400)}) {
    b.arbiter.Block(high, predicted, false, AtMicros(1));
    const auto grants = b.Run(AtMicros(1));
    ASSERT_EQ(grants.size(), 1u);
    EXPECT_EQ(grants[0].amount, std::max(predicted, Nanos(Micros(300))));
  }
}

TEST(Arbiter, StrictClosingWhileAndShortlyAfterAHighCommand) {
  Books b;
  const TenantId high = b.arbiter.Add({.band = Band::kHigh}, AtMicros(0));
  const TenantId a = b.arbiter.Add({}, AtMicros(0));
  EXPECT_FALSE(b.arbiter.Closed(Band::kNormal, AtMicros(1)));
  const Phase phase = b.arbiter.Charge(high, Micros(50), AtMicros(100));
  EXPECT_TRUE(b.arbiter.Closed(Band::kNormal, AtMicros(100)));
  EXPECT_TRUE(b.arbiter.Closed(Band::kLow, AtMicros(100)));
  EXPECT_FALSE(b.arbiter.Closed(Band::kHigh, AtMicros(100)));
  b.arbiter.Block(a, Micros(10), false, AtMicros(101));
  EXPECT_TRUE(b.Run(AtMicros(101)).empty());
  EXPECT_TRUE(b.Run(AtMicros(300)).empty()) << "unsettled, however long ago predicted to end";
  b.arbiter.Settle(high, phase, Micros(50), Micros(60), 1, AtMicros(310));
  EXPECT_TRUE(b.Run(AtMicros(311)).empty());
  EXPECT_EQ(b.again, AtMicros(340));  // high_grace = 30 us
  EXPECT_EQ(b.Run(AtMicros(340)).size(), 1u);
}

TEST(Arbiter, GraceCountsFromWhenTheDeviceWasDone) {
  Books b;
  const TenantId high = b.arbiter.Add({.band = Band::kHigh}, AtMicros(0));
  const TenantId a = b.arbiter.Add({}, AtMicros(0));
  Phase phase = b.arbiter.Charge(high, Micros(50), AtMicros(100));
  b.arbiter.Block(a, Micros(10), false, AtMicros(101));
  b.arbiter.Settle(high, phase, Micros(50), Micros(60), 1, AtMicros(310), /*ended=*/AtMicros(303));
  EXPECT_TRUE(b.Run(AtMicros(311)).empty());
  EXPECT_EQ(b.again, AtMicros(333));
  // A launch after that end, and an end that lies in the future.
  phase = b.arbiter.Charge(high, Micros(50), AtMicros(320));
  b.arbiter.Settle(high, phase, Micros(50), Micros(1), 1, AtMicros(325), AtMicros(310));
  EXPECT_TRUE(b.Run(AtMicros(326)).empty());
  EXPECT_EQ(b.again, AtMicros(350));
  phase = b.arbiter.Charge(high, Micros(50), AtMicros(330));
  b.arbiter.Settle(high, phase, Micros(50), Micros(1), 1, AtMicros(340), AtMicros(900));
  EXPECT_TRUE(b.Run(AtMicros(341)).empty());
  EXPECT_EQ(b.again, AtMicros(370));
}

TEST(Arbiter, OneThatItsCapHoldsClosesNobody) {
  Books b;
  const TenantId high = b.arbiter.Add({.cap = 0.5, .cap_depth = Micros(100), .band = Band::kHigh},
                                      AtMicros(0)),
                 low = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Charge(high, Micros(150), AtMicros(0));
  b.arbiter.Block(high, Micros(100), false, AtMicros(1));
  b.arbiter.Block(low, Micros(10), false, AtMicros(1));
  EXPECT_TRUE(b.Run(AtMicros(1)).empty());
  EXPECT_TRUE(b.arbiter.Closed(Band::kNormal, AtMicros(1))) << "its command is in flight";
  // It owes 50 us, and may continue when it has another 50 us, which takes 200 us. Until then nobody waits for its
  // next command.
  b.arbiter.Settle(high, Phase::kWeight, Micros(150), Micros(150), 1, AtMicros(151));
  EXPECT_FALSE(b.arbiter.Closed(Band::kNormal, AtMicros(151)));
  const auto grants = b.Run(AtMicros(151));
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].tenant, low);
  // A tenant that its cap does not hold may be about to launch.
  b.arbiter.Charge(b.arbiter.Add({.band = Band::kHigh}, AtMicros(152)), Micros(1), AtMicros(152));
  EXPECT_TRUE(b.arbiter.Closed(Band::kNormal, AtMicros(153)));
}

// It synchronizes after each command, so it has nothing in flight between commands.
TEST(Arbiter, OneThatItsCapHoldsTakesNobodyElsesGrace) {
  Books b;
  const TenantId held = b.arbiter.Add({.cap = 0.5, .cap_depth = Micros(100), .band = Band::kHigh},
                                      AtMicros(0)),
                 other = b.arbiter.Add({.band = Band::kHigh}, AtMicros(0));
  b.arbiter.Charge(held, Micros(1150), AtMicros(0));
  b.arbiter.Block(held, Micros(100), false, AtMicros(1));
  b.arbiter.Settle(held, Phase::kWeight, Micros(1150), Micros(1150), 1, AtMicros(1151));
  const Phase phase = b.arbiter.Charge(other, Micros(10), AtMicros(1200));
  b.arbiter.Sync(other, AtMicros(1211));
  b.arbiter.Settle(other, phase, Micros(10), Micros(10), 1, AtMicros(1211));
  EXPECT_TRUE(b.arbiter.Closed(Band::kNormal, AtMicros(1220)));
  EXPECT_TRUE(b.arbiter.Closed(Band::kNormal, AtMicros(1240)));
  EXPECT_FALSE(b.arbiter.Closed(Band::kNormal, AtMicros(1242)));
}

// A tenant of the high band that its cap holds until 200 us, while another tenant has work in flight since 150 us.
struct HeldByItsCap : Books {
  explicit HeldByItsCap(const ArbiterOptions& options) : Books(options) {}
  void Begin(Nanos in_flight) {
    arbiter.Block(high, Micros(150), false, AtMicros(0));
    ASSERT_EQ(Run(AtMicros(0)).size(), 1u);
    arbiter.Launched(high, 1, AtMicros(0));
    arbiter.Block(high, Micros(50), false, AtMicros(1));
    arbiter.Settle(high, Phase::kWeight, Micros(150), Micros(150), 1, AtMicros(150));
    arbiter.Block(low, in_flight, false, AtMicros(150));
    ASSERT_EQ(Run(AtMicros(150)).size(), 1u);
    arbiter.Launched(low, 1, AtMicros(150));
  }
  const TenantId high = arbiter.Add({.cap = 0.5, .cap_depth = Micros(100), .band = Band::kHigh},
                                    AtMicros(0)),
                 low = arbiter.Add({}, AtMicros(0));
};

TEST(Arbiter, OneThatItsCapLetsGoWaitsForWhatIsInFlight) {
  for (const bool ends : {true, false}) {
    HeldByItsCap b({.high_waits = Micros(400)});
    const TenantId high = b.high, low = b.low;
    ASSERT_NO_FATAL_FAILURE(b.Begin(Micros(200)));
    // The cap holds it until 200 us.
    EXPECT_TRUE(b.Run(AtMicros(199)).empty());
    EXPECT_FALSE(b.arbiter.Closed(Band::kNormal, AtMicros(199)));
    b.arbiter.Block(low, Micros(200), false, AtMicros(250));
    EXPECT_TRUE(b.Run(AtMicros(251)).empty()) << "what is in flight is not done";
    EXPECT_TRUE(b.arbiter.Closed(Band::kNormal, AtMicros(251)));
    EXPECT_TRUE(b.arbiter.Draining());
    EXPECT_LE(b.again, AtMicros(351));
    const int64_t at = ends ? 340 : 652;  // or until it stops waiting
    if (ends) {
      b.arbiter.Settle(low, Phase::kWeight, Micros(200), Micros(190), 1, AtMicros(at));
    } else {
      b.arbiter.Settle(low, Phase::kWeight, Nanos(0), Micros(200), 0, AtMicros(at - 1));
    }
    const auto grants = b.Run(AtMicros(at));
    ASSERT_EQ(grants.size(), 1u) << at;
    EXPECT_EQ(grants[0].tenant, high);
    if (ends) continue;
    // Work that failed to end in time may be made not to end, so for a while the high band does not wait for it
    // again.
    b.arbiter.Launched(high, 1, AtMicros(at));
    b.arbiter.Settle(high, Phase::kWeight, Micros(50), Micros(150), 1, AtMicros(at + 150));
    b.arbiter.Block(high, Micros(50), false, AtMicros(at + 150));
    EXPECT_TRUE(b.Run(AtMicros(at + 150)).empty());
    const Time released = b.again;
    ASSERT_LT(released, AtMicros(at + 1000));
    b.arbiter.Settle(low, Phase::kWeight, Nanos(0), Micros(300), 0, released - Nanos(1));
    const auto again = b.Run(released);
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].tenant, high);
  }
}

// If the work is known to end, the tenant waits for longer, and may afterwards use what its cap would have let it use
// meanwhile.
TEST(Arbiter, OneThatItsCapLetsGoWaitsForALongCommandThatIsForeseenToEnd) {
  for (const bool foreseen : {true, false}) {
    HeldByItsCap b(
        {.lone_grant = Micros(100), .high_waits = Micros(400), .high_waits_foreseen = Millis(10)});
    const TenantId high = b.high, low = b.low;
    ASSERT_NO_FATAL_FAILURE(b.Begin(Millis(3)));
    int64_t at = 151;
    for (std::vector<Grant> grants; grants.empty() && at < 10'000; ++at) {
      if (at == 3150) b.arbiter.Settle(low, Phase::kWeight, Millis(3), Millis(3), 1, AtMicros(at));
      if (foreseen) b.arbiter.Foresee(AtMicros(3150), AtMicros(at));
      grants = b.Run(AtMicros(at));
      for (const Grant& grant : grants) EXPECT_EQ(grant.tenant, high);
    }
    if (!foreseen) {  // 400 us after its cap stops holding it, which is at 200 us
      EXPECT_NEAR(static_cast<double>(at), 650, 60);
      continue;
    }
    EXPECT_NEAR(static_cast<double>(at), 3150, 10 + 40);  // low_window
    // In 3 ms its cap of a half refills 1.5 ms. Without the wait it could save up only 0.1 ms.
    EXPECT_NEAR(static_cast<double>(b.arbiter.View(high).cap_tokens.count()), 1.45e6 - 1e5, 1e5);
    EXPECT_STREQ(b.arbiter.CheckInvariants(), "");
  }
}

// Credit beyond the usual depth that a cap keeps during a wait is for the waiting command. A tenant that gives up, or
// that has launched the command and is idle, saves up only the usual depth.
TEST(Arbiter, WhatACapKeepsForAWaitIsGoneWithIt) {
  for (const bool gives_up : {true, false}) {
    HeldByItsCap b({.high_waits = Millis(10)});
    const TenantId high = b.high, low = b.low;
    ASSERT_NO_FATAL_FAILURE(b.Begin(Millis(3)));
    for (int64_t at = 151; at < 1000; at += 10) {
      b.arbiter.Foresee(AtMicros(3150), AtMicros(at));
      EXPECT_TRUE(b.Run(AtMicros(at)).empty());
    }
    const auto tokens = [&] { return b.arbiter.View(high).cap_tokens; };
    EXPECT_GT(tokens(), Micros(300));
    if (gives_up) {
      b.arbiter.Unblock(high, AtMicros(1000));
      EXPECT_EQ(tokens(), Micros(100));
    }
    b.arbiter.Settle(low, Phase::kWeight, Millis(3), Millis(3), 1, AtMicros(3150));
    const auto grants = b.Run(AtMicros(3150));
    if (!gives_up) {
      ASSERT_EQ(grants.size(), 1u);
      EXPECT_GT(tokens(), Micros(1000));  // for its next commands
      b.arbiter.Launched(high, 1, AtMicros(3151));
      const Nanos amount = grants[0].amount;
      b.arbiter.Settle(high, Phase::kWeight, amount, amount, 1, AtMicros(3151) + amount);
    }
    b.Run(AtMicros(8000));
    EXPECT_EQ(tokens(), Micros(100));
    EXPECT_STREQ(b.arbiter.CheckInvariants(), "");
  }
}

TEST(Arbiter, BelowSomebodyElsesHighBandLittleIsInFlight) {
  for (const bool below : {false, true}) {
    Books b;
    const TenantId a = b.arbiter.Add({}, AtMicros(0));
    b.arbiter.SetBelow(below);
    int admitted = 0;
    for (int i = 0; i < 8; ++i) {
      b.arbiter.Block(a, Millis(1), false, AtMicros(i));
      if (b.Run(AtMicros(i)).empty()) break;
      b.arbiter.Launched(a, 1, AtMicros(i));
      ++admitted;
    }
    const ArbiterOptions options;
    EXPECT_EQ(admitted, below ? options.high_band_min_commands : options.min_commands);
  }
}

// The clock runs on while another process's high band uses the device, so work is not assumed to be done by the
// clock.
TEST(Arbiter, BelowSomebodyElsesHighBandTheClockLetsLittleMoreBegin) {
  Books b;
  const TenantId a = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.SetBelow(true);
  int admitted = 0;
  for (int us = 0; us < 1000; us += 10) {
    b.arbiter.Block(a, Micros(100), false, AtMicros(us));
    if (b.Run(AtMicros(us)).empty()) continue;
    b.arbiter.Launched(a, 1, AtMicros(us));
    ++admitted;
  }
  EXPECT_EQ(admitted, 2);
}

TEST(Arbiter, TheGraceOfTheHighBandMayBecomeAnother) {
  Books b;
  const TenantId high = b.arbiter.Add({.band = Band::kHigh}, AtMicros(0));
  const TenantId a = b.arbiter.Add({}, AtMicros(0));
  ArbiterOptions options = b.arbiter.options();
  options.high_grace = Micros(200);
  b.arbiter.SetOptions(options);
  const Phase phase = b.arbiter.Charge(high, Micros(50), AtMicros(0));
  b.arbiter.Block(a, Micros(10), false, AtMicros(1));
  b.arbiter.Settle(high, phase, Micros(50), Micros(60), 1, AtMicros(100));
  EXPECT_TRUE(b.Run(AtMicros(140)).empty());
  EXPECT_EQ(b.again, AtMicros(300));
  options.high_grace = Micros(50);
  b.arbiter.SetOptions(options);  // changes the options during the grace
  EXPECT_EQ(b.Run(AtMicros(150)).size(), 1u);
}

TEST(Arbiter, WhileTheHighBandIsHeldBackTheOthersHaveTheDevice) {
  Books b;
  const TenantId high = b.arbiter.Add({.band = Band::kHigh}, AtMicros(0));
  const TenantId a = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Charge(high, Micros(50), AtMicros(0));
  b.arbiter.Block(a, Micros(10), false, AtMicros(1));
  EXPECT_TRUE(b.Run(AtMicros(2)).empty());
  b.arbiter.HoldHighBand(true);
  EXPECT_FALSE(b.arbiter.Closed(Band::kNormal, AtMicros(3)));
  b.arbiter.Block(high, Micros(10), false, AtMicros(3));
  auto grants = b.Run(AtMicros(3));
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].tenant, a);
  b.arbiter.HoldHighBand(false);
  EXPECT_TRUE(b.arbiter.Closed(Band::kNormal, AtMicros(4)));
  grants = b.Run(AtMicros(4));
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].tenant, high);
}

TEST(Arbiter, WhoSleepsIsWokenSoThatItsLaunchComesAfterTheGrace) {
  Books b;
  const TenantId high = b.arbiter.Add({.band = Band::kHigh}, AtMicros(0));
  const TenantId sleeps = b.arbiter.Add({}, AtMicros(0)), spins = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.SetWakeLatency(Micros(20));
  const Phase phase = b.arbiter.Charge(high, Micros(50), AtMicros(100));
  b.arbiter.Block(sleeps, Micros(10), false, AtMicros(101));
  b.arbiter.Block(sleeps, Micros(10), false,
                  AtMicros(305));  // it asked again, but sleeps since its first request
  b.arbiter.Settle(high, phase, Micros(50), Micros(60), 1, AtMicros(310));
  EXPECT_TRUE(b.Run(AtMicros(319)).empty());
  EXPECT_EQ(b.again, AtMicros(320));
  EXPECT_TRUE(b.arbiter.Closed(Band::kNormal, AtMicros(319)));
  const auto grants = b.Run(AtMicros(320));
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_FALSE(grants[0].stands);
  EXPECT_FALSE(b.arbiter.Closed(Band::kNormal, AtMicros(320)))
      << "else it would be taken back at once";
  // A tenant that has waited for less than `asleep_after` is awake and launches at once, so it has to wait for the
  // grace.
  b.arbiter.Block(spins, Micros(10), false, AtMicros(321));
  EXPECT_TRUE(b.Run(AtMicros(322)).empty());
  EXPECT_EQ(b.again, AtMicros(340));
  // A launch of the high band meanwhile takes the grant back.
  b.arbiter.Charge(high, Micros(50), AtMicros(325));
  EXPECT_TRUE(b.arbiter.Closed(Band::kNormal, AtMicros(325)));
  EXPECT_TRUE(b.Run(AtMicros(345)).empty());
}

// An exclusive grant cannot be taken back, so it is not granted ahead of time.
TEST(Arbiter, WhoWantsTheDeviceToItselfIsNotWokenBeforeTheGraceIsOver) {
  Books b;
  const TenantId high = b.arbiter.Add({.band = Band::kHigh}, AtMicros(0));
  const TenantId sleeps = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.SetWakeLatency(Micros(20));
  const Phase phase = b.arbiter.Charge(high, Micros(50), AtMicros(0));
  b.arbiter.Block(sleeps, Millis(2), true, AtMicros(1));
  b.arbiter.Settle(high, phase, Micros(50), Micros(60), 1, AtMicros(310));
  EXPECT_TRUE(b.Run(AtMicros(325)).empty());
  EXPECT_EQ(b.again, AtMicros(340));
  EXPECT_EQ(b.Run(AtMicros(340)).size(), 1u);
}

TEST(Arbiter, NobodyIsWokenBeforeTheHighBandIsDone) {
  Books b;
  const TenantId high = b.arbiter.Add({.band = Band::kHigh}, AtMicros(0));
  const TenantId a = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.SetWakeLatency(Seconds(1));  // the latency counts for no more than the grace itself
  const Phase phase = b.arbiter.Charge(high, Micros(50), AtMicros(0));
  b.arbiter.Block(a, Micros(10), false, AtMicros(1));
  for (int64_t us = 10; us < 5000; us += 10) ASSERT_TRUE(b.Run(AtMicros(us)).empty()) << us;
  b.arbiter.Settle(high, phase, Micros(50), Micros(5000), 1, AtMicros(5000));
  EXPECT_EQ(b.Run(AtMicros(5000)).size(), 1u);
}

TEST(Arbiter, AHighCommandThatNeverEndsDoesNotCloseForEver) {
  Books b;
  const TenantId high = b.arbiter.Add({.band = Band::kHigh}, AtMicros(0));
  const TenantId a = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Charge(high, Micros(50), AtMicros(0));
  b.arbiter.Block(a, Micros(10), false, AtMicros(1));
  EXPECT_TRUE(b.Run(AtMicros(1)).empty());
  EXPECT_EQ(b.again, AtMicros(50'050));  // stale = 50 ms after the work's predicted end
  EXPECT_EQ(b.Run(b.again).size(), 1u);
}

TEST(Arbiter, FloorLetsSingleCommandsPastAClosedGate) {
  ArbiterOptions options;
  options.low_band_floor = 0.02;
  Books b(options);
  const TenantId high = b.arbiter.Add({.band = Band::kHigh}, AtMicros(0));
  const TenantId a = b.arbiter.Add({}, AtMicros(0));
  Nanos got{0};
  for (int64_t us = 0; us < 1'000'000; us += 50) {
    const Phase phase = b.arbiter.Charge(high, Micros(50), AtMicros(us));
    if (!b.arbiter.View(a).blocked && b.arbiter.View(a).outstanding == Nanos(0)) {
      b.arbiter.Block(a, Micros(100), false, AtMicros(us));
    }
    for (const Grant& g : b.Run(AtMicros(us))) {
      EXPECT_EQ(g.amount, Micros(100));
      got += g.amount;
      b.arbiter.Launched(a, 1, AtMicros(us));
      b.arbiter.Settle(a, g.phase, g.amount, g.amount, 1, AtMicros(us));
    }
    b.arbiter.Settle(high, phase, Micros(50), Micros(50), 1, AtMicros(us + 49));
  }
  EXPECT_NEAR(static_cast<double>(got.count()) / 1e9, 0.02, 0.001);
}

TEST(Arbiter, AnExclusiveRequestDrainsFirstAndThenHasTheDevice) {
  Books b({.lone_grant = Micros(100)});
  const TenantId a = b.arbiter.Add({}, AtMicros(0)), c = b.arbiter.Add({}, AtMicros(0)),
                 d = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Block(a, Micros(100), false, AtMicros(0));
  ASSERT_EQ(b.Run(AtMicros(0)).size(), 1u);
  b.arbiter.Launched(a, 1, AtMicros(0));
  b.arbiter.Block(c, Micros(20), true, AtMicros(1));
  b.arbiter.Block(d, Micros(20), false, AtMicros(1));
  auto grants = b.Run(AtMicros(2));
  for (const Grant& g : grants) EXPECT_NE(g.tenant, c) << "not drained yet";
  // The tenants that ran before are settled; then c has the device alone although d asks again.
  b.arbiter.Settle(a, Phase::kWeight, Micros(100), Micros(100), 1, AtMicros(120));
  for (const Grant& g : grants)
    b.arbiter.Settle(g.tenant, g.phase, g.amount, g.amount, 1, AtMicros(121));
  b.arbiter.Block(d, Millis(5), false, AtMicros(121));
  grants = b.Run(AtMicros(122));
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].tenant, c);
  EXPECT_EQ(grants[0].amount, Micros(20));
  EXPECT_TRUE(b.Run(AtMicros(200)).empty()) << "c has not finished";
  b.arbiter.Settle(c, grants[0].phase, Micros(20), Micros(25), 1, AtMicros(210));
  grants = b.Run(AtMicros(210));
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].tenant, d);
}

// If the grant were taken back, the tenant would ask and be granted it again, all at one instant.
TEST(Arbiter, WhatTheHolderOfTheDeviceIsGrantedWhileItsBandIsClosedStands) {
  Books b;
  const TenantId high = b.arbiter.Add({.band = Band::kHigh}, AtMicros(0));
  const TenantId holds = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Block(holds, Micros(20), true, AtMicros(1));
  ASSERT_EQ(b.Run(AtMicros(1)).size(), 1u);
  b.arbiter.HoldExclusive(holds, kNever);
  b.arbiter.Charge(high, Micros(50), AtMicros(2));
  b.arbiter.Block(holds, Micros(20), false, AtMicros(3));
  const auto grants = b.Run(AtMicros(3));
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].tenant, holds);
  EXPECT_TRUE(b.arbiter.Closed(Band::kNormal, AtMicros(3)));
  EXPECT_TRUE(grants[0].stands);
}

TEST(Arbiter, DrainingAsksForOpenGrantsBack) {
  Books b;
  const TenantId a = b.arbiter.Add({}, AtMicros(0)), c = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Block(a, Micros(2), false, AtMicros(0));
  auto grants = b.Run(AtMicros(0));
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_FALSE(b.arbiter.Closed(Band::kNormal, AtMicros(0)));
  b.arbiter.Block(c, Micros(20), true, AtMicros(1));
  EXPECT_TRUE(b.Run(AtMicros(1)).empty());
  EXPECT_TRUE(b.arbiter.Closed(Band::kNormal, AtMicros(1)));
  b.arbiter.Return(a, grants[0].phase, grants[0].amount, AtMicros(2));
  EXPECT_EQ(b.Run(AtMicros(2)).size(), 1u);
  EXPECT_FALSE(b.arbiter.Closed(Band::kNormal, AtMicros(2)));
}

TEST(Arbiter, CapWaitsForItsRefillAndNeverForgives) {
  Books b({.lone_grant = Micros(100)});
  const TenantId a = b.arbiter.Add({.cap = 0.1, .cap_depth = Millis(1)}, AtMicros(0));
  b.arbiter.Block(a, Millis(10), false, AtMicros(0));
  auto grants = b.Run(AtMicros(0));
  ASSERT_EQ(grants.size(), 1u) << "whoever holds a token may start one command of any length";
  EXPECT_EQ(b.arbiter.View(a).cap_tokens, Millis(1) - Millis(10));
  b.arbiter.Settle(a, grants[0].phase, Millis(10), Millis(12), 1, AtMicros(12'000));
  b.arbiter.Block(a, Millis(10), false, AtMicros(12'000));
  EXPECT_TRUE(b.Run(AtMicros(12'000)).empty());
  // 11 ms of debt, minus 1.2 ms that have refilled meanwhile, plus 0.1 ms to begin with, at a tenth: 99 ms.
  EXPECT_NEAR(static_cast<double>(b.again.time_since_epoch().count()), 111e6, 1e4);
  EXPECT_TRUE(b.Run(b.again - Micros(10)).empty());
  EXPECT_EQ(b.Run(b.again).size(), 1u);
}

TEST(Arbiter, CapThatIsUsedUpLetsGoWhenItIsWorthAGrant) {
  Books b({.lone_grant = Micros(100)});
  const TenantId a = b.arbiter.Add({.cap = 0.5, .cap_depth = Millis(1)}, AtMicros(0));
  b.arbiter.Block(a, Millis(1), false, AtMicros(0));
  ASSERT_EQ(b.Run(AtMicros(0)).size(), 1u);
  b.arbiter.Settle(a, Phase::kWeight, Millis(1), Millis(1), 1, AtMicros(0));
  b.arbiter.Block(a, Micros(10), false, AtMicros(0));
  EXPECT_TRUE(b.Run(AtMicros(100)).empty()) << "50 us are not worth a wake-up";
  EXPECT_EQ(b.again, Time(Micros(200) + Nanos(1)));
  const auto grants = b.Run(b.again);
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].amount, Micros(100));
}

TEST(Arbiter, SleeperIsAheadByBurstAtMost) {
  Books b;
  const TenantId sleeper = b.arbiter.Add({.burst = Millis(20)}, AtMicros(0));
  const TenantId worker = b.arbiter.Add({}, AtMicros(0));
  for (int64_t ms = 0; ms < 1000; ++ms) {
    b.arbiter.Block(worker, Millis(1), false, At(Millis(ms)));
    for (const Grant& g : b.Run(At(Millis(ms)))) {
      b.arbiter.Settle(worker, g.phase, g.amount, Millis(1), 1, At(Millis(ms) + Micros(999)));
    }
  }
  b.arbiter.Block(worker, Millis(1), false, At(Seconds(1)));
  b.arbiter.Block(sleeper, Millis(1), false, At(Seconds(1)));
  const double behind =
      b.arbiter.View(worker).virtual_time_ns - b.arbiter.View(sleeper).virtual_time_ns;
  EXPECT_GT(behind, 19e6);
  EXPECT_LT(behind, 21e6);
}

TEST(Arbiter, WhoRanAloneForLongIsNotStarvedByWhoSlept) {
  Books b;
  const TenantId a = b.arbiter.Add({}, AtMicros(0)), c = b.arbiter.Add({}, AtMicros(0));
  for (int64_t ms = 0; ms < 10'000; ++ms) {  // 10 s alone
    b.arbiter.Block(a, Millis(1), false, At(Millis(ms)));
    for (const Grant& g : b.Run(At(Millis(ms)))) {
      b.arbiter.Settle(a, g.phase, g.amount, Millis(1), 1, At(Millis(ms) + Micros(999)));
    }
  }
  // a pauses; c arrives while no tenant is active; a returns.
  b.arbiter.Sync(a, At(Seconds(11)));
  b.arbiter.Block(c, Millis(1), false, At(Seconds(12)));
  EXPECT_EQ(b.Run(At(Seconds(12))).size(), 1u);
  b.arbiter.Block(a, Millis(1), false, At(Seconds(12)));
  EXPECT_LT(b.arbiter.View(a).virtual_time_ns - b.arbiter.View(c).virtual_time_ns, 25e6);
}

TEST(Arbiter, DebtAgainstAWeightHasAHorizon) {
  Books b;
  const TenantId a = b.arbiter.Add({}, AtMicros(0)), c = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Block(a, Micros(20), false, AtMicros(0));
  b.arbiter.Block(c, Micros(20), false, AtMicros(0));
  const auto grants = b.Run(AtMicros(0));
  ASSERT_EQ(grants.size(), 2u);
  // a's command took a minute instead of 20 us.
  b.arbiter.Settle(a, grants[0].phase, Micros(20), Seconds(60), 1, At(Seconds(60)));
  const double ahead = b.arbiter.View(a).virtual_time_ns - b.arbiter.View(c).virtual_time_ns;
  EXPECT_LE(ahead * 2, 2e9 + 1e6);  // debt_horizon in normalised virtual time (weights 1 + 1)
  EXPECT_GE(ahead * 2, 1.9e9);
}

TEST(Arbiter, IdsAreReusedAndForgetTheirPast) {
  Books b;
  const TenantId a = b.arbiter.Add({.cap = 0.1}, AtMicros(0));
  b.arbiter.Block(a, Millis(100), false, AtMicros(0));
  EXPECT_EQ(b.Run(AtMicros(0)).size(), 1u);
  b.arbiter.Remove(a, AtMicros(1));
  EXPECT_EQ(b.arbiter.tenants(), 0);
  EXPECT_EQ(b.arbiter.Outstanding(AtMicros(1)), Nanos(0));
  const TenantId c = b.arbiter.Add({.cap = 0.1}, AtMicros(2));
  EXPECT_EQ(c, a);
  EXPECT_EQ(b.arbiter.View(c).charged, Nanos(0));
  EXPECT_GT(b.arbiter.View(c).cap_tokens, Nanos(0));
  b.arbiter.Block(c, Millis(1), false, AtMicros(2));
  EXPECT_EQ(b.Run(AtMicros(2)).size(), 1u);
}

TEST(Arbiter, RemoveWhileGrantedFreesTheWindow) {
  ArbiterOptions options;
  options.min_commands = 1;
  Books b(options);
  const TenantId a = b.arbiter.Add({}, AtMicros(0)), c = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Block(a, Seconds(1), false, AtMicros(0));
  ASSERT_EQ(b.Run(AtMicros(0)).size(), 1u);
  b.arbiter.Launched(a, 1, AtMicros(1));
  b.arbiter.Block(c, Micros(10), false, AtMicros(1));
  EXPECT_TRUE(b.Run(AtMicros(1)).empty());
  b.arbiter.Remove(a, AtMicros(2));
  EXPECT_EQ(b.Run(AtMicros(2)).size(), 1u);
  b.arbiter.Settle(a, Phase::kWeight, Seconds(1), Seconds(1), 1,
                   AtMicros(3));  // a late report about a removed tenant
  EXPECT_STREQ(b.arbiter.CheckInvariants(), "");
}

TEST(Arbiter, CallsOutOfOrderDoNotBreakTheBooks) {
  Books b;
  const TenantId a = b.arbiter.Add({}, AtMicros(100));
  b.arbiter.Settle(a, Phase::kWeight, Micros(10), Micros(10), 3, AtMicros(101));
  b.arbiter.Return(a, Phase::kGuarantee, Micros(10), AtMicros(90));  // an earlier clock reading
  b.arbiter.Launched(a, 5, AtMicros(102));
  b.arbiter.Unblock(a, AtMicros(102));
  b.arbiter.Touch(a, AtMicros(103));
  b.arbiter.Sync(a, AtMicros(103));
  b.arbiter.Block(77, Micros(1), false, AtMicros(104));
  b.arbiter.Remove(77, AtMicros(104));
  EXPECT_EQ(b.arbiter.View(a).outstanding, Nanos(0));
  EXPECT_FALSE(b.arbiter.View(a).active);
}

TEST(Arbiter, NonsenseAmountsDoNotOverflowTheBooks) {
  Books b;
  const TenantId a = b.arbiter.Add({.guarantee = 0.001, .cap = 0.5}, AtMicros(0));
  const TenantId c = b.arbiter.Add({}, AtMicros(0));
  for (int i = 0; i < 100; ++i) {
    const Time now = AtMicros(i * 10);
    b.arbiter.Charge(a, Nanos::max(), now);
    b.arbiter.Charge(a, Nanos(-5), now);
    b.arbiter.Settle(a, Phase::kGuarantee, Nanos(-1), Nanos::max(), -3, now);
    b.arbiter.Launched(c, 1 << 30, now);
    b.arbiter.Return(a, Phase::kWeight, Nanos(-7), now);
    b.arbiter.Block(c, i % 2 == 0 ? Nanos::max() : Nanos(-1), false, now);
    b.Run(now);
    ASSERT_STREQ(b.arbiter.CheckInvariants(), "");
  }
  EXPECT_GE(b.arbiter.View(a).outstanding, Nanos(0));
}

TEST(Arbiter, UnblockWithdrawsTheRequest) {
  Books b;
  const TenantId a = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Block(a, Micros(10), true, AtMicros(0));
  b.arbiter.Unblock(a, AtMicros(1));
  EXPECT_TRUE(b.Run(AtMicros(1)).empty());
  EXPECT_EQ(b.again, kNever);
}

TEST(Arbiter, AnticipatesTheNextLaunchOfWhoIsBehind) {
  // a has a weight of three quarters, has just finished a small command, and will be back in 4 us; c is far ahead.
  Books b;
  const TenantId a = b.arbiter.Add({.weight = 3}, AtMicros(0)), c = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Block(c, Millis(1), false, AtMicros(0));
  ASSERT_EQ(b.Run(AtMicros(0)).size(), 1u);
  b.arbiter.Settle(c, Phase::kWeight, Millis(1), Millis(1), 1, AtMicros(1000));
  b.arbiter.Touch(a, AtMicros(1000));
  b.arbiter.Block(c, Millis(1), false, AtMicros(1001));
  EXPECT_TRUE(b.Run(AtMicros(1001)).empty()) << "c is 4 ms ahead and a is about to launch";
  EXPECT_GT(b.again, AtMicros(1001));
  EXPECT_LE(b.again, AtMicros(1050));
  b.arbiter.Block(a, Micros(14), false, AtMicros(1004));
  const auto grants = b.Run(AtMicros(1004));
  ASSERT_FALSE(grants.empty());
  EXPECT_EQ(grants[0].tenant, a);
}

TEST(Arbiter, AnticipationEndsWhenNobodyComes) {
  Books b;
  const TenantId a = b.arbiter.Add({.weight = 3}, AtMicros(0)), c = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Block(c, Millis(1), false, AtMicros(0));
  ASSERT_EQ(b.Run(AtMicros(0)).size(), 1u);
  b.arbiter.Settle(c, Phase::kWeight, Millis(1), Millis(1), 1, AtMicros(1000));
  b.arbiter.Touch(a, AtMicros(1000));
  b.arbiter.Block(c, Millis(1), false, AtMicros(1001));
  EXPECT_TRUE(b.Run(AtMicros(1001)).empty());
  EXPECT_EQ(b.Run(b.again).size(), 1u);
}

// How long a tenant that is always about to launch and never does can hold back an out-of-turn `command`, once the
// idle budget is used up. `foresees`: the end of what is in flight is known, which is nothing.
Nanos KeptBack(Nanos command, bool foresees = false) {
  ArbiterOptions options;
  options.idle_budget_depth = Nanos(0);
  Books b(options);
  const TenantId a = b.arbiter.Add({}, AtMicros(0)), c = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Block(c, command, false, AtMicros(0));
  EXPECT_EQ(b.Run(AtMicros(0)).size(), 1u);
  const Time done = At(command);
  b.arbiter.Settle(c, Phase::kWeight, command, command, 1, done);
  b.arbiter.Block(c, command, false, done);
  for (Time now = done;; now += Micros(1)) {
    b.arbiter.Touch(a, now);
    if (foresees) b.arbiter.Foresee(now, now);
    if (!b.Run(now).empty() || now - done > Seconds(1)) return now - done;
  }
}

TEST(Arbiter, ALongCommandOutOfTurnPaysForTheWaitItself) {
  // 1 % of the command's time, which its own run adds to the budget.
  EXPECT_NEAR(static_cast<double>(KeptBack(Millis(100)).count()), 1e6, 3e4);
  EXPECT_NEAR(static_cast<double>(KeptBack(Millis(10)).count()), 1e5, 5e3);
  EXPECT_LE(KeptBack(Micros(600)), Micros(8));
}

TEST(Arbiter, CommandsThatAreNeverSettledAreCountedToALimit) {
  Books b;
  const TenantId a = b.arbiter.Add({}, AtMicros(0)), c = b.arbiter.Add({}, AtMicros(0));
  b.arbiter.Charge(a, Millis(1), AtMicros(0));
  for (int i = 0; i < 3000; ++i) b.arbiter.Launched(a, 1 << 20, AtMicros(i));
  EXPECT_STREQ(b.arbiter.CheckInvariants(), "");
  b.arbiter.Settle(a, Phase::kWeight, Millis(1), Millis(1), 1, AtMicros(3000));
  b.arbiter.Block(c, Micros(10), false, AtMicros(3000));
  EXPECT_EQ(b.Run(AtMicros(3000)).size(), 1u);
  EXPECT_STREQ(b.arbiter.CheckInvariants(), "");
}

TEST(Arbiter, WhatIsIdledAwayCountsThoughTheEndOfTheWorkWasForeseen) {
  EXPECT_NEAR(static_cast<double>(KeptBack(Millis(10), true).count()), 1e5, 5e3);
}

}  // namespace
}  // namespace gpushare::sched
