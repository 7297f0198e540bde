// SPDX-License-Identifier: Apache-2.0
// The questions memory, overhead and faults, with made-up outcomes.
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

constexpr uint64_t kMiB = 1 << 20;

using ByName = std::map<std::string, std::optional<double>>;

ByName Figures(const Scenario& scenario, const Outcome& outcome, const Outcome& alone = {}) {
  ByName figures;
  for (const Figure& each : FiguresOf(scenario, scenario.cases[0], outcome, alone)) {
    figures[each.name] = each.value;
  }
  return figures;
}

Scenario Of(const Question& question, std::vector<Tenant> tenants) {
  Scenario scenario;
  scenario.question = &question;
  scenario.length = Seconds(1);
  scenario.warm_up = Millis(100);
  scenario.window = Millis(100);
  scenario.cases.push_back({"case", "", std::move(tenants)});
  return scenario;
}

// Has `part` of each of 100 samples, and `later` from sample `changes` on.
TenantOutcome Uses(const std::string& name, double part, size_t changes = SIZE_MAX,
                   double later = 0) {
  TenantOutcome tenant;
  tenant.name = name;
  double used = 0;
  for (size_t i = 0; i <= 100; ++i) {
    tenant.used_ns.push_back(static_cast<int64_t>(used));
    used += (i < changes ? part : later) * static_cast<double>(kSample.count());
  }
  return tenant;
}

Tenant WithQuota(uint64_t mib) {
  Tenant tenant;
  tenant.ask.memory = mib * kMiB;
  tenant.allocations.sizes = {kMiB};
  return tenant;
}

TEST(MemoryFigures, WhatFitsIsGrantedAndWhatExceedsIsRefused) {
  TenantOutcome a = Uses("a", 0), b = Uses("b", 0);
  a.memory = {{Millis(1), 60 * kMiB, 0, true},           // fits
              {Millis(2), 40 * kMiB, 60 * kMiB, true},   // fits exactly
              {Millis(3), 1, 100 * kMiB, false},         // a byte too many
              {Millis(4), 50 * kMiB, 60 * kMiB, true}};  // granted though it exceeds
  a.most_bytes = 110 * kMiB;
  b.memory = {{Millis(1), 100 * kMiB, 0, false}, {Millis(2), 100 * kMiB, 0, true}};
  b.most_bytes = 99 * kMiB;
  ByName figures = Figures(Of(MemoryQuestion(), {WithQuota(100), WithQuota(100)}), {"", {a, b}});
  EXPECT_EQ(figures["a.granted"], 100);
  EXPECT_EQ(figures["a.refused"], 50);
  EXPECT_EQ(figures["a.most_over"], 10);
  EXPECT_EQ(figures["b.granted"], 50);
  EXPECT_EQ(figures.at("b.refused"), std::nullopt);  // nothing exceeded: no sample
  EXPECT_EQ(figures["b.most_over"], 0);
  EXPECT_EQ(figures["hurt"], 1);
}

TEST(MemoryFigures, NoSumOverflows) {
  EXPECT_FALSE(FitsInto(10, {Nanos(0), UINT64_MAX, 5, false}));
  EXPECT_FALSE(FitsInto(10, {Nanos(0), 1, 11, false}));
  EXPECT_TRUE(FitsInto(10, {Nanos(0), 10, 0, true}));
}

TEST(OverheadFigures, AreHeldAgainstTheSameNatively) {
  const Scenario scenario = Of(OverheadQuestion(), {Tenant()});
  Outcome outcome = {.error = "", .tenants = {Uses("a", 0.72)}};
  outcome.calls = {{"launch", 150, 100, 1.5}};
  ByName figures = Figures(scenario, outcome, {"", {Uses("a", 0.9)}});
  EXPECT_NEAR(*figures["throughput"], 80, 1e-6);
  EXPECT_NEAR(*figures["busy"], 72, 1e-6);
  EXPECT_EQ(figures["launch.host_ratio"], 1.5);
  EXPECT_EQ(figures["launch.host_ns"], 150);
  // Without a run to compare with there is no figure.
  EXPECT_EQ(Figures(scenario, outcome).at("throughput"), std::nullopt);
}

