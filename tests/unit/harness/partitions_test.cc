// SPDX-License-Identifier: Apache-2.0
#include "harness/partitions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "harness/method.h"

namespace gpushare::harness {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr PartitionedDevice kH200 = {.sms = 132, .step = 8, .steps = 16};

PartitionAsk Share(const char* name, double share) { return {.name = name, .share = share}; }

TEST(Partitions, SharesAreOfAllStepsByLargestRemainders) {
  EXPECT_THAT(*StepsOf({Share("a", 0.75), Share("b", 0.25)}, kH200), ElementsAre(12, 4));
  EXPECT_THAT(*StepsOf({Share("a", 0.5), Share("b", 0.3), Share("c", 0.2)}, kH200),
              ElementsAre(8, 5, 3));
  EXPECT_THAT(*StepsOf({Share("a", 0.333), Share("b", 0.333), Share("c", 0.333)}, kH200),
              ElementsAre(6, 5, 5));
  // Each gets at least one step, taken from the tenant that has the most beyond its request.
  EXPECT_THAT(*StepsOf({Share("a", 0.98), Share("b", 0.01), Share("c", 0.01)}, kH200),
              ElementsAre(14, 1, 1));
  // Shares that do not add up to 100 % leave some steps unused.
  EXPECT_THAT(*StepsOf({Share("a", 0.5)}, kH200), ElementsAre(8));
}

TEST(Partitions, SharesOfAnyKindFitAndEachIsWithinAStep) {
  for (int first = 1; first < 100; ++first) {
    for (int second = 1; first + second < 100; second += 7) {
      const std::vector<double> parts = {first / 100.0, second / 100.0,
                                         1 - (first + second) / 100.0};
      const auto steps =
          StepsOf({Share("a", parts[0]), Share("b", parts[1]), Share("c", parts[2])}, kH200);
      ASSERT_TRUE(steps.ok()) << steps.status();
      EXPECT_EQ(std::accumulate(steps->begin(), steps->end(), size_t{0}), 16u);
      for (size_t i = 0; i < 3; ++i) {
        // The minimum of one step is taken from the others, which changes them by at most two.
        EXPECT_NEAR(static_cast<double>((*steps)[i]), parts[i] * 16, 2) << first << " " << second;
      }
    }
  }
}

TEST(Partitions, ACapIsRoundedUpAndTheOthersHaveWhatIsLeft) {
  EXPECT_THAT(*StepsOf({{.name = "a", .cap = 0.3}}, kH200), ElementsAre(5));
  EXPECT_THAT(*StepsOf({{.name = "a", .cap = 1}}, kH200), ElementsAre(16));
  EXPECT_THAT(*StepsOf({{.name = "a", .cap = 0.3}, {.name = "b"}, {.name = "c"}}, kH200),
              ElementsAre(5, 6, 5));
  EXPECT_THAT(*StepsOf({{.name = "a"}}, kH200), ElementsAre(16));
}

TEST(Partitions, WhatDoesNotFitIsNotSupportedWithTheReason) {
  const auto promised = StepsOf({{.name = "a", .cap = 0.6}, {.name = "b", .cap = 0.5}}, kH200);
  EXPECT_TRUE(absl::IsUnimplemented(promised.status()));
  EXPECT_EQ(std::string(promised.status().message()),
            "what is promised does not fit into 128 SMs: a 80, b 72");
  EXPECT_THAT(
      std::string(StepsOf({{.name = "a", .cap = 1}, {.name = "b"}}, kH200).status().message()),
      HasSubstr("does not fit into 128 SMs: a 128, b 8"));
  EXPECT_EQ(std::string(StepsOf(std::vector<PartitionAsk>(17), kH200).status().message()),
            "17 partitions; the device has 16 of 8 SMs");
}

TEST(Partitions, ASpecAsksForSoManySteps) {
  // gpushare rounds up to whole steps.
  EXPECT_EQ(GreenSpec(Share("a", 0.75), 12, kH200), "isolation=green,compute=69.697%");
  EXPECT_EQ(GreenSpec({.name = "a", .cap = 0.3}, 5, kH200),
            "isolation=green,compute=27.2727%,cap=30%");
}

TEST(Partitions, TheMethodHasNoWordForPriorities) {
  const Method spatial = *FindMethod("gpushare-spatial");
  EXPECT_FALSE(HasProcesses(spatial));
  EXPECT_TRUE(IsLinked(spatial));
  Case one;
  one.tenants.emplace_back().ask = {.share = 0.5, .cap = 0.6, .memory = 1 << 30};
  EXPECT_EQ(WhyNot(spatial, one), "");
  one.tenants[0].ask = {.high_priority = true};
  EXPECT_EQ(WhyNot(spatial, one), "no priority: each has SMs of its own");
  one.tenants[0].ask = {.own_context = true};
  EXPECT_EQ(WhyNot(spatial, one), "no context of its own beside SMs of its own");
}

}  // namespace
}  // namespace gpushare::harness
