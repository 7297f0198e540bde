// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/figures.h"
#include "harness/questions/question.h"
#include "harness/report/headline.h"

namespace gpushare::harness {
namespace {

constexpr char kReclaim[] = R"(question: reclaim
length: 2s
warm_up: 200ms
window: 100ms
tolerance: 20%
cases:
  - name: one
    tenants:
      - {name: back, share: 50%, active: 0s-500ms 1s-1400ms 1600ms-2s, work: {kernels: 1ms}}
      - {name: stays, share: 50%, work: {kernels: 1ms}}
)";

// A tenant with the given part of the device at each time.
TenantOutcome Has(const std::string& name, const std::function<double(Nanos)>& part) {
  TenantOutcome tenant;
  tenant.name = name;
  const Nanos fine = ReclaimQuestion().fine;
  double used = 0;
  for (Nanos at{0}; at <= Seconds(2); at += fine) {
    if (at % kSample == Nanos(0)) tenant.used_ns.push_back(static_cast<int64_t>(used));
    tenant.fine_ns.push_back(static_cast<int64_t>(used));
    used += part(at) * static_cast<double>(fine.count());
  }
  return tenant;
}

std::map<std::string, double> ReclaimOf(const Scenario& scenario, const Outcome& outcome) {
  std::map<std::string, double> figures;
  for (const Figure& each : FiguresOf(scenario, scenario.cases[0], outcome, {})) {
    if (each.value.has_value()) figures[each.name] = *each.value;
  }
  return figures;
}

// `back` has nothing for `delays` after each of its returns, and then half.
Outcome ReturnsAfter(std::pair<Nanos, Nanos> delays) {
  const auto is_back = [delays](Nanos at) {
    return at < Millis(500) || (at >= Seconds(1) + delays.first && at < Millis(1400)) ||
           at >= Millis(1600) + delays.second;
  };
  Outcome outcome;
  outcome.tenants = {Has("back", [&](Nanos at) { return is_back(at) ? 0.5 : 0; }),
                     Has("stays", [&](Nanos at) { return is_back(at) ? 0.5 : 0.9; })};
  outcome.tenants[0].away = {{Millis(500), Seconds(1)}, {Millis(1400), Millis(1600)}};
  return outcome;
}

TEST(Reclaim, IsTheTimeUntilTheFirstWindowThatHasTheShare) {
  const auto scenario = ParseScenario(kReclaim, "s.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  // Once at once, and once 150 ms later. In the latter case a window of 100 ms has four fifths of its share (its half
  // of what both used: 0.9 without it, 1 with it) if it begins some 19 ms before that.
  auto figures = ReclaimOf(*scenario, ReturnsAfter({Nanos(0), Millis(150)}));
  EXPECT_NEAR(figures["back.reclaim_worst"], 150 - 100 * (1 - 0.4 * 0.9 / (0.5 - 0.4 * 0.1)), 0.11);
  EXPECT_NEAR(figures["back.reclaim"], figures["back.reclaim_worst"] / 2, 0.1);  // of two
  EXPECT_EQ(figures["back.reclaimed"], 100);
  EXPECT_NEAR(figures["back.behind"], 0.5 * 0.9 * 150, 0.1);
  EXPECT_NEAR(figures["busy_away"], 90, 1e-6);
  figures = ReclaimOf(*scenario, ReturnsAfter({Nanos(0), Nanos(0)}));
  EXPECT_EQ(figures["back.reclaim_worst"], 0);
  EXPECT_NEAR(figures["back.behind"], 0, 1e-3);
}

TEST(Reclaim, WhatIsNeverReachedTookAllTheTimeThatItWasThere) {
  const auto scenario = ParseScenario(kReclaim, "s.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  auto figures = ReclaimOf(*scenario, ReturnsAfter({Nanos(0), Seconds(1)}));
  EXPECT_EQ(figures["back.reclaim_worst"], 400);
  EXPECT_EQ(figures["back.reclaimed"], 50);
  // A tenant whose work had not ended when it was to return was never away.
  Outcome busy = ReturnsAfter({Nanos(0), Seconds(1)});
  busy.tenants[0].away.clear();
  figures = ReclaimOf(*scenario, busy);
  EXPECT_EQ(figures.count("back.reclaim"), 0u);
  EXPECT_EQ(figures.count("busy_away"), 0u);
  EXPECT_GT(figures["busy"], 90);
}

TEST(Reclaim, IsToldWithHowFarATenantWasBehind) {
  Result run = {.scenario = "s", .one_case = "c", .method = "native"};
  run.course.question = "reclaim";
  run.figures = {{"back.reclaim_worst", "ms", 0.0, Figure::Better::kLower},
                 {"back.reclaimed", "%", 100.0, Figure::Better::kHigher},
                 {"back.behind", "ms", 0.5, Figure::Better::kLower},
                 {"busy_away", "%", 99.0, Figure::Better::kHigher}};
  const auto told = [&run] {
    std::vector<report::Given> given(1);
    given[0].results.runs = {run};
    const report::Report made = report::ReportOf(given);
    return report::HeadlinesOf(made, made.scenarios[0])[0].sentence;
  };
  EXPECT_EQ(
      told(),
      "back had its share at the latest 0.00 ms after its return; back was at most 0.50 ms of "
      "device time behind it. While a tenant was away, the device was busy for 99.0 % of the "
      "time.");
  run.figures[1].value = 50;
  EXPECT_EQ(told(),
            "back had its share again after 50.0 % of its returns. While a tenant was away, the "
            "device was busy for 99.0 % of the time.");
}

TEST(Reclaim, IsAskedOfTenantsThatComeBack) {
  const auto with = [](const std::string& part, const std::string& by) {
    std::string text = kReclaim;
    const size_t at = text.find(part);
    EXPECT_NE(at, std::string::npos) << part;
    return std::string(
        ParseScenario(text.replace(at, part.size(), by), "s.yaml").status().message());
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(with(", active: 0s-500ms 1s-1400ms 1600ms-2s", ""),
              HasSubstr("s.yaml:7: cases[0]: a tenant that does not serve requests comes back"));
  EXPECT_THAT(with("0s-500ms 1s-1400ms 1600ms-2s", "0s-500ms"), HasSubstr("comes back after"));
  EXPECT_THAT(with("1600ms-2s", "1600ms-1650ms"),
              HasSubstr("'back' is back for 50ms, which is shorter than the window of 100ms"));
  EXPECT_THAT(with("{name: stays, share: 50%", "{name: stays, share: 40%"),
              HasSubstr("add up to 90%; 100% is wanted"));
  EXPECT_THAT(with("{name: stays, share: 50%", "{name: stays"),
              HasSubstr("each tenant needs 'share' for the question 'reclaim'"));
  EXPECT_EQ(with("tolerance: 20%", "tolerance: 200%"),
            "s.yaml:5: tolerance: '200%' given; allowed: 0.01% to 100%");
}

}  // namespace
}  // namespace gpushare::harness
