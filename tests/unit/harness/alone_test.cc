// SPDX-License-Identifier: Apache-2.0
#include "harness/alone.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "harness/questions/question.h"

namespace gpushare::harness {
namespace {

class AloneTest : public ::testing::Test {
 protected:
  AloneTest() {
    scenario_.question = &LatencyQuestion();
    for (const char* name : {"a", "job", "b"}) one_.tenants.emplace_back().name = name;
    one_.tenants[0].mode = one_.tenants[2].mode = player::PlayMode::kOpenLoop;
  }
  Scenario scenario_;
  Case one_;
  std::vector<std::string> played_;
  absl::Status answer_;
  Alone alone_{[this](const Scenario&, const Case& one,
                      const RunOptions& options) -> absl::StatusOr<Outcome> {
    const std::string name = one.tenants.at(options.only.value()).name;
    played_.push_back(name + " " + std::to_string(options.seed));
    if (!answer_.ok()) return answer_;
    Outcome outcome;
    outcome.tenants.emplace_back().name = name;
    return outcome;
  }};
};

TEST_F(AloneTest, EachPlaysByItselfAndOnceForAllMethods) {
  for (int method = 0; method < 3; ++method) {
    const auto& outcome = alone_.Of(scenario_, one_, 7);
    ASSERT_TRUE(outcome.ok());
    ASSERT_EQ(outcome->tenants.size(), 2u);
    EXPECT_EQ(outcome->tenants[1].name, "b");
  }
  EXPECT_EQ(played_, (std::vector<std::string>{"a 7", "b 7"}));
  ASSERT_TRUE(alone_.Of(scenario_, one_, 8).ok());
  EXPECT_EQ(played_.size(), 4u);
  const Case other = one_;
  ASSERT_TRUE(alone_.Of(scenario_, other, 8).ok());
  EXPECT_EQ(played_.size(), 6u);
}

TEST_F(AloneTest, AnErrorIsKeptButNotAnInterruption) {
  answer_ = absl::DeadlineExceededError("it hung");
  EXPECT_EQ(alone_.Of(scenario_, one_, 7).status().message(), "a alone: it hung");
  EXPECT_FALSE(alone_.Of(scenario_, one_, 7).ok());
  EXPECT_EQ(played_.size(), 1u);
  answer_ = absl::CancelledError("it was interrupted");
  EXPECT_TRUE(absl::IsCancelled(alone_.Of(scenario_, one_, 8).status()));
  answer_ = absl::OkStatus();
  EXPECT_TRUE(alone_.Of(scenario_, one_, 8).ok());
}

TEST_F(AloneTest, ATenantThatServesNothingPlaysWhereTheQuestionSaysSo) {
  scenario_.question = &OverheadQuestion();
  ASSERT_TRUE(alone_.Of(scenario_, one_, 7).ok());
  EXPECT_EQ(played_, (std::vector<std::string>{"a 7", "job 7", "b 7"}));
}

}  // namespace
}  // namespace gpushare::harness
