// SPDX-License-Identifier: Apache-2.0
#include "broker/pauses.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace gpushare::broker {
namespace {

// Adds the pauses in turn, `times` times each.
Pauses After(int times, std::initializer_list<Nanos> of) {
  Pauses pauses;
  for (int i = 0; i < times; ++i) {
    for (const Nanos pause : of) pauses.Add(pause);
  }
  return pauses;
}

TEST(Pauses, BeforeAnyWasSeenAMistakeCostsNoMoreThanItSaves) {
  EXPECT_EQ(Pauses().grace(), Pauses::kChanges);
}

TEST(Pauses, WhereAllAreLongTheGraceIsTheLeast) {
  EXPECT_EQ(After(10, {Micros(500)}).grace(), Pauses::kLeast);
  EXPECT_EQ(After(10, {Millis(3), Micros(300)}).grace(), Pauses::kLeast);
}

TEST(Pauses, OneThatTwoChangesDoNotFitIntoIsLeftAlone) {
  const Pauses pauses = After(10, {Micros(180)});
  EXPECT_GT(pauses.grace(), Micros(180));
  EXPECT_LT(pauses.grace(), Micros(300));
}

// Short pauses occur within a request, and long ones between requests.
TEST(Pauses, TheGraceIsLongerThanTheShortOnesOfShortAndLong) {
  const Pauses pauses =
      After(4, {Micros(60), Micros(80), Micros(70), Micros(60), Micros(80), Micros(60), Millis(2)});
  EXPECT_GE(pauses.grace(), Micros(80));
  EXPECT_LT(pauses.grace(), Micros(150));
}

TEST(Pauses, OneLongOneSaysNothingOfTheOthers) {
  Pauses pauses = After(31, {Micros(150)});
  pauses.Add(Seconds(100));
  EXPECT_GT(pauses.grace(), Micros(150));
  EXPECT_LE(pauses.grace(), Pauses::kMost);
}

TEST(Pauses, WhatHasChangedIsSeenAfterAFew) {
  Pauses pauses = After(100, {Micros(150)});
  int seen = 0;
  while (pauses.grace() > Pauses::kLeast && seen < 100) {
    pauses.Add(Micros(800));
    ++seen;
  }
  EXPECT_LE(seen, 32);
  seen = 0;
  while (pauses.grace() <= Micros(150) && seen < 100) {
    pauses.Add(Micros(150));
    ++seen;
  }
  EXPECT_LE(seen, 32);
}

}  // namespace
}  // namespace gpushare::broker
