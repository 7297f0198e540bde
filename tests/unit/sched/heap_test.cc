// SPDX-License-Identifier: Apache-2.0
// Compares the heap and the token bucket with plain models.
#include <map>
#include <random>
#include <set>

#include "gtest/gtest.h"
#include "sched/indexed_heap.h"
#include "sched/token_bucket.h"

namespace gpushare::sched {
namespace {

TEST(IndexedHeap, AgreesWithASetOverRandomOperations) {
  std::mt19937 random(5);
  constexpr uint32_t kIds = 200;
  IndexedHeap::Positions positions(kIds, IndexedHeap::kAbsent);
  IndexedHeap heap(&positions);
  std::map<uint32_t, double> model;
  for (int step = 0; step < 20'000; ++step) {
    const uint32_t id = static_cast<uint32_t>(random() % kIds);
    const double key = static_cast<double>(random() % 50);  // many ties
    if (model.count(id) == 0) {
      heap.Push(id, key);
      model[id] = key;
    } else if (random() % 2 == 0) {
      heap.Erase(id);
      model.erase(id);
    } else {
      heap.Update(id, key);
      model[id] = key;
    }
    ASSERT_TRUE(heap.Sound());
    ASSERT_EQ(heap.size(), model.size());
    std::set<std::pair<double, uint32_t>> order;
    for (const auto& [i, k] : model) order.insert({k, i});
    if (order.empty()) continue;
    ASSERT_EQ(heap.top().id, order.begin()->second);
    double least = 0;
    ASSERT_EQ(heap.LeastExcept(heap.top().id, &least), order.size() > 1);
    if (order.size() > 1) {
      ASSERT_EQ(least, std::next(order.begin())->first);
    }
  }
}

TEST(IndexedHeap, LookSeesOnlyKeysBelowTheLimitAndNoMoreThanItsBound) {
  IndexedHeap::Positions positions(1000, IndexedHeap::kAbsent);
  IndexedHeap heap(&positions);
  for (uint32_t id = 0; id < 1000; ++id) heap.Push(id, static_cast<double>(999 - id));
  std::set<uint32_t> seen;
  EXPECT_FALSE(heap.Look(5, [&](uint32_t id) { return seen.insert(id), false; }));
  EXPECT_EQ(seen, (std::set<uint32_t>{999, 998, 997, 996, 995}));
  size_t visits = 0;
  EXPECT_FALSE(heap.Look(1e9, [&](uint32_t) { return ++visits, false; }));
  EXPECT_EQ(visits, IndexedHeap::kLook);
  EXPECT_TRUE(heap.Look(5, [](uint32_t id) { return id == 997; }));
  EXPECT_FALSE(heap.Look(-1, [](uint32_t) { return true; }));
}

TEST(TokenBucket, FillsToItsDepthAndKeepsDebt) {
  TokenBucket bucket(0.5, 1000, 0, Time(Nanos(0)));
  bucket.Advance(Time(Nanos(100)));
  EXPECT_DOUBLE_EQ(bucket.level(), 50);
  bucket.Advance(Time(Nanos(1'000'000)));
  EXPECT_DOUBLE_EQ(bucket.level(), 1000);
  bucket.Take(5000);
  EXPECT_DOUBLE_EQ(bucket.level(), -4000);
  EXPECT_EQ(bucket.PositiveAt(), Time(Nanos(1'008'001)));
  bucket.Advance(Time(Nanos(1'008'000)));
  EXPECT_DOUBLE_EQ(bucket.level(), 0);
  bucket.Take(-100'000);  // a refund does not exceed the depth
  EXPECT_DOUBLE_EQ(bucket.level(), 1000);
}

TEST(TokenBucket, IsPositiveExactlyFromTheInstantItNames) {
  for (double rate : {0.1, 0.3, 0.7, 1.0 / 3}) {
    for (double debt : {0.0, 1.0, 12345.678, 9.9e9}) {
      TokenBucket bucket(rate, 1e6, 0, Time(Nanos(17)));
      bucket.Take(debt);
      const Time at = bucket.PositiveAt();
      EXPECT_GT(bucket.LevelAt(at), 0) << rate << " " << debt;
      EXPECT_LE(bucket.LevelAt(at - Nanos(2)), 0) << rate << " " << debt;
    }
  }
}

TEST(TokenBucket, ReshapingKeepsADebtAndCutsWhatWasSaved) {
  TokenBucket bucket(0.5, 1000, 1000, Time(Nanos(0)));
  bucket.Reshape(0.1, 100, Time(Nanos(10)));
  EXPECT_DOUBLE_EQ(bucket.level(), 100);
  bucket.Take(600);
  bucket.Reshape(0.9, 10'000, Time(Nanos(10)));
  EXPECT_DOUBLE_EQ(bucket.level(), -500);
}

TEST(TokenBucket, WithoutRateNeverBecomesPositive) {
  TokenBucket bucket(0, 1000, 0, Time(Nanos(0)));
  EXPECT_EQ(bucket.PositiveAt(), kNever);
}

}  // namespace
}  // namespace gpushare::sched
