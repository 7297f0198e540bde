// SPDX-License-Identifier: Apache-2.0
// Work beside the high band: which tenants are considered, what is granted, and how much that may delay the high
// band.
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "sched/arbiter.h"
#include "sched/delay_budget.h"

namespace gpushare::sched {
namespace {

Time AtMicros(int64_t us) { return Time(Micros(us)); }

class Says : public Beside {
 public:
  bool Admits(TenantId tenant, Time, Time* again) override {
    asked.push_back(tenant);
    *again = ask_again;
    return admits;
  }
  bool admits = true;
  Time ask_again = kNever;
  std::vector<TenantId> asked;
};

struct Books {
  Books() { high = arbiter.Add({.band = Band::kHigh}, AtMicros(0)); }
  ~Books() { EXPECT_STREQ(arbiter.CheckInvariants(), ""); }
  void Request(TenantId tenant, int64_t us, bool exclusive = false) {
    arbiter.Block(tenant, Micros(us), exclusive, AtMicros(now));
  }
  std::vector<Grant> Run(Beside* beside) {
    std::vector<Grant> grants;
    again = arbiter.Run(AtMicros(now), grants, beside);
    return grants;
  }
  // Puts a command of the high band in flight.
  void Begin() {
    Request(high, 1000);
    ASSERT_EQ(Run(nullptr).size(), 1u);
    arbiter.Launched(high, 1, AtMicros(now));
  }
  Arbiter arbiter{ArbiterOptions{}};
  TenantId high = 0;
  int64_t now = 1;
  Time again = kNever;
  Says says;
};

TEST(Beside, OneCommandIsGrantedAndStands) {
  Books b;
  const TenantId job = b.arbiter.Add({}, AtMicros(0));
  b.Begin();
  b.Request(job, 40);
  EXPECT_TRUE(b.Run(nullptr).empty());
  const std::vector<Grant> grants = b.Run(&b.says);
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].tenant, job);
  EXPECT_EQ(grants[0].amount, Micros(40));  // exactly the one command
  EXPECT_TRUE(grants[0].stands && grants[0].beside);
  EXPECT_EQ(b.arbiter.View(job).charged, Micros(40));
  EXPECT_TRUE(b.arbiter.Closed(Band::kNormal, AtMicros(b.now)));
}

TEST(Beside, WhoIsRefusedIsAskedForAgain) {
  Books b;
  const TenantId job = b.arbiter.Add({}, AtMicros(0));
  b.Begin();
  b.Request(job, 40);
  b.says.admits = false;
  b.says.ask_again = AtMicros(17);
  EXPECT_TRUE(b.Run(&b.says).empty());
  EXPECT_EQ(b.again, AtMicros(17));
  EXPECT_EQ(b.says.asked, std::vector<TenantId>{job});
}

TEST(Beside, NobodyIsAskedWhereTheBandIsOpenOrInItsGrace) {
  Books b;
  const TenantId job = b.arbiter.Add({}, AtMicros(0));
  b.Request(job, 40);
  const std::vector<Grant> open = b.Run(&b.says);
  ASSERT_EQ(open.size(), 1u);
  EXPECT_FALSE(open[0].beside);
  b.arbiter.Launched(job, 1, AtMicros(b.now));
  b.Begin();
  b.now = 500;
  b.arbiter.Settle(b.high, Phase::kWeight, b.arbiter.View(b.high).outstanding, Micros(400), 1,
                   AtMicros(500), AtMicros(500));
  b.now = 510;  // 10 us into the grace of 30 us
  b.Request(job, 40);
  EXPECT_TRUE(b.Run(&b.says).empty());
  EXPECT_TRUE(b.says.asked.empty());
}

TEST(Beside, TheOneInTurnIsAskedForAlone) {
  Books b;
  const TenantId first = b.arbiter.Add({}, AtMicros(0)), second = b.arbiter.Add({}, AtMicros(0));
  const TenantId low = b.arbiter.Add({.band = Band::kLow}, AtMicros(0));
  b.arbiter.Charge(second, Millis(5), AtMicros(0));  // its virtual time is ahead
  b.Begin();
  b.Request(first, 40);
  b.Request(second, 10);
  b.Request(low, 10);
  b.says.admits = false;
  b.Run(&b.says);
  EXPECT_EQ(b.says.asked, std::vector<TenantId>{first});
}

TEST(Beside, WhoWantsTheDeviceToItselfIsNotAskedFor) {
  Books b;
  const TenantId job = b.arbiter.Add({}, AtMicros(0));
  b.Begin();
  b.Request(job, 40, /*exclusive=*/true);
  EXPECT_TRUE(b.Run(&b.says).empty());
  EXPECT_TRUE(b.says.asked.empty());
}

