// SPDX-License-Identifier: Apache-2.0
// Tenants with a parent: children divide their parent's share, and to all others the family is one tenant.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/sched/harness.h"

namespace gpushare::sched {
namespace {

constexpr Nanos kFrom = Seconds(1), kTo = Seconds(4);

HarnessTenant Works(const TenantLimits& limits, Nanos kernel, size_t parent = SIZE_MAX) {
  HarnessTenant t;
  t.limits = limits;
  t.kernels = {kernel};
  t.parent = parent;
  return t;
}

// The error in the worst second, in percentage points of the device.
double Error(const Harness& h, const std::vector<double>& due, Nanos from = kFrom, Nanos to = kTo) {
  return h.WorstShareError(due, from, to, Seconds(1), /*absolute=*/true);
}

TEST(Families, ChildrenDivideWhatTheirParentIsEntitledTo) {
  Harness h({}, {Parent({.weight = 3}), Works({.weight = 2}, Micros(14), 0),
                 Works({.weight = 1}, Millis(1), 0), Works({.weight = 1}, Millis(1))});
  h.RunUntil(kTo);
  EXPECT_LE(Error(h, {0, 0.5, 0.25, 0.25}), 0.5);
  EXPECT_GE(h.Busy(kFrom, kTo), 0.999);
  EXPECT_STREQ(h.arbiter().CheckInvariants(), "");
}

// Without a parent, four tenants of weight 1 get a quarter each; three of them under one parent get half together.
TEST(Families, ManyChildrenAreOneTenantToOthers) {
  Harness h({}, {Parent({}), Works({}, Micros(100), 0), Works({}, Micros(30), 0),
                 Works({}, Micros(300), 0), Works({}, Micros(100))});
  h.RunUntil(kTo);
  EXPECT_LE(Error(h, {0, 1. / 6, 1. / 6, 1. / 6, 0.5}), 0.5);
}

TEST(Families, WhatASiblingLeavesGoesToSiblingsFirst) {
  std::vector<HarnessTenant> tenants = {Parent({}), Works({}, Micros(50), 0),
                                        Works({}, Micros(50), 0), Works({}, Micros(50))};
  tenants[1].stop = Seconds(2);
  Harness h({}, tenants);
  h.At(Seconds(4), [&] { h.SetActive(2, false); });
  h.RunUntil(Seconds(6));
  EXPECT_LE(Error(h, {0, 0.25, 0.25, 0.5}, Millis(900), Seconds(2)), 0.5);
  EXPECT_LE(Error(h, {0, 0, 0.5, 0.5}, Seconds(2) + Millis(100), Seconds(4)), 0.5);
  // Afterwards the share goes to all other tenants.
  EXPECT_LE(Error(h, {0, 0, 0, 1}, Seconds(4) + Millis(100), Seconds(6)), 0.5);
}

TEST(Families, ACapOfTheParentHoldsForTheSum) {
  Harness h({}, {Parent({.cap = 0.4}), Works({.weight = 3}, Micros(14), 0),
                 Works({.weight = 1}, Micros(200), 0)});
  h.RunUntil(kTo);
  EXPECT_LE(Error(h, {0, 0.3, 0.1}), 0.5);
  EXPECT_NEAR(h.Busy(kFrom, kTo), 0.4, 0.005);
}

TEST(Families, ACapOfTheParentHoldsForItsChildrenOfAllBands) {
  for (const bool normal_too : {false, true}) {
    Harness h({}, {Parent({.cap = 0.3}), Works({.band = Band::kLow}, Micros(100), 0),
                   Works({.band = normal_too ? Band::kNormal : Band::kLow}, Micros(100), 0)});
    h.RunUntil(kTo);
    EXPECT_NEAR(h.Busy(kFrom, kTo), 0.3, 0.005) << normal_too;
    EXPECT_STREQ(h.arbiter().CheckInvariants(), "");
  }
}

TEST(Families, AChildsOwnCapIsItsOwn) {
  Harness h({}, {Parent({}), Works({.cap = 0.1}, Micros(50), 0), Works({}, Micros(50), 0),
                 Works({}, Micros(50))});
  h.RunUntil(kTo);
  EXPECT_LE(Error(h, {0, 0.1, 0.4, 0.5}), 0.5);
}

TEST(Families, AGuaranteeOfTheParentIsTheChildrensTogether) {
  Harness h({}, {Parent({.guarantee = 0.6}), Works({.weight = 3}, Micros(50), 0),
                 Works({.weight = 1}, Micros(400), 0), Works({.weight = 1000}, Micros(100))});
  h.RunUntil(kTo);
  EXPECT_LE(Error(h, {0, 0.45, 0.15, 0.4}), 0.5);
}

TEST(Families, AChildsGuaranteeComesBeforeItsSiblingsWeights) {
  Harness h({}, {Parent({.guarantee = 0.6}), Works({.guarantee = 0.3}, Micros(50), 0),
                 Works({.weight = 2}, Micros(400), 0), Works({.weight = 1000}, Micros(100))});
  h.RunUntil(kTo);
  EXPECT_LE(Error(h, {0, 0.4, 0.2, 0.4}), 0.5);
}

// Guarantees of children that exceed their parent's are cut in proportion, and no other tenant is slowed.
TEST(Families, PromisesBeyondTheParentsAreCutInProportion) {
  Harness h({}, {Parent({.guarantee = 0.3, .cap = 0.3}), Works({.guarantee = 0.6}, Micros(50), 0),
                 Works({.guarantee = 0.3}, Micros(50), 0), Works({.guarantee = 0.5}, Micros(100)),
                 Works({.weight = 1}, Micros(100))});
  h.RunUntil(Seconds(8));
  EXPECT_LE(Error(h, {0, 0.2, 0.1, 0.6, 0.1}, Seconds(4), Seconds(8)), 11);
  double parent = (h.Used(1, Seconds(4), Seconds(8)) + h.Used(2, Seconds(4), Seconds(8))) / 4e9;
  EXPECT_NEAR(parent, 0.3, 0.005);
  EXPECT_NEAR(h.Used(1, Seconds(4), Seconds(8)) / h.Used(2, Seconds(4), Seconds(8)), 2, 0.05);
  EXPECT_NEAR(h.Used(3, Seconds(4), Seconds(8)) / 4e9, 0.6, 0.005);
}

TEST(Families, WhatTheParentLaunchesItselfIsAChildsOfWeightOne) {
  std::vector<HarnessTenant> tenants = {Works({.weight = 4}, Micros(50)),
                                        Works({.weight = 3}, Micros(50), 0),
                                        Works({.weight = 4}, Micros(50))};
  Harness h({}, tenants);
  h.RunUntil(kTo);
  EXPECT_LE(Error(h, {0.125, 0.375, 0.5}), 0.5);
}

TEST(Families, AChildThatComesLaterTakesOfItsParentsAlone) {
  Harness h({.check_invariants = true},
            {Works({.weight = 1}, Micros(50)), Works({.weight = 1}, Micros(50))});
  h.RunUntil(Seconds(2));
  EXPECT_LE(Error(h, {0.5, 0.5}, Seconds(1), Seconds(2)), 0.5);
  const TenantId child = h.arbiter().Add({}, h.time(), h.id(0));
  h.RunUntil(Seconds(4));  // the child launches nothing until then
  EXPECT_LE(Error(h, {0.5, 0.5}, Seconds(1), Seconds(4)), 0.5);
  h.arbiter().Remove(child, h.time());
  h.RunUntil(Seconds(6));
  EXPECT_LE(Error(h, {0.5, 0.5}, Seconds(1), Seconds(6)), 0.5);
  EXPECT_EQ(h.broken(), "");
  EXPECT_EQ(h.arbiter().tenants(), 2);
}

TEST(Families, NewLimitsOfTheParentCountForTheSum) {
  Harness h({}, {Parent({.cap = 0.2}), Works({}, Micros(50), 0), Works({}, Micros(50), 0)});
  h.At(Seconds(2), [&] { h.Update(0, {.cap = 0.6}); });
  h.RunUntil(Seconds(4));
  EXPECT_LE(Error(h, {0, 0.1, 0.1}, Millis(900), Seconds(2)), 0.5);
  EXPECT_LE(Error(h, {0, 0.3, 0.3}, Seconds(2) + Millis(100), Seconds(4)), 0.5);
}

TEST(Families, AChildsNewBandTakesItToItsFamilysOther) {
  Harness h({.check_invariants = true}, {Parent({}), Works({}, Micros(50), 0),
                                         Works({}, Micros(50), 0), Works({}, Micros(50))});
  h.At(Seconds(2), [&] { h.Update(1, {.band = Band::kLow}); });
  h.RunUntil(Seconds(4));
  EXPECT_LE(Error(h, {0, 0.25, 0.25, 0.5}, Millis(900), Seconds(2)), 0.5);
  EXPECT_LE(Error(h, {0, 0, 0.5, 0.5}, Seconds(2) + Millis(200), Seconds(4)), 0.5);
  EXPECT_EQ(h.broken(), "");
}

TEST(Families, AParentThatIsRemovedFirstBoundsItsChildrenAllTheSame) {
  Harness h({.check_invariants = true},
            {Parent({.cap = 0.4}), Works({}, Micros(50), 0), Works({}, Micros(50), 0)});
  h.RunUntil(Seconds(1));
  h.Remove(0);
  h.RunUntil(Seconds(3));
  EXPECT_LE(Error(h, {0, 0.2, 0.2}, Seconds(1), Seconds(3)), 0.5);
  h.Remove(1);
  h.Remove(2);
  EXPECT_EQ(h.broken(), "");
  EXPECT_EQ(h.arbiter().tenants(), 0);
  EXPECT_STREQ(h.arbiter().CheckInvariants(), "");
}

// A child that returns from idle is ahead of its siblings by no more than its burst, and its family is ahead of other
// tenants by no more than that either.
TEST(Families, NothingIsSavedUpWhileIdle) {
  std::vector<HarnessTenant> tenants = {Parent({}), Works({}, Micros(50), 0),
                                        Works({}, Micros(50), 0), Works({}, Micros(50))};
  tenants[1].start = Seconds(3);
  tenants[2].start = Seconds(3);
  Harness h({}, tenants);
  h.RunUntil(Seconds(5));
  // A burst of 20 ms, at its value beside one other tenant.
  EXPECT_LE(Error(h, {0, 0.25, 0.25, 0.5}, Seconds(3), Seconds(5)), 2.5);
}

TEST(Families, WhatAChildIsEntitledTo) {
  Arbiter arbiter{ArbiterOptions{}};
  const Time now(Seconds(1));
  const TenantId parent = arbiter.Add({.weight = 3}, now), other = arbiter.Add({}, now);
  const TenantId a = arbiter.Add({.weight = 2}, now, parent), b = arbiter.Add({}, now, parent);
  for (const TenantId id : {a, b, other}) arbiter.Touch(id, now);
  EXPECT_DOUBLE_EQ(arbiter.Entitled(a), 0.5);
  EXPECT_DOUBLE_EQ(arbiter.Entitled(b), 0.25);
  EXPECT_DOUBLE_EQ(arbiter.Entitled(other), 0.25);
}

}  // namespace
}  // namespace gpushare::sched
