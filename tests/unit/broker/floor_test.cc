// SPDX-License-Identifier: Apache-2.0
#include "broker/floor.h"

#include <gtest/gtest.h>

namespace gpushare::broker {
namespace {

Time At(Nanos since) { return Time(Seconds(1)) + since; }

TEST(Floor, WithoutOneThereIsNoTurn) {
  Floor floor;
  floor.Pass(At(Nanos(0)), Nanos(0));
  floor.Pass(At(Seconds(100)), Nanos(0));
  EXPECT_FALSE(floor.has_turn());
  EXPECT_EQ(floor.TurnAt(), kNever);
}

TEST(Floor, ATurnComesWhenItsPartOfTheTimeHasPassed) {
  Floor floor;
  floor.SetPart(0.1);
  floor.Pass(At(Nanos(0)), Nanos(0));
  EXPECT_GE(floor.TurnAt(), At(Millis(10)));
  EXPECT_LE(floor.TurnAt(), At(Millis(10) + Micros(1)));
  floor.Pass(At(Millis(9)), Nanos(0));
  EXPECT_FALSE(floor.has_turn());
  floor.Pass(floor.TurnAt(), Nanos(0));
  EXPECT_TRUE(floor.has_turn());
}

TEST(Floor, NoMoreThanATurnIsSavedUp) {
  Floor floor;
  floor.SetPart(0.1);
  floor.Pass(At(Nanos(0)), Nanos(0));
  floor.Pass(At(Seconds(10)), Nanos(0));
  floor.Pass(At(Seconds(10)), Micros(1));
  EXPECT_FALSE(floor.has_turn());
}

// Tenants below the high band that had the whole device anyway are owed nothing, but for at most a second.
TEST(Floor, WhatWasUsedAnywayIsPaidFromIt) {
  Floor floor;
  floor.SetPart(0.1);
  floor.Pass(At(Nanos(0)), Nanos(0));
  floor.Pass(At(Seconds(100)), Seconds(100));
  EXPECT_GE(floor.TurnAt() - At(Seconds(100)), Seconds(1));
  EXPECT_LE(floor.TurnAt() - At(Seconds(100)), Seconds(1) + Millis(11));
}

}  // namespace
}  // namespace gpushare::broker
