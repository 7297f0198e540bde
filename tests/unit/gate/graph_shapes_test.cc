// SPDX-License-Identifier: Apache-2.0
#include "gate/graph_shapes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "meter/cost_model.h"

namespace gpushare::gate {
namespace {

using meter::CostModel;

// Where the cost model looks for a key first.
uint64_t PlaceOf(uint64_t key) { return (CostModel::IdOf(key) >> 40) % CostModel::kEntries; }

// The cost model makes room for new keys by forgetting those that were not measured for long. A graph that was changed is like
// the one before, so its cost is known from its first launch on.
TEST(KnownShapes, AGraphWhoseEntryWasAnothersHasNoShape) {
  const auto costs = std::make_unique<CostModel>(Micros(20));
  KnownShapes shapes;
  const auto measure = [&](uint64_t key, float ns) {
    const CostModel::Prediction p = costs->Predict(key, 0, 1);
    costs->Learn(p.entry, p.cost_ns, ns / p.cost_ns, 1, true);
    return p.entry;
  };
  constexpr uint64_t kOld = 7;
  const uint32_t old = measure(kOld, 50e3f), place = costs->base(old);
  shapes.For(costs->id(old)).parts = {{0.25f, 1}, {0.75f, 1}};
  ASSERT_NE(shapes.Find(costs->id(old)), nullptr);

  std::mt19937_64 random(6);  // a seed that leaves the place free
  std::vector<uint64_t> many(2000);
  for (uint64_t& key : many) key = random();
  for (int round = 0; round < 30; ++round) {
    for (const uint64_t key : many) measure(key, 20e3f);
  }
  ASSERT_EQ(costs->Known(kOld, 0), 0);
  uint64_t changed = kOld + 1;
  while (PlaceOf(changed) != PlaceOf(kOld)) ++changed;
  const CostModel::Prediction p = costs->Predict(changed, 0, 1, /*like=*/many[0]);
  ASSERT_TRUE(p.known);
  ASSERT_EQ(costs->base(p.entry), place);
  EXPECT_EQ(shapes.Find(costs->id(p.entry)), nullptr);

  // The old one has its shape still when it comes back.
  const KnownShape* const known = shapes.Find(costs->id(measure(kOld, 50e3f)));
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(known->parts.size(), 2u);
}

TEST(KnownShapes, TheOneThatWasRenewedLongestAgoMakesRoom) {
  KnownShapes shapes;
  for (uint64_t graph = 1; graph <= KnownShapes::kMostGraphs; ++graph) shapes.For(graph);
  shapes.Renew(shapes.For(1));
  shapes.For(KnownShapes::kMostGraphs + 1);
  EXPECT_NE(shapes.Find(1), nullptr);
  EXPECT_EQ(shapes.Find(2), nullptr);
  EXPECT_NE(shapes.Find(3), nullptr);
}

}  // namespace
}  // namespace gpushare::gate
