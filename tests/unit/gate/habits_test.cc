// SPDX-License-Identifier: Apache-2.0
// A habit is valid as long as looking everything up again would give the same results.
#include "gate/habits.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "base/process_barrier.h"
#include "base/sync.h"
#include "gate/engine.h"
#include "gate/lane.h"
#include "gate/purse.h"
#include "gtest/gtest.h"

namespace gpushare::gate {
namespace {

using meter::CostModel;

class HabitsTest : public ::testing::Test {
 protected:
  static const void* FunctionOf(uintptr_t number) {
    return reinterpret_cast<const void*>(number * 64);
  }
  // Does what a paid launch does.
  Habit* Launch(uintptr_t function, const driver::LaunchShape& shape) {
    const uint64_t key = KernelKey(FunctionOf(function), shape);
    const CostModel::Settled cost = costs_->FindSettled(key, context_);
    EXPECT_GT(cost.cost_ns, 0u);
    last_ = habits_->Learn(*costs_, FunctionOf(function), shape, context_, key, cost.entry, last_);
    context_ = CostModel::Next(context_, key);
    return last_;
  }
  // Settles the cost of the kernel after `context`.
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
  // Learning about other launches first, in the context of an unused stream, changes nothing.
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
  // Others replace its entry, since it was not measured for long.
  for (uintptr_t other = 2; costs_->FindSettled(key, 0).cost_ns != 0; ++other) {
    ASSERT_LT(other, 50000u);
    Settle(other, kShape, other, 5000);
  }
  EXPECT_EQ(habit->place.Cost(), 0u);
}

// The charge is cached for one list of prices, and is computed anew with the next list, not earlier.
TEST_F(HabitsTest, ItIsChargedByTheListOfPrices) {
  TenantPage page;
  Pocket pocket(nullptr, nullptr);
  pocket.prices = 1;
  Settle(1, kShape, 0, 5000);
  Habit* const habit = Launch(1, kShape);
  const auto priced = [&] { return page.ChargeOf(habit->place.Cost()); };
  ASSERT_TRUE(habit->Price(page, pocket));
  EXPECT_EQ(habit->charge, priced());
  const uint64_t before = habit->charge;
  Settle(1, kShape, 0, 8000);
  ASSERT_TRUE(habit->Price(page, pocket));
  EXPECT_EQ(habit->charge, before);
  pocket.prices = 2;
  ASSERT_TRUE(habit->Price(page, pocket));
  EXPECT_EQ(habit->charge, priced());
  EXPECT_GT(habit->charge, before);
  page.set_charge_factor(0.25);
  pocket.prices = 3;
  ASSERT_TRUE(habit->Price(page, pocket));
  EXPECT_EQ(habit->charge, priced());
  EXPECT_LT(habit->charge, before);
  // A habit that is learnt anew in that place has no charge yet.
  context_ = 0;
  EXPECT_EQ(Launch(1, kShape)->charged_at, Habit::kAtNone);
  // Without a cost there is no charge, not even with the next list.
  const uint64_t key = KernelKey(FunctionOf(1), kShape);
  for (uintptr_t other = 2; costs_->FindSettled(key, 0).cost_ns != 0; ++other) {
    ASSERT_LT(other, 50000u);
    Settle(other, kShape, other, 5000);
  }
  pocket.prices = 4;
  EXPECT_FALSE(habit->Price(page, pocket));
  EXPECT_FALSE(habit->Price(page, pocket));
  EXPECT_FALSE(no_habit.Price(page, pocket));
  EXPECT_FALSE(no_habit.Price(page, no_pocket));
  EXPECT_EQ(no_habit.charged_at, Habit::kAtNone);
}

// A thread repeats a launch while another thread raises its price. Once the price is announced, no launch that begins
// afterwards is charged the old one, and no launch is charged a price before it applies.
TEST_F(HabitsTest, NoLaunchIsChargedALowerPriceThanWasSaid) {
  if (!base::HasProcessBarrier()) GTEST_SKIP() << "the kernel has no membarrier()";
  base::Mutex mutex;
  TenantPage page;
  auto ring = std::make_unique<LaunchRing>();
  Purse purse(page, mutex);
  std::atomic<uint64_t> keys{0};
  Lane lane;
  lane.page = &page;
  lane.ring = ring.get();
  lane.costs = costs_.get();
  lane.context = &keys;
  Settle(1, kShape, 0, 1000);
  Habit* const habit = Launch(1, kShape);
  habit->context_after = 0;  // the launch follows itself
  const uint64_t key = KernelKey(FunctionOf(1), kShape);
  const auto cost = [&] { return costs_->FindSettled(key, 0).cost_ns; };
  std::atomic<uint64_t> said{cost()}, most{cost()}, launches{0}, tries{0};
  std::atomic<bool> done{false};
  std::thread owner([&] {
    Pocket* pocket = &no_pocket;
    for (uint64_t tried = 1; !done; ++tried) {
      tries.store(tried, std::memory_order_relaxed);
      if (tried % 4096 == 0) std::this_thread::yield();  // both may have one processor
      const uint64_t least = said.load(std::memory_order_acquire);
      const uint64_t before = pocket->spent.load(std::memory_order_relaxed);
      uint32_t launch;
      if (lane.TakeAgain(*habit, *pocket, &launch)) {
        const uint64_t paid =
            (pocket->spent.load(std::memory_order_relaxed) - before - 1) >> TenantPage::kLaunchBits;
        EXPECT_GE(paid, least);
        EXPECT_LE(paid, most.load(std::memory_order_acquire));
        launches.store(launches.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      } else {
        const base::MutexLock lock(&mutex);
        if (Pocket* const asked = purse.Asked(); asked != nullptr) pocket = asked;
      }
    }
  });
  uint64_t risen = 0;
  for (int i = 0; (i < 2000 || launches < 20'000) && i < 100'000; ++i) {
    // The owner may be without a processor.
    for (const uint64_t tried = tries; tries == tried;) std::this_thread::yield();
    // Waits for a varying time, to meet the owner at any of its steps.
    for (int n = i % 301; n > 0; --n) std::atomic_signal_fence(std::memory_order_seq_cst);
    const base::MutexLock lock(&mutex);
    if (i % 3 == 0) purse.Add(1'000'000);
    if (i % 64 == 63) purse.TakeAll();
    if (i % 256 == 255) purse.Share();
    // Publishes the next cost before it applies, and the applied cost afterwards.
    const uint64_t now = cost();
    if (now > 100'000) continue;
    most.store(now + now / 32, std::memory_order_release);
    const CostModel::Prediction known = costs_->Predict(key, 0, 1);
    if (costs_->Learn(known.entry, known.cost_ns, 1.05f, 1, true)) {
      ++risen;
      purse.PricesChanged();
    }
    said.store(cost(), std::memory_order_release);
  }
  done = true;
  owner.join();
  EXPECT_GT(launches, 1000u);
  EXPECT_GT(risen, 100u);
}

// The order A, B, A, C repeats: after each A the habit expects what followed that A.
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
  // A launch of another thread in between does not change what followed.
  Habit* const before = last_;
  const Habit* const next = before->next;
  context_ = CostModel::Next(context_, 77);
  Settle(2, kShape, context_, 5000);
  Launch(2, kShape);
  EXPECT_EQ(before->next, next);
}

// When two launches follow in turn, both are expected, whichever came last.
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

// More habits than there are places: the oldest ones are replaced, and no habit is confused with another.
TEST_F(HabitsTest, ManyMakeRoomForEachOther) {
  int launched = 0;
  for (uintptr_t function = 1; function <= 2000; ++function) {
    Settle(function, kShape, context_, 1000.0f + static_cast<float>(function));
    const uint64_t before = context_;
    // A launch whose place in the model is taken by another kernel never uses a habit.
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
