// SPDX-License-Identifier: Apache-2.0
#include "meter/cost_model.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace gpushare::meter {
namespace {

TEST(CostModel, AKeyNeverSeenIsAGuess) {
  auto costs = std::make_unique<CostModel>(Micros(20));
  const CostModel::Prediction p = costs->Predict(1, 0, 1);
  EXPECT_FALSE(p.known);
  EXPECT_FLOAT_EQ(p.cost_ns, 20'000);
}

TEST(CostModel, LearnsWhatWasMeasured) {
  auto costs = std::make_unique<CostModel>(Micros(20));
  for (int i = 0; i < 10; ++i) {
    const CostModel::Prediction p = costs->Predict(1, 7, 0.5);
    costs->Learn(p.entry, p.cost_ns, 50'000 / p.cost_ns, 1, true);
  }
  const CostModel::Prediction p = costs->Predict(1, 7, 0.5);
  EXPECT_TRUE(p.known);
  EXPECT_NEAR(p.cost_ns, 50'000, 500);
  EXPECT_FLOAT_EQ(costs->footprint(p.entry), 0.5);
}

TEST(CostModel, ANewContextStartsFromWhatTheKeyCostsElsewhere) {
  auto costs = std::make_unique<CostModel>(Micros(20));
  for (int i = 0; i < 10; ++i) {
    const CostModel::Prediction p = costs->Predict(1, 7, 1);
    costs->Learn(p.entry, p.cost_ns, 50'000 / p.cost_ns, 1, true);
  }
  const CostModel::Prediction p = costs->Predict(1, 8, 1);
  EXPECT_TRUE(p.known);
  EXPECT_NEAR(p.cost_ns, 50'000, 500);
  for (int i = 0; i < 20; ++i) {
    const CostModel::Prediction q = costs->Predict(1, 8, 1);
    costs->Learn(q.entry, q.cost_ns, 90'000 / q.cost_ns, 1, true);
  }
  EXPECT_NEAR(costs->Predict(1, 8, 1).cost_ns, 90'000, 2'000);
  EXPECT_NEAR(costs->Predict(1, 7, 1).cost_ns, 50'000,
              500);  // the entry of the other context is unchanged
}

// The settled costs that the launch path uses change only by a measurement that reports a change.
TEST(CostModel, ItSaysWhenWhatWasSettledIsAnother) {
  auto costs = std::make_unique<CostModel>(Micros(20));
  constexpr uint64_t kKeys = 3000, kContexts = 3;
  const auto settled = [&] {
    std::vector<uint64_t> all;
    for (uint64_t key = 1; key <= kKeys; ++key) {
      for (uint64_t context = 0; context < kContexts; ++context) {
        all.push_back(costs->FindSettled(key * 0x9e3779b97f4a7c15u, context).cost_ns);
      }
    }
    return all;
  };
  uint64_t random = 1;
  int said = 0, silent = 0;
  std::vector<uint64_t> before = settled();
  for (int i = 0; i < 40'000; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const uint64_t key = 1 + (random >> 33) % (i < 20'000 ? 40 : kKeys);
    const CostModel::Prediction p =
        costs->Predict(key * 0x9e3779b97f4a7c15u, (random >> 20) % kContexts, 1);
    const float ratio = (random >> 10) % 4 == 0 ? 1.5f : 1.0f;
    const bool changed = costs->Learn(p.entry, p.cost_ns, ratio, 1, (random & 1) != 0);
    ++(changed ? said : silent);
    // Comparing all of them each time would take a minute.
    if (changed || i % 50 != 0) {
      if (changed) before.clear();
      continue;
    }
    const std::vector<uint64_t> now = settled();
    for (size_t n = 0; n < before.size(); ++n) {
      if (before[n] != 0) {
        ASSERT_EQ(now[n], before[n]) << i << ", " << n;
      }
    }
    before = now;
  }
  EXPECT_GT(said, 100);
  EXPECT_GT(silent, 100);
}

TEST(CostModel, OneOddMeasurementIsBoundedAndForgotten) {
  auto costs = std::make_unique<CostModel>(Micros(20));
  auto learn = [&](float cost) {
    const CostModel::Prediction p = costs->Predict(1, 0, 1);
    costs->Learn(p.entry, p.cost_ns, cost / p.cost_ns, 1, true);
  };
  for (int i = 0; i < 50; ++i) learn(10'000);
  learn(10'000'000);  // loads a module lazily
  EXPECT_LE(costs->Predict(1, 0, 1).cost_ns, 10'000 * 1.61f);
  for (int i = 0; i < 30; ++i) learn(10'000);
  EXPECT_NEAR(costs->Predict(1, 0, 1).cost_ns, 10'000, 100);
}

// Many commands with one key are in flight with the same old prediction. Each of them teaches the same cost, not a
// multiple of the cost that the previous one taught.
TEST(CostModel, ItTakesTwoMeasurementsToSettle) {
  auto costs = std::make_unique<CostModel>(Micros(20));
  EXPECT_FALSE(costs->Predict(1, 7, 1).settled);
  for (int i = 0; i < 2; ++i) {
    const CostModel::Prediction p = costs->Predict(1, 7, 1);
    EXPECT_FALSE(p.settled);
    costs->Learn(p.entry, p.cost_ns, 50'000 / p.cost_ns, 1, true);
  }
  EXPECT_TRUE(costs->Predict(1, 7, 1).settled);
}

TEST(CostModel, WhatIsOnlySeenNotToTakeLongerSettlesAtWhatWasPredicted) {
  auto costs = std::make_unique<CostModel>(Micros(20));
  CostModel::Prediction p = costs->Predict(1, 7, 1);
  costs->Learn(p.entry, p.cost_ns, 1'000 / p.cost_ns, 1, true);
  p = costs->Predict(1, 7, 1);
  EXPECT_FALSE(p.settled);
  costs->Confirm(p.entry, p.cost_ns);
  p = costs->Predict(1, 7, 1);
  EXPECT_TRUE(p.settled);
  EXPECT_FLOAT_EQ(p.cost_ns, 1'000);
  EXPECT_FALSE(costs->IsSure(p.entry, 0.3));  // as long as nothing else is known of it
  for (int i = 0; i < 20; ++i) costs->Learn(p.entry, p.cost_ns, 1, 1, true);
  EXPECT_TRUE(costs->IsSure(p.entry, 0.3));
  // A cost that was measured is not touched.
  costs->Confirm(p.entry, 5 * p.cost_ns);
  EXPECT_FLOAT_EQ(costs->Predict(1, 7, 1).cost_ns, 1'000);
  EXPECT_TRUE(costs->IsSure(p.entry, 0.3));
}

TEST(CostModel, WhatWasNeverMeasuredIsConfirmedAtTheGuess) {
  auto costs = std::make_unique<CostModel>(Micros(20));
  for (int i = 0; i < 2; ++i) {
    const CostModel::Prediction p = costs->Predict(1, 7, 1);
    EXPECT_FALSE(p.settled);
    costs->Confirm(p.entry, p.cost_ns);
  }
  const CostModel::Prediction p = costs->Predict(1, 7, 1);
  EXPECT_TRUE(p.known);
  EXPECT_TRUE(p.settled);
  EXPECT_FLOAT_EQ(p.cost_ns, 20'000);
}

// Measures the key alone, `times` times; the i-th time it takes cost(i).
template <typename Cost>
void Teach(CostModel& costs, uint64_t key, uint64_t context, int times, const Cost& cost) {
  for (int i = 0; i < times; ++i) {
    const CostModel::Prediction p = costs.Predict(key, context, 1);
    costs.Learn(p.entry, p.cost_ns, cost(i) / p.cost_ns, 1, true);
  }
}

TEST(CostModel, AContextIsMeasuredByItselfFromItsSecondOccurrenceOn) {
  auto costs = std::make_unique<CostModel>(Micros(20));
  Teach(*costs, 1, 7, 20, [](int i) { return i % 2 == 0 ? 30'000.0f : 60'000.0f; });
  const CostModel::Prediction first = costs->Predict(1, 8, 1);
  EXPECT_TRUE(first.known);
  EXPECT_TRUE(first.settled);
  const CostModel::Prediction second = costs->Predict(1, 8, 1);
  EXPECT_TRUE(second.known);
  EXPECT_FALSE(second.settled);
}

TEST(CostModel, AKeyThatCostsTheSameEverywhereNeedsNoContext) {
  auto costs = std::make_unique<CostModel>(Micros(20));
  Teach(*costs, 1, 7, 20, [](int) { return 50'000.0f; });
  for (uint64_t context = 100; context < 120; ++context) {
    const CostModel::Prediction p = costs->Predict(1, context, 1);
    EXPECT_TRUE(p.settled);
    EXPECT_NEAR(p.cost_ns, 50'000, 500);
    EXPECT_GT(costs->FindSettled(1, context).cost_ns, 0);  // the next launch is on the fast path
  }
}

// Dynamic shapes give an endless number of contexts. Each key keeps its own cost; costs of different keys are never
// averaged.
TEST(CostModel, AFullTablePredictsByTheKey) {
  auto costs = std::make_unique<CostModel>(Micros(20));
  Teach(*costs, 1, 0, 20, [](int i) { return i % 2 == 0 ? 4'000.0f : 6'000.0f; });
  Teach(*costs, 2, 0, 20, [](int i) { return i % 2 == 0 ? 150'000.0f : 250'000.0f; });
  for (uint64_t context = 1; context < 3 * CostModel::kEntries; ++context) {
    costs->Predict(1 + context % 2, context << 20, 1);
  }
  EXPECT_LT(costs->used(), CostModel::kEntries);
  const CostModel::Prediction small = costs->Predict(1, ~0ull, 1);
  const CostModel::Prediction large = costs->Predict(2, ~0ull, 1);
  EXPECT_TRUE(small.known && small.settled && large.known && large.settled);
  EXPECT_NEAR(small.cost_ns, 5'000, 1'500);
  EXPECT_NEAR(large.cost_ns, 200'000, 60'000);
}

TEST(CostModel, WhatIsNoLongerMeasuredMakesRoom) {
  auto costs = std::make_unique<CostModel>(Micros(20));
  const auto varying = [](int i) { return i % 2 == 0 ? 30'000.0f : 60'000.0f; };
  for (uint64_t context = 1; context < CostModel::kEntries; ++context) {
    Teach(*costs, 1, context << 20, 1, varying);
  }
  const uint32_t full = costs->used();
  EXPECT_GT(full, CostModel::kEntries / 2);
  Teach(*costs, 2, 5, 6 * static_cast<int>(CostModel::kEntries), varying);
  EXPECT_LT(costs->used(), full / 2);
  EXPECT_TRUE(costs->Predict(2, 5, 1).settled);  // entries in use stay
  Teach(*costs, 3, 9, 3, varying);
  EXPECT_NE(costs->Predict(3, 9, 1).entry, CostModel::kCatchAll);
}

TEST(CostModel, AGiantGuessedSmallIsBelievedAtOnce) {
  auto costs = std::make_unique<CostModel>(Micros(20));
  const CostModel::Prediction p = costs->Predict(1, 7, 1);
  costs->Learn(p.entry, p.cost_ns, 500, 1, true);
  EXPECT_NEAR(costs->Predict(1, 7, 1).cost_ns, 10e6, 1e3);
}

TEST(CostModel, BatchesPredictedAlikeTeachAlike) {
  auto costs = std::make_unique<CostModel>(Micros(20));
  const CostModel::Prediction p = costs->Predict(1, 0, 1);
  for (int i = 0; i < 30; ++i) costs->Learn(p.entry, p.cost_ns, 3, 1, true);
  EXPECT_NEAR(costs->Predict(1, 0, 1).cost_ns, 60'000, 100);
}

TEST(CostModel, AFullTableSharesTheCatchAll) {
  auto costs = std::make_unique<CostModel>(Micros(20));
  for (uint64_t key = 1; key < 3 * CostModel::kEntries; ++key) {
    EXPECT_GT(costs->Predict(key, 0, 1).cost_ns, 0);
  }
  EXPECT_LE(costs->used(), CostModel::kEntries);
  const CostModel::Prediction p = costs->Predict(1 << 30, 0, 1);
  EXPECT_EQ(p.entry, CostModel::kCatchAll);
  costs->Learn(p.entry, p.cost_ns, 2, 1, true);  // moves the mean and does no other harm
  EXPECT_GT(costs->Predict(1 << 30, 0, 1).cost_ns, 20'000);
}

TEST(CostModel, ManyThreadsPredictTheSameKeysIntoTheSameEntries) {
  auto costs = std::make_unique<CostModel>(Micros(20));
  std::vector<std::vector<uint32_t>> entries(4);
  std::vector<std::thread> threads;
  for (auto& mine : entries) {
    threads.emplace_back([&mine, &costs] {
      for (uint64_t key = 1; key <= 500; ++key)
        mine.push_back(costs->Predict(key, key / 2, 1).entry);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 1; i < 4; ++i) EXPECT_EQ(entries[0], entries[static_cast<size_t>(i)]);
}

// Wherever in the table the other key is, except for the first place, which is always empty.
TEST(CostModel, WhatAnotherIsLikeIsFoundAnywhere) {
  constexpr uint64_t kKeys = CostModel::kEntries / 8;
  for (uint64_t from = 1; from < 4 * CostModel::kEntries; from += kKeys) {
    auto model = std::make_unique<CostModel>(Micros(20));
    for (uint64_t key = from; key < from + kKeys; ++key) {
      const CostModel::Prediction old = model->Predict(key, 0, 1);
      model->Learn(old.entry, old.cost_ns, 100e3f / old.cost_ns, 1, true);
      ASSERT_TRUE(model->Predict(key + (1ull << 40), 0, 1, /*like=*/key).known) << key;
    }
  }
}

TEST(CostModel, AKeyThatIsLikeAnotherCostsAsMuchUntilItIsMeasured) {
  auto model = std::make_unique<CostModel>(Micros(20));
  for (int i = 0; i < 4; ++i) {
    const CostModel::Prediction old = model->Predict(7, 0, 1);
    model->Learn(old.entry, old.cost_ns, 100e3f / old.cost_ns, 1, true);
  }
  const CostModel::Prediction like = model->Predict(8, 0, 1, /*like=*/7, /*parts=*/10);
  EXPECT_TRUE(like.known);
  EXPECT_FALSE(like.settled);
  EXPECT_NEAR(like.cost_ns, 100e3, 1e3);
  EXPECT_EQ(model->parts(like.entry), 10u);
  // The first measurement replaces the estimate completely.
  model->Learn(like.entry, like.cost_ns, 900e3f / like.cost_ns, 1, true);
  EXPECT_NEAR(model->Predict(8, 0, 1, 7).cost_ns, 900e3, 1e3);
  // If the other key is unknown too, nothing is assumed. A number of parts that is too large counts as unknown.
  const CostModel::Prediction fresh =
      model->Predict(9, 0, 1, /*like=*/10, CostModel::kMostParts + 1);
  EXPECT_FALSE(fresh.known);
  EXPECT_EQ(model->parts(fresh.entry), 0u);
}

}  // namespace
}  // namespace gpushare::meter
