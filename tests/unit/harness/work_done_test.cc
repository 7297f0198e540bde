// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "harness/figures.h"
#include "harness/questions/question.h"
#include "harness/report/headline.h"

namespace gpushare::harness {
namespace {

// A tenant that does `part` of a second's work in each second. Before the end of the warm-up its work comes in twos.
TenantOutcome Works(const std::string& name, double part) {
  TenantOutcome tenant;
  tenant.name = name;
  double work = 0;
  for (Nanos at{0}; at <= Seconds(2); at += kSample) {
    tenant.used_ns.push_back(at.count() / 2);
    tenant.work_ns.push_back(static_cast<int64_t>(work));
    work += (at < Seconds(1) ? 2 : 1) * part * static_cast<double>(kSample.count());
  }
  return tenant;
}

struct Asked {
  const char* question;
  const char* first;  // the keys of its tenant
};

class WorkDoneTest : public ::testing::TestWithParam<Asked> {
 protected:
  std::optional<double> Of(const Outcome& outcome, const Outcome& ungated) {
    const std::string text = std::string("question: ") + GetParam().question +
                             "\nlength: 2s\nwarm_up: 1s\nwindow: 500ms\ncases:\n  - name: one\n    "
                             "tenants:\n      - {name: a, " +
                             GetParam().first +
                             "}\n      - {name: b, share: 50%, work: {kernels: 1ms}}\n";
    const auto scenario = ParseScenario(text, "s.yaml");
    EXPECT_TRUE(scenario.ok()) << scenario.status();
    EXPECT_TRUE(scenario->question->with_ungated);
    for (const Figure& each : FiguresOf(*scenario, scenario->cases[0], outcome, {}, ungated)) {
      if (each.name != "work") continue;
      EXPECT_EQ(each.better, Figure::Better::kHigher);
      return each.value;
    }
    ADD_FAILURE() << "no such figure";
    return std::nullopt;
  }
};

TEST_P(WorkDoneTest, IsOfAllTenantsAfterTheWarmUpAndInPartsOfThatUngated) {
  // Side by side they do more work than fits into the time.
  const Outcome ungated = {"", {Works("a", 0.9), Works("b", 0.6)}};
  EXPECT_NEAR(Of({"", {Works("a", 0.5), Works("b", 0.7)}}, ungated).value(), 80, 1e-4);
  EXPECT_NEAR(Of(ungated, ungated).value(), 100, 1e-9);
}

TEST_P(WorkDoneTest, WithNothingToCompareWithThereIsNone) {
  const Outcome outcome = {"", {Works("a", 0.5), Works("b", 0.5)}};
  EXPECT_FALSE(Of(outcome, {}).has_value());
  EXPECT_FALSE(Of(outcome, {"", {Works("a", 0), Works("b", 0)}}).has_value());
  Outcome cut = outcome;
  cut.tenants[1].work_ns.resize(10);
  EXPECT_FALSE(Of(outcome, cut).has_value());
}

INSTANTIATE_TEST_SUITE_P(
    Questions, WorkDoneTest,
    ::testing::Values(Asked{"share", "share: 50%, work: {kernels: 1ms}"},
                      Asked{"latency", "mode: requests, load: 10%, work: {kernels: 1ms}"},
                      Asked{"harvest", "mode: requests, load: 10%, work: {kernels: 1ms}"},
                      Asked{"serving", "mode: batches, load: 10%, batches: {1: {kernels: 1ms}}"}));

TEST(WorkDone, TheLeastOfAllCasesIsTold) {
  Result run = {.scenario = "s", .one_case = "narrow", .method = "gpushare"};
  run.course.question = "share";
  run.figures = {{"worst_error", "pp", 0.5}, {"work", "%", 71.0, Figure::Better::kHigher}};
  Result other = run;
  other.one_case = "wide";
  other.figures[1].value = 99.0;
  std::vector<report::Given> given(1);
  given[0].results.runs = {run, other};
  const report::Report made = report::ReportOf(given);
  EXPECT_THAT(report::HeadlinesOf(made, made.scenarios[0])[0].sentence,
              ::testing::HasSubstr("Together the tenants did 71.0 % of the work that they do "
                                   "ungated (worst in narrow)."));
  // Native compared with itself says nothing.
  for (Result& each : given[0].results.runs) {
    each.method = "native";
    each.figures[1].value = 100;
  }
  const report::Report native = report::ReportOf(given);
  EXPECT_THAT(report::HeadlinesOf(native, native.scenarios[0])[0].sentence,
              ::testing::Not(::testing::HasSubstr("Together")));
}

}  // namespace
}  // namespace gpushare::harness
