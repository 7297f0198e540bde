// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/figures.h"
#include "harness/questions/question.h"
#include "harness/report/headline.h"

namespace gpushare::harness {
namespace {

constexpr char kHarvest[] = R"(question: harvest
length: 2s
warm_up: 500ms
cases:
  - name: one
    tenants:
      - {name: online, priority: high, mode: requests, load: 20%, work: {kernels: 100us}}
      - {name: job, work: {kernels: 1ms}}
)";

std::string WithHarvest(const std::string& part, const std::string& by) {
  std::string text = kHarvest;
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return text.replace(at, part.size(), by);
}

// A tenant that uses `part` of the device in each stretch of `on`, and nothing otherwise.
TenantOutcome UsesWithin(const std::string& name, std::vector<std::pair<Nanos, Nanos>> on,
                         double part) {
  TenantOutcome tenant;
  tenant.name = name;
  const Nanos fine = HarvestQuestion().fine;
  double used = 0;
  for (Nanos at{0}; at <= Seconds(2); at += fine) {
    if (at % kSample == Nanos(0)) tenant.used_ns.push_back(static_cast<int64_t>(used));
    tenant.fine_ns.push_back(static_cast<int64_t>(used));
    for (const auto& [from, to] : on) {
      if (at >= from && at < to) used += part * static_cast<double>(fine.count());
    }
  }
  return tenant;
}

std::map<std::string, double> HarvestOf(const Scenario& scenario, const Outcome& outcome,
                                        const Outcome& alone = {}) {
  std::map<std::string, double> figures;
  for (const Figure& each : FiguresOf(scenario, scenario.cases[0], outcome, alone)) {
    if (each.value.has_value()) figures[each.name] = *each.value;
  }
  return figures;
}

TEST(Harvest, IsOfTheTimeThatRequestsLeaveOver) {
  const auto scenario = ParseScenario(kHarvest, "s.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  // A request from 1 s to 1.25 s, and the grace after it: 1.24997 s of 1.5 s are left over.
  TenantOutcome online = UsesWithin("online", {}, 0);
  online.requests = {{Seconds(1), Millis(250), Seconds(1)}};
  TenantOutcome by_itself = online;
  by_itself.requests = {{Seconds(1), Millis(200)}};
  // The job has half of the left-over time before the request, nothing after it, and a tenth of its second half.
  TenantOutcome job = UsesWithin("job", {{Nanos(0), Seconds(1)}}, 0.5);
  const TenantOutcome beside = UsesWithin("job", {{Millis(1125), Millis(1250)}}, 0.1);
  for (size_t i = 0; i < job.fine_ns.size(); ++i) job.fine_ns[i] += beside.fine_ns[i];
  auto figures = HarvestOf(*scenario, {"", {online, job}}, {"", {by_itself}});
  EXPECT_NEAR(figures["left_over"], 100 * 1.24997 / 1.5, 1e-9);
  EXPECT_NEAR(figures["harvest"], 100 * 0.25 / 1.24997, 1e-9);
  EXPECT_NEAR(figures["taken"], 5, 1e-9);
  EXPECT_NEAR(figures["online.p99_ratio"], 1.25, 1e-9);
  EXPECT_EQ(figures["online.served"], 100);
}

TEST(Harvest, WhatARequestWaitsBeforeItsFirstCommandIsLeftOverAndIsTaken) {
  const auto scenario = ParseScenario(kHarvest, "s.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  // Like a request that waits for others to fill a batch: it arrives at 1 s, its commands at 1.2 s.
  TenantOutcome online = UsesWithin("online", {}, 0);
  online.requests = {{Seconds(1), Millis(250), Millis(1200)}};
  const TenantOutcome job = UsesWithin("job", {{Nanos(0), Millis(1200)}}, 1);
  auto figures = HarvestOf(*scenario, {"", {online, job}});
  EXPECT_NEAR(figures["left_over"], 100 * 1.44997 / 1.5, 1e-9);
  EXPECT_NEAR(figures["harvest"], 100 * 0.7 / 1.44997, 1e-9);
  EXPECT_NEAR(figures["taken"], 80, 1e-9);
}

TEST(Harvest, IsAFigureOfLatenciesTooWhereThereAreOthers) {
  std::string text = WithHarvest("question: harvest", "question: latency\ngrace: 1ms");
  auto scenario = ParseScenario(text, "s.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  TenantOutcome online = UsesWithin("online", {}, 0);
  online.requests = {{Seconds(1), Millis(250), Seconds(1)}};
  const TenantOutcome job = UsesWithin("job", {{Nanos(0), Seconds(1)}}, 0.5);
  auto figures = HarvestOf(*scenario, {"", {online, job}});
  EXPECT_NEAR(figures["left_over"], 100 * 1.249 / 1.5, 1e-9);
  EXPECT_NEAR(figures["harvest"], 100 * 0.25 / 1.249, 1e-9);
  const std::string others = "      - {name: job, work: {kernels: 1ms}}\n";
  text.erase(text.find(others), others.size());
  scenario = ParseScenario(text, "s.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  EXPECT_EQ(HarvestOf(*scenario, {"", {online}}).count("left_over"), 0u);
}

TEST(Harvest, OfNoTimeThereIsNone) {
  const auto scenario = ParseScenario(kHarvest, "s.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  TenantOutcome online = UsesWithin("online", {}, 0);
  online.requests = {{Nanos(0), Seconds(2), Nanos(0)}};
  const TenantOutcome job = UsesWithin("job", {{Nanos(0), Seconds(2)}}, 1);
  auto figures = HarvestOf(*scenario, {"", {online, job}});
  EXPECT_EQ(figures["left_over"], 0);
  EXPECT_EQ(figures.count("harvest"), 0u);
  EXPECT_NEAR(figures["taken"], 100, 1e-9);
  // Without any requests there is nothing to harvest from.
  online.requests.clear();
  figures = HarvestOf(*scenario, {"", {online, job}});
  EXPECT_NEAR(figures["harvest"], 100, 1e-9);
  EXPECT_NEAR(figures["busy"], 100, 1e-9);
  EXPECT_EQ(figures.count("taken"), 0u);
}

TEST(Harvest, IsToldWhereNoTimeIsLeftOver) {
  Result run = {.scenario = "s", .one_case = "c", .method = "native"};
  run.course.question = "harvest";
  run.figures = {
      {"left_over", "%", 0.0}, {"harvest", "%", std::nullopt}, {"online.p99_ratio", "x", 50.0}};
  std::vector<report::Given> given(1);
  given[0].results.runs = {run};
  const report::Report made = report::ReportOf(given);
  EXPECT_EQ(report::HeadlinesOf(made, made.scenarios[0])[0].sentence,
            "Requests left no time over. The 99th percentile of online's requests was 50.0 times "
            "what it is alone.");
}

TEST(Harvest, IsAskedOfAServiceAndOfOthers) {
  const auto refused = [](const std::string& text) {
    return std::string(ParseScenario(text, "s.yaml").status().message());
  };
  EXPECT_EQ(
      refused(WithHarvest("{name: job, ", "{name: job, mode: requests, load: 1%, ")),
      "s.yaml:5: cases[0]: one tenant has the mode 'requests' and another one has not for the "
      "question 'harvest'");
  EXPECT_THAT(refused(WithHarvest("mode: requests, load: 20%, ", "")),
              ::testing::HasSubstr("for the question 'harvest'"));
  EXPECT_EQ(refused(WithHarvest("warm_up: 500ms", "grace: 101ms")),
            "s.yaml:3: grace: '101ms' given; allowed: 0s to 100ms in steps of 1us");
  EXPECT_EQ(
      ParseScenario(WithHarvest("warm_up: 500ms", "grace: 2ms"), "s.yaml")->settings.at("grace"),
      2e6);
  EXPECT_EQ(ParseScenario(kHarvest, "s.yaml")->settings.at("grace"), 30e3);
  // The key does not exist for other questions.
  EXPECT_THAT(refused(WithHarvest("question: harvest", "question: serving\ngrace: 1ms")),
              ::testing::HasSubstr("s.yaml:2: there is no key 'grace'"));
}

}  // namespace
}  // namespace gpushare::harness