TEST(Beside, ACapHoldsThereToo) {
  Books b;
  const TenantId job = b.arbiter.Add({.cap = 0.1, .cap_depth = Micros(100)}, AtMicros(0));
  b.Begin();
  Nanos granted{0};
  for (; b.now < 10'000; b.now += 10) {
    b.Request(job, 40);
    for (const Grant& grant : b.Run(&b.says)) {
      granted += grant.amount;
      b.arbiter.Launched(job, 1, AtMicros(b.now));
      b.arbiter.Settle(job, grant.phase, grant.amount, grant.amount, 1, AtMicros(b.now));
    }
  }
  EXPECT_LE(granted, Micros(1000 + 100 + 40));
  EXPECT_GE(granted, Micros(900));
}

// ---- The budget

TEST(DelayBudget, IsAPartOfWhatTheTenantHasUsed) {
  DelayBudget budget(0.02);
  EXPECT_EQ(budget.Left(AtMicros(0)), Nanos(0));
  budget.Ran(Millis(10), Nanos(0));
  EXPECT_EQ(budget.Left(AtMicros(0)), Micros(200));
  EXPECT_NEAR(budget.Fill(AtMicros(0)), 0.2, 1e-9);
  budget.Ran(Seconds(10), Nanos(0));  // no more than this is saved up
  EXPECT_EQ(budget.Left(AtMicros(0)), Millis(1));
  budget.SetPart(0.01);
  EXPECT_EQ(budget.Left(AtMicros(0)), Micros(500));
  budget.SetPart(0);
  EXPECT_EQ(budget.Left(AtMicros(0)), Nanos(0));
  EXPECT_EQ(budget.Fill(AtMicros(0)), 0);
}

TEST(DelayBudget, WhatIsForeseenIsKeptUntilItIsSeen) {
  DelayBudget budget(0.02);
  budget.Ran(Millis(10), Nanos(0));
  budget.Reserve(Micros(150), AtMicros(100), AtMicros(0));
  EXPECT_EQ(budget.Left(AtMicros(99)), Micros(50));
  EXPECT_EQ(budget.Left(AtMicros(100)), Micros(200));
  // More reservations than there is room for: none is forgotten, though some are kept for longer. A reservation of no
  // delay takes no room.
  constexpr int kMany = 100;
  for (int i = 0; i < kMany; ++i) {
    budget.Reserve(Nanos(0), AtMicros(900), AtMicros(200));
    budget.Reserve(Micros(1), AtMicros(300 + i), AtMicros(200));
    EXPECT_EQ(budget.Left(AtMicros(299)), Micros(200 - i - 1));
  }
  EXPECT_LE(budget.Left(AtMicros(300 + kMany / 2)), Micros(200 - kMany / 2 + 1));
  EXPECT_EQ(budget.Left(AtMicros(300 + kMany)), Micros(200));
}

TEST(DelayBudget, WhatIsMeasuredCounts) {
  DelayBudget budget(0.02);
  budget.Ran(Millis(10), Nanos(0));
  budget.Ran(Nanos(0), Micros(150));
  EXPECT_EQ(budget.Left(AtMicros(0)), Micros(50));
  budget.Ran(Nanos(0), Millis(2));
  EXPECT_EQ(budget.Left(AtMicros(0)), Micros(50) - Millis(2));  // a debt
  budget.Ran(Millis(97), Nanos(0));                             // the tenant's own use pays it
  EXPECT_EQ(budget.Left(AtMicros(0)), Micros(-10));
  budget.Ran(Nanos(0), -Millis(1));  // the delay was smaller than first reported
  EXPECT_EQ(budget.Left(AtMicros(0)), Micros(990));
  budget.Ran(Nanos(0),
             -Millis(10));  // ending early gives no credit: only 1.15 ms of delay were left
  EXPECT_EQ(budget.Left(AtMicros(0)), Millis(1));
  budget.Ran(Nanos(0), Micros(100));
  EXPECT_EQ(budget.Left(AtMicros(0)), Micros(900));
}

// If others are let in only while the budget is positive, the delay is at most the tenant's fraction, the saved-up
// credit and one command's worth, whatever the commands turn out to do.
TEST(DelayBudget, HoldsWhateverIsLetIn) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> unit(0, 1);
    DelayBudget budget(0.03);
    Nanos used{0}, late{0};
    const Nanos longest = Millis(3);
    for (int64_t us = 0; us < 2'000'000; us += 100) {
      const Time now = AtMicros(us);
      Nanos delay{0};
      if (budget.Left(now) >= Nanos(0)) {
        // The command is predicted to cause no delay, and in one of ten cases it causes a long one.
        if (unit(random) < 0.1) delay = Nanos(static_cast<int64_t>(unit(random) * 3e6));
      }
      used += Micros(100);
      late += delay;
      budget.Ran(Micros(100), delay);
      const Nanos most = used * 3 / 100 + DelayBudget::kSavedOver * 3 / 100 + longest;
      ASSERT_LE(late, most) << "seed " << seed << " at " << us << " us";
    }
    EXPECT_GT(late, used / 100);
  }
}

}  // namespace
}  // namespace gpushare::sched
