// SPDX-License-Identifier: Apache-2.0
#include "harness/turns.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/questions/question.h"

namespace gpushare::harness {
namespace {

// One case with two services and a job.
Scenario Asking(const Question& question) {
  Scenario scenario;
  scenario.question = &question;
  scenario.length = Seconds(10);
  Case& one = scenario.cases.emplace_back();
  for (const char* name : {"a", "b", "job"}) one.tenants.emplace_back().name = name;
  one.tenants[0].mode = one.tenants[1].mode = player::PlayMode::kOpenLoop;
  return scenario;
}

const std::vector<Method> kThree = {{"native", Method::Kind::kNative},
                                    {"gpushare", Method::Kind::kInProcess},
                                    {"gpushare-spatial", Method::Kind::kSpatial}};

std::vector<double> WeightsOf(const Scenario& scenario, int repetitions) {
  const std::vector<Scenario> scenarios = {scenario};
  std::vector<double> weights;
  for (const Turn& turn : TurnsOf(scenarios, kThree, {.repetitions = repetitions})) {
    weights.push_back(turn.weight);
  }
  return weights;
}

TEST(Turns, TheFirstOfACaseWaitsForTheRunsAlone) {
  EXPECT_EQ(WeightsOf(Asking(CapQuestion()), 2), (std::vector<double>(6, 10.2)));
  // Each of the two services alone, and all of them natively: once for all methods, and again in each repetition.
  const std::vector<Scenario> scenarios = {Asking(LatencyQuestion())};
  const std::vector<Turn> turns = TurnsOf(scenarios, kThree, {.repetitions = 2});
  ASSERT_EQ(turns.size(), 6u);
  for (size_t i = 0; i < turns.size(); ++i) {
    // The run to compare with is not repeated for native itself.
    const double itself = turns[i].method->name == "native" ? 0 : 10.2;
    EXPECT_NEAR(turns[i].weight, itself + (i % 3 == 0 ? 3 * 10.2 : 0), 1e-9) << i;
  }
}

TEST(Turns, WhatIsToldBySmsIsPlayedAloneAgain) {
  Scenario scenario = Asking(OverheadQuestion());
  scenario.cases[0].tenants.resize(1);
  double sum = 0;
  for (const double weight : WeightsOf(scenario, 1)) sum += weight;
  EXPECT_NEAR(sum, (3 + 2) * 10.2, 1e-9);
}

TEST(Turns, WhatAMethodCannotDoTakesNoTime) {
  Scenario scenario = Asking(LatencyQuestion());
  scenario.cases[0].tenants[0].ask.high_priority = true;
  const std::vector<Scenario> scenarios = {scenario};
  std::set<std::string> cannot;
  double sum = 0;
  for (const Turn& turn : TurnsOf(scenarios, kThree, {.repetitions = 1})) {
    sum += turn.weight;
    if (!turn.why_not.empty()) cannot.insert(turn.method->name);
  }
  EXPECT_EQ(cannot, (std::set<std::string>{"gpushare-spatial"}));
  EXPECT_NEAR(sum, (1 + 3) * 10.2, 1e-9);  // whichever eligible one comes first
}

TEST(Turns, EachMethodHasOneInEachRepetitionAndNotAlwaysTheSame) {
  const std::vector<Scenario> scenarios = {Asking(ShareQuestion())};
  const std::vector<Turn> turns = TurnsOf(scenarios, kThree, {.repetitions = 20});
  std::map<int, std::set<const Method*>> by_repetition;
  std::set<const Method*> first;
  for (size_t i = 0; i < turns.size(); ++i) {
    by_repetition[turns[i].repetition].insert(turns[i].method);
    if (i % 3 == 0) first.insert(turns[i].method);
  }
  EXPECT_EQ(by_repetition.size(), 20u);
  for (const auto& [repetition, methods] : by_repetition) EXPECT_EQ(methods.size(), 3u);
  EXPECT_EQ(first.size(), 3u);
}

}  // namespace
}  // namespace gpushare::harness
