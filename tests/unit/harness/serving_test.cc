// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "harness/figures.h"
#include "harness/questions/question.h"
#include "harness/timing.h"

namespace gpushare::harness {
namespace {

using ::testing::HasSubstr;

constexpr char kServing[] = R"(question: serving
length: 2s
warm_up: 1s
cases:
  - name: one
    tenants:
      - name: server
        mode: batches
        load: 50%
        wait: 2ms
        goal: 5ms
        batches:
          8: {kernels: 100us 300us, repeat: 2}
          1: {kernels: 200us}
      - {name: job, work: {kernels: 1ms}}
)";

absl::StatusOr<Scenario> ServingWith(const std::string& part, const std::string& by) {
  std::string text = kServing;
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return ParseScenario(text.replace(at, part.size(), by), "s.yaml");
}

std::string WhyNoServing(const std::string& part, const std::string& by) {
  return std::string(ServingWith(part, by).status().message());
}

TEST(Serving, BatchesAreReadByAscendingSize) {
  const auto scenario = ParseScenario(kServing, "s.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  const Tenant& server = scenario->cases[0].tenants[0];
  ASSERT_EQ(server.batches.size(), 2u);
  EXPECT_EQ(server.batches[0].most, 1u);
  EXPECT_EQ(server.batches[0].steps, 1u);
  EXPECT_EQ(server.batches[1].most, 8u);
  EXPECT_EQ(server.batches[1].first_step, 1u);
  EXPECT_EQ(server.batches[1].steps, 4u);
  ASSERT_EQ(server.work.kernels().size(), 5u);
  EXPECT_EQ(server.work.kernels()[0].duration, Micros(200));
  EXPECT_EQ(server.work.kernels()[2].duration, Micros(300));
  EXPECT_EQ(server.wait, Millis(2));
  EXPECT_EQ(server.goal, Millis(5));
  // Eight requests take 800 us, which is half of the time at 5000 a second.
  EXPECT_DOUBLE_EQ(RequestsPerSecond(server), 5000);
}

TEST(Serving, WhatIsWrongWithBatchesIsToldWithItsLine) {
  EXPECT_THAT(WhyNoServing("1: {kernels: 200us}", "0: {kernels: 200us}"),
              HasSubstr("s.yaml:14: cases[0].tenants[0].batches.0: '0' given; allowed: 1 to 4096"));
  EXPECT_THAT(WhyNoServing("1: {kernels: 200us}", "08: {kernels: 200us}"),
              HasSubstr("s.yaml:14: cases[0].tenants[0].batches.08: it is given twice"));
  EXPECT_THAT(WhyNoServing("1: {kernels: 200us}", "1: {}"), HasSubstr("one of kernels, trace"));
  EXPECT_THAT(WhyNoServing("mode: batches", "mode: requests"),
              HasSubstr("s.yaml:7: cases[0].tenants[0]: 'batches' are of the mode 'batches'"));
  EXPECT_THAT(WhyNoServing("load: 50%", "work: {kernels: 1ms}"),
              HasSubstr("either 'work' or 'batches'"));
  EXPECT_THAT(WhyNoServing("load: 50%", "load: 50%\n        rate: 10/s"),
              HasSubstr("the mode 'batches' needs either 'load' or 'rate'"));
  EXPECT_THAT(WhyNoServing("{name: job,", "{name: job, wait: 1ms,"),
              HasSubstr("'wait' is of the mode 'batches'"));
  EXPECT_THAT(WhyNoServing("wait: 2ms", "wait: 11s"), HasSubstr("allowed: 0s to 10s"));
  EXPECT_THAT(ParseScenario("question: serving\ncases:\n- name: one\n  tenants:\n"
                            "  - {name: job, work: {kernels: 1ms}}\n",
                            "s.yaml")
                  .status()
                  .message(),
              HasSubstr("s.yaml:3: cases[0]: one tenant has the mode 'batches'"));
}

TenantOutcome Answers(const std::string& name, std::vector<player::Request> requests) {
  TenantOutcome tenant;
  tenant.name = name;
  for (Nanos at{0}; at <= Seconds(2); at += kSample) tenant.used_ns.push_back(at.count() / 4);
  tenant.requests = std::move(requests);
  return tenant;
}

TEST(Serving, FiguresAreOfWhatWasAnsweredSinceTheWarmUp) {
  const auto scenario = ParseScenario(kServing, "s.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  // One batch in the warm-up, one of three requests, and one of a single request that is late.
  const TenantOutcome server = Answers("server", {{Millis(500), Millis(1)},
                                                  {Millis(1100), Millis(5)},
                                                  {Millis(1101), Millis(4)},
                                                  {Millis(1102), Millis(3)},
                                                  {Millis(1200), Millis(6)}});
  const TenantOutcome alone = Answers("server", {{Millis(1100), Millis(2)},
                                                 {Millis(1101), Millis(2)},
                                                 {Millis(1102), Millis(2)},
                                                 {Millis(1200), Millis(2)}});
  std::map<std::string, double> figures;
  for (const Figure& each : FiguresOf(*scenario, scenario->cases[0],
                                      {.error = "", .tenants = {server, Answers("job", {})}},
                                      {.error = "", .tenants = {alone}})) {
    if (each.value.has_value()) figures[each.name] = *each.value;
  }
  EXPECT_EQ(figures["server.throughput"], 4);
  EXPECT_EQ(figures["server.goodput"], 3);
  EXPECT_EQ(figures["server.batch"], 2);
  EXPECT_EQ(figures["server.served"], 100);
  EXPECT_EQ(figures["server.p50"], 4000);
  EXPECT_EQ(figures["server.p99_ratio"], 3);
  EXPECT_EQ(figures["server.p50_ratio"], 2);
  EXPECT_EQ(figures["server.goodput_ratio"], 0.75);
  EXPECT_EQ(figures["job.share"], 25);
}

TEST(Serving, WithoutAGoalThereIsNoGoodput) {
  const auto scenario = ServingWith("        goal: 5ms\n", "");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  for (const Figure& each :
       FiguresOf(*scenario, scenario->cases[0],
                 {.error = "", .tenants = {Answers("server", {}), Answers("job", {})}}, {})) {
    EXPECT_THAT(each.name, ::testing::Not(HasSubstr("goodput")));
    if (each.name != "server.batch") continue;
    EXPECT_FALSE(each.value.has_value());
  }
}

}  // namespace
}  // namespace gpushare::harness
