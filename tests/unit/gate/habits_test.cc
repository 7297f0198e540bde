// SPDX-License-Identifier: Apache-2.0
// A habit holds while all that was found for the launch would be found again, and no longer.
#include "gate/habits.h"

#include <memory>

#include "gate/engine.h"
#include "gtest/gtest.h"

namespace gpushare::gate {
namespace {

using meter::CostModel;

class HabitsTest : public ::testing::Test {
 protected:
  static const void* FunctionOf(uintptr_t number) {
    return reinterpret_cast<const void*>(number * 64);
  }
  // What a launch that is paid for does.
  Habit* Launch(uintptr_t function, const driver::LaunchShape& shape) {
    const uint64_t key = KernelKey(FunctionOf(function), shape);
    const CostModel::Settled cost = costs_->FindSettled(key, context_);
    EXPECT_GT(cost.cost_ns, 0u);
    last_ = habits_->Learn(*costs_, FunctionOf(function), shape, context_, key, cost.entry, last_);
    context_ = CostModel::Next(context_, key);
    return last_;
  }
  // It costs so much, behind what was launched.
  void Settle(uintptr_t function, const driver::LaunchShape& shape, uint64_t context, float ns) {
    const uint64_t key = KernelKey(FunctionOf(function), shape);
    for (int i = 0; i < 20; ++i) {
      const CostModel::Prediction cost = costs_->Predict(key, context, 1);
      costs_->Learn(cost.entry, cost.cost_ns, ns / cost.cost_ns, 1, true);
    }
  }

  const std::unique_ptr<CostModel> costs_ = std::make_unique<CostModel>(Micros(50));
  const std::unique_ptr<Habits> habits_ = std::make_unique<Habits>();
  uint64_t context_ = 0;
  Habit* last_ = &no_habit;
};

constexpr driver::LaunchShape kShape = {{80, 2, 3}, {256, 4, 1}, 4096};

TEST_F(HabitsTest, NobodysIsLikeNoLaunch) {
  EXPECT_EQ(no_habit.place.Cost(), 0u);
  EXPECT_EQ(no_habit.next, &no_habit);
  EXPECT_EQ(no_habit.other, &no_habit);
  // Nothing of it changes with what is learnt first, in the context of a stream that launched nothing yet.
  Settle(1, kShape, 0, 5000);
  Launch(1, kShape);
  EXPECT_EQ(no_habit.next, &no_habit);
}

TEST_F(HabitsTest, EachParameterTellsALaunchFromAnother) {
  Settle(1, kShape, 0, 5000);
  const Habit* const habit = Launch(1, kShape);
  EXPECT_TRUE(habit->Is(FunctionOf(1), kShape, 0));
  EXPECT_NEAR(static_cast<double>(habit->place.Cost()), 5000, 50);
  EXPECT_FALSE(habit->Is(FunctionOf(2), kShape, 0));
  EXPECT_FALSE(habit->Is(FunctionOf(1), kShape, 1));
  for (int i = 0; i < 7; ++i) {
    driver::LaunchShape other = kShape;
    unsigned* const each[] = {&other.grid.x,  &other.grid.y,  &other.grid.z,      &other.block.x,
                              &other.block.y, &other.block.z, &other.shared_bytes};
    ++*each[i];
    EXPECT_FALSE(habit->Is(FunctionOf(1), other, 0)) << i;
  }
  EXPECT_EQ(habit->context_after, CostModel::Next(0, KernelKey(FunctionOf(1), kShape)));
}

TEST_F(HabitsTest, ItCostsWhatTheModelSaysNow) {
  Settle(1, kShape, 0, 5000);
  const Habit* const habit = Launch(1, kShape);
  Settle(1, kShape, 0, 8000);
  EXPECT_NEAR(static_cast<double>(habit->place.Cost()), 8000, 80);
  const uint64_t key = KernelKey(FunctionOf(1), kShape);
  EXPECT_EQ(habit->place.Cost(), costs_->FindSettled(key, 0).cost_ns);
  // Not measured for so long that others have its place.
  for (uintptr_t other = 2; costs_->FindSettled(key, 0).cost_ns != 0; ++other) {
    ASSERT_LT(other, 50000u);
    Settle(other, kShape, other, 5000);
  }
  EXPECT_EQ(habit->place.Cost(), 0u);
}

// A, B, A, C and again: behind each A stands what followed it there.
TEST_F(HabitsTest, WhatFollowsIsWhatFollowedBehindTheSame) {
  constexpr uintptr_t kOrder[] = {1, 2, 1, 3};
  uint64_t context = 0;
  for (int i = 0; i < 12; ++i) {
    Settle(kOrder[i % 4], kShape, context, 5000);
    context = CostModel::Next(context, KernelKey(FunctionOf(kOrder[i % 4]), kShape));
  }
  for (int i = 0; i < 12; ++i) Launch(kOrder[i % 4], kShape);
  const Habit* at = last_;
  for (int i = 0; i < 8; ++i) {
    at = at->next;
    EXPECT_EQ(at->function, FunctionOf(kOrder[i % 4])) << i;
  }
  // One that went another way between two leaves what followed as it was.
  Habit* const before = last_;
  const Habit* const next = before->next;
  context_ = CostModel::Next(context_, 77);
  Settle(2, kShape, context_, 5000);
  Launch(2, kShape);
  EXPECT_EQ(before->next, next);
}

// Of two that follow in turn both are expected, whichever of them came last.
TEST_F(HabitsTest, TwoThatFollowTheSameAreBothRemembered) {
  const uint64_t key = KernelKey(FunctionOf(1), kShape);
  const uint64_t behind = CostModel::Next(0, key);
  Settle(1, kShape, 0, 5000);
  for (const uintptr_t next : {uintptr_t{2}, uintptr_t{3}}) Settle(next, kShape, behind, 5000);
  for (int i = 0; i < 6; ++i) {
    context_ = 0;
    Habit* const first = Launch(1, kShape);
    const Habit* const second = Launch(i % 2 == 0 ? uintptr_t{2} : uintptr_t{3}, kShape);
    EXPECT_EQ(first->next, second);
    if (i == 0) continue;
    EXPECT_EQ(first->other->function, FunctionOf(i % 2 == 0 ? 3 : 2));
    last_ = &no_habit;
  }
}

// More than there are places for: the oldest make room, and nobody takes another's for its own.
TEST_F(HabitsTest, ManyMakeRoomForEachOther) {
  int launched = 0;
  for (uintptr_t function = 1; function <= 2000; ++function) {
    Settle(function, kShape, context_, 1000.0f + static_cast<float>(function));
    const uint64_t before = context_;
    // Whose place in the model is another's is never launched by a habit.
    if (costs_->FindSettled(KernelKey(FunctionOf(function), kShape), before).cost_ns == 0) continue;
    ++launched;
    const Habit* const habit = Launch(function, kShape);
    EXPECT_TRUE(habit->Is(FunctionOf(function), kShape, before));
    EXPECT_GT(habit->place.Cost(), 0u);
    EXPECT_EQ(habit->next, &no_habit);
  }
  EXPECT_GT(launched, 1000);
}

}  // namespace
}  // namespace gpushare::gate