TEST(OverheadFigures, OfALaunchAreNotToldOfAGraphs) {
  Result run = {.scenario = "overhead", .one_case = "one", .method = "other"};
  run.course.question = "overhead";
  run.figures = {{"throughput", "%", 99.0, Figure::Better::kHigher},
                 {"launch.host_ratio", "x", 1.25, Figure::Better::kLower},
                 {"graph_launch.host_ratio", "x", 3.5, Figure::Better::kLower},
                 {"alloc_free.host_ratio", "x", 2.0, Figure::Better::kLower}};
  std::vector<report::Given> given(1);
  given[0].results.runs = {run};
  const report::Report made = report::ReportOf(given);
  EXPECT_EQ(report::HeadlinesOf(made, made.scenarios[0])[0].sentence,
            "By itself a tenant gets at least 99.0 % of the work done that it does natively. A "
            "launch takes the host 1.25 times as long as the driver's own, an allocation with its "
            "free 2.00 times.");
}

TEST(FaultFigures, OfOneThatIsNotHurtAndOneThatRecovers) {
  Tenant breaks, a, b;
  breaks.fault = {Fault::Kind::kKilled, Millis(500)};
  a.ask.share = 0.4;
  const Scenario scenario = Of(FaultsQuestion(), {breaks, a, b});
  TenantOutcome broken = Uses("broken", 0.3, 50, 0);
  broken.broke_at = Millis(495);  // and the samples from 500 ms on are after it
  // a has more than it asked for before the fault, but only its share counts. b has nothing for 200 ms.
  TenantOutcome none_for_a_while = Uses("b", 0.2, 50, 0);
  for (size_t i = 71; i <= 100; ++i) {
    none_for_a_while.used_ns[i] = none_for_a_while.used_ns[70] + int64_t(i - 70) * 2'100'000;
  }
  ByName figures = Figures(scenario, {"", {broken, Uses("a", 0.5, 50, 0.4), none_for_a_while}});
  EXPECT_NEAR(*figures["a.before"], 50, 1e-6);
  EXPECT_NEAR(*figures["a.after"], 40, 1e-6);
  EXPECT_EQ(figures["a.recovery"], 0);
  EXPECT_NEAR(*figures["b.before"], 20, 1e-6);
  // The first window in which it has four fifths of its share begins 180 ms after the fault.
  EXPECT_NEAR(*figures["b.recovery"], 180, 1e-6);
  EXPECT_EQ(figures["failed"], 0);
  EXPECT_EQ(figures["lost"], 0);
  EXPECT_EQ(figures.count("broken.before"), 0u);
}

TEST(FaultFigures, OfAFaultThatLeavesLessThanAWindow) {
  Tenant breaks, a;
  breaks.fault = {Fault::Kind::kKilled, Millis(900)};
  const Scenario scenario = Of(FaultsQuestion(), {breaks, a});
  TenantOutcome broken = Uses("broken", 0.3);
  broken.broke_at = Millis(905);
  ByName figures = Figures(scenario, {"", {broken, Uses("a", 0.5)}});
  EXPECT_EQ(figures["a.recovery"], 0);
  figures = Figures(scenario, {"", {broken, Uses("a", 0.5, 90, 0.1)}});
  EXPECT_EQ(figures["a.recovery"], 90);
}

TEST(FaultFigures, OfOthersThatFailed) {
  Tenant breaks, a = WithQuota(100);
  breaks.fault = {Fault::Kind::kIllegalAddress, Millis(500)};
  const Scenario scenario = Of(FaultsQuestion(), {breaks, a});
  TenantOutcome broken = Uses("broken", 0.3), failed = Uses("a", 0.5, 50, 0);
  broken.broke_at = Millis(500);
  failed.error = "CUDA_ERROR_ILLEGAL_ADDRESS";
  failed.memory = {{Millis(400), kMiB, 0, false},         // before the fault
                   {Millis(600), kMiB, 0, false},         // fits
                   {Millis(700), 200 * kMiB, 0, false}};  // does not fit
  ByName figures = Figures(scenario, {"", {broken, failed}});
  EXPECT_EQ(figures["failed"], 1);
  EXPECT_EQ(figures["a.denied"], 1);
  EXPECT_EQ(figures["a.recovery"], 500);  // until the end
  EXPECT_EQ(figures["lost"], 1);
  // A fault that never happened says nothing about the others.
  broken.broke_at.reset();
  figures = Figures(scenario, {"", {broken, failed}});
  EXPECT_EQ(figures.at("failed"), std::nullopt);
  EXPECT_EQ(figures.at("lost"), std::nullopt);
  EXPECT_EQ(figures.count("a.recovery"), 0u);
}

