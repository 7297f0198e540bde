// SPDX-License-Identifier: Apache-2.0
// Tenants of a time book that have a parent.
#include <gtest/gtest.h>

#include <algorithm>

#include "broker/time_book.h"
#include "tests/unit/broker/time_book_bench.h"

namespace gpushare::broker {
namespace {

using Bench = TimeBookBench;
using Process = TimeBookBench::Process;

// Runs the processes for two seconds first, which is for what each is ahead or behind at its beginning.
template <typename... Processes>
void Settle(Bench& bench, Processes&... processes) {
  bench.Run(Seconds(2));
  ((processes.ran_ns = 0), ...);
}

TEST(TimeBookFamilies, ChildrenDivideTheirParentsPartByTheirOwnWeights) {
  Bench bench;
  TimeBook::Tenant* const team = bench.Tenant({.weight = 1});
  auto& first = bench.Start(bench.Tenant({.weight = 3}, team));
  auto& second = bench.Start(bench.Tenant({.weight = 1}, team));
  auto& other = bench.Start(bench.Tenant({.weight = 1}));
  Settle(bench, first, second, other);
  bench.Run(Seconds(2));
  EXPECT_NEAR(bench.Part(first, Seconds(2)), 0.375, 0.01);
  EXPECT_NEAR(bench.Part(second, Seconds(2)), 0.125, 0.01);
  EXPECT_NEAR(bench.Part(other, Seconds(2)), 0.5, 0.01);
}

TEST(TimeBookFamilies, WhatOneLeavesIsItsSiblingsFirst) {
  Bench bench;
  TimeBook::Tenant* const team = bench.Tenant({.weight = 1});
  auto& first = bench.Start(bench.Tenant({.weight = 1}, team));
  auto& second = bench.Start(bench.Tenant({.weight = 1}, team));
  auto& other = bench.Start(bench.Tenant({.weight = 1}));
  second.busy = false;
  Settle(bench, first, other);
  bench.Run(Seconds(2));
  EXPECT_NEAR(bench.Part(first, Seconds(2)), 0.5, 0.01);
  EXPECT_NEAR(bench.Part(other, Seconds(2)), 0.5, 0.01);
}

TEST(TimeBookFamilies, WhatTheParentRunsItselfIsAChildsOfWeight1) {
  Bench bench;
  TimeBook::Tenant* const team = bench.Tenant({.weight = 9});
  auto& own = bench.Start(team);
  auto& child = bench.Start(bench.Tenant({.weight = 3}, team));
  Settle(bench, own, child);
  bench.Run(Seconds(2));
  EXPECT_NEAR(bench.Part(own, Seconds(2)), 0.25, 0.01);
  EXPECT_NEAR(bench.Part(child, Seconds(2)), 0.75, 0.01);
}

TEST(TimeBookFamilies, TheParentsCapIsOfTheSumAndTheChildsOfItself) {
  Bench bench;
  TimeBook::Tenant* const team = bench.Tenant({.cap = 0.4});
  auto& own = bench.Start(team);
  auto& first = bench.Start(bench.Tenant({.cap = 0.1}, team));
  auto& second = bench.Start(bench.Tenant({}, team));
  Settle(bench, own, first, second);
  bench.Run(Seconds(2));
  const double sum =
      bench.Part(own, Seconds(2)) + bench.Part(first, Seconds(2)) + bench.Part(second, Seconds(2));
  EXPECT_NEAR(sum, 0.4, 0.01);
  EXPECT_NEAR(bench.Part(first, Seconds(2)), 0.1, 0.01);
  EXPECT_NEAR(bench.Part(own, Seconds(2)), 0.15, 0.01);
}

TEST(TimeBookFamilies, TheParentsGuaranteeIsOfTheSumAndAChildsComesOutOfIt) {
  Bench bench;
  TimeBook::Tenant* const team = bench.Tenant({.guarantee = 0.6});
  auto& first = bench.Start(bench.Tenant({.guarantee = 0.4}, team));
  auto& second = bench.Start(bench.Tenant({}, team));
  auto& other = bench.Start(bench.Tenant({.weight = 1000}));
  Settle(bench, first, second, other);
  bench.Run(Seconds(2));
  EXPECT_GE(bench.Part(first, Seconds(2)), 0.39);
  EXPECT_NEAR(bench.Part(first, Seconds(2)) + bench.Part(second, Seconds(2)), 0.6, 0.01);
}

// Otherwise a child of high priority without a cap of its own would take what its parent may not have.
TEST(TimeBookFamilies, AParentsCapHoldsForAChildOfHighPriority) {
  Bench bench;
  TimeBook::Tenant* const service = bench.Tenant({.cap = 0.3, .band = sched::Band::kHigh});
  auto& child = bench.Start(bench.Tenant({.band = sched::Band::kHigh}, service));
  auto& other = bench.Start(bench.Tenant({}));
  Settle(bench, child, other);
  bench.Run(Seconds(2));
  EXPECT_NEAR(bench.Part(child, Seconds(2)), 0.3, 0.01);
  EXPECT_GE(bench.Part(other, Seconds(2)), 0.65);
}

// A new cap of the parent holds at once, also for those that asked for no grants before.
TEST(TimeBookFamilies, ANewCapOfTheParentHoldsForItsChildren) {
  Bench bench;
  TimeBook::Tenant* const service = bench.Tenant({.band = sched::Band::kHigh});
  auto& child = bench.Start(bench.Tenant({.band = sched::Band::kHigh}, service));
  bench.Run(Seconds(1));
  EXPECT_NEAR(bench.Part(child, Seconds(1)), 1, 0.01);
  bench.book.Update(service, {.cap = 0.3, .band = sched::Band::kHigh}, bench.now, bench.changed);
  Settle(bench, child);
  bench.Run(Seconds(2));
  EXPECT_NEAR(bench.Part(child, Seconds(2)), 0.3, 0.01);
}

TEST(TimeBookFamilies, WithoutABrokerChildrenHaveTheirPartsOfTheParents) {
  Bench bench;
  TimeBook::Tenant* const team = bench.Tenant({.weight = 1, .cap = 0.6});
  auto& first = bench.Start(bench.Tenant({.weight = 3}, team));
  auto& second = bench.Start(bench.Tenant({.weight = 1, .cap = 0.1}, team));
  const auto part = [](const Process& process) {
    return static_cast<double>(process.pages.limits.guarantee_ppm.load()) / 1e6;
  };
  bench.Look();
  EXPECT_NEAR(part(first), 0.45, 1e-3);
  EXPECT_NEAR(part(second), 0.1, 1e-3);
  auto& other = bench.Start(bench.Tenant({.guarantee = 0.5}));
  bench.Look();
  EXPECT_NEAR(part(first), 0.1875, 1e-3) << "of what the guarantee leaves, by weight 1 to 1";
  EXPECT_NEAR(part(second), 0.0625, 1e-3);
  EXPECT_NEAR(part(other), 0.75, 1e-3);
  auto& own = bench.Start(team);
  bench.Look();
  EXPECT_NEAR(part(own), 0.05, 1e-3);
}

}  // namespace
}  // namespace gpushare::broker