TEST(FaultFigures, AreToldForWhatTheyMean) {
  Result run = {.scenario = "faults", .one_case = "one", .method = "other"};
  run.course.question = "faults";
  run.course.tenants = {{.name = "breaks"}, {.name = "a"}};
  const auto told = [&run](double recovery, double denied, double failed, double lost) {
    run.figures = {{"a.recovery", "ms", recovery, Figure::Better::kLower},
                   {"a.denied", "", denied, Figure::Better::kLower},
                   {"failed", "", failed, Figure::Better::kLower},
                   {"lost", "", lost, Figure::Better::kLower}};
    std::vector<report::Given> given(1);
    given[0].results.runs = {run};
    const report::Report made = report::ReportOf(given);
    return report::HeadlinesOf(made, made.scenarios[0])[0].sentence;
  };
  EXPECT_EQ(told(0, 0, 0, 0), "No other tenant failed, and all kept what is theirs.");
  EXPECT_EQ(told(40, 0, 0, 0),
            "No other tenant failed; who waited longest had its own again after 40.0 ms.");
  // The time until the end is none after which a tenant had its own again.
  EXPECT_EQ(told(500, 0, 1, 1),
            "1 other tenant failed; 1 other did not have what is theirs again until the end.");
  EXPECT_EQ(told(0, 5, 0, 0),
            "No other tenant failed; a tenant had 5 requests of memory within its quota refused.");
}

TEST(ScaleFigures, OfTheWorstTenantAndOfGroups) {
  Tenant a, b, c;
  a.name = "few-1";
  b.name = "many-1";
  c.name = "many-2";
  a.ask.share = 0.5;
  b.ask.share = c.ask.share = 0.25;
  b.group = c.group = 1;
  a.entry = "few";
  b.entry = c.entry = "many";
  const Scenario scenario = Of(ScaleQuestion(), {a, b, c});
  Outcome outcome = {"", {Uses("few-1", 0.4), Uses("many-1", 0.3), Uses("many-2", 0.1)}};
  for (TenantOutcome& each : outcome.tenants) each.launches = 100;
  outcome.play_cpu_ns = 600'000;
  outcome.setup_cpu_ns = 3'000'000;
  ByName figures = Figures(scenario, outcome);
  EXPECT_NEAR(*figures["few.share"], 50, 1e-6);
  EXPECT_NEAR(*figures["many.share"], 50, 1e-6);
  EXPECT_NEAR(*figures["worst_off"], 50, 1e-6);  // 12.5 % in place of 25 %
  EXPECT_NEAR(*figures["busy"], 80, 1e-6);
  EXPECT_NEAR(*figures["launch"], 2, 1e-9);
  EXPECT_NEAR(*figures["setup"], 1000, 1e-9);
  // No tenant has anything, so there is nothing to divide by.
  figures = Figures(scenario, {"", {Uses("few-1", 0), Uses("many-1", 0), Uses("many-2", 0)}});
  EXPECT_EQ(figures.at("worst_off"), std::nullopt);
  EXPECT_EQ(figures.at("launch"), std::nullopt);
}

// A single entry's own name may look like a name out of many.
TEST(ScaleFigures, AnEntryHasTheNameThatItWasGiven) {
  Tenant one, other;
  one.name = one.entry = "gpt-1b";
  other.name = other.entry = "gpt-13b";
  one.ask.share = other.ask.share = 0.5;
  other.group = 1;
  const ByName figures =
      Figures(Of(ScaleQuestion(), {one, other}), {"", {Uses("gpt-1b", 0.4), Uses("gpt-13b", 0.4)}});
  EXPECT_EQ(figures.count("gpt-1b.share"), 1u);
  EXPECT_EQ(figures.count("gpt-13b.share"), 1u);
}

TEST(ScaleFigures, OfProcessesApart) {
  Scenario scenario = Of(ScaleQuestion(), {Tenant(), Tenant(), Tenant()});
  scenario.cases[0].settings["apart"] = 1;
  Outcome outcome = {"", {Uses("a", 0), Uses("b", 0), Uses("c", 0)}};
  outcome.ready_ns = {30'000'000, 10'000'000, 20'000'000};
  ByName figures = Figures(scenario, outcome);
  EXPECT_EQ(figures["ready_p50"], 20);
  EXPECT_EQ(figures["ready_last"], 30);
  EXPECT_EQ(figures.size(), 2u);
}

}  // namespace
}  // namespace gpushare::harness
