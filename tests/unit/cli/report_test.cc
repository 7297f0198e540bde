// SPDX-License-Identifier: Apache-2.0
#include "cli/demo/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace gpushare::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Ten seconds in samples of 100 ms. By the device's books tenant i has the shares below; the engine's meter has one
// point more.
class ReportTest : public ::testing::Test {
 protected:
  ReportTest() {
    scenario_.length = Seconds(10);
    scenario_.leaves = Seconds(4);
    scenario_.returns = Seconds(6);
    shared_.step = Millis(100);
    shared_.tenants.resize(2);
    for (const char* name : {"online", "train-a"}) {
      TenantPlan plan;
      plan.name = name;
      plan.workload = "w";
      plan.asked = "asked";
      scenario_.tenants.push_back(plan);
    }
    scenario_.tenants[1].asked = "";
    shared_.tenants[1].stats.guarantee = Percent(50);
    double used[2] = {0, 0};
    for (int sample = 0; sample <= 100; ++sample) {
      for (size_t i = 0; i < 2; ++i) {
        shared_.tenants[i].used_ns.push_back(used[i]);
        shared_.tenants[i].metered_ns.push_back(used[i] + sample * 1e6);
      }
      shared_.busy.push_back({sample * 0.09e9, sample * 0.08e9});
      const bool away = sample >= 40 && sample < 60;
      used[0] += 0.2e8 * (away ? 2 : 1);
      used[1] += away ? 0 : 0.5e8;
    }
    alone_ = shared_;
    for (int i = 1; i <= 100; ++i) {
      alone_.tenants[0].play.requests.push_back({Nanos(0), Micros(i)});
      shared_.tenants[0].play.requests.push_back({Nanos(0), Micros(2 * i)});
    }
  }

  DemoReport Make(bool simulated) {
    return MakeReport({"Test GPU", simulated, options_, scenario_, alone_, shared_});
  }

  DemoOptions options_;
  Scenario scenario_;
  Outcome alone_, shared_;
};

TEST_F(ReportTest, PhasesLeaveOutTheTimeOfSettling) {
  const DemoReport report = Make(true);
  ASSERT_EQ(report.phases.size(), 3u);
  EXPECT_EQ(report.phases[0].from, Millis(500));
  EXPECT_EQ(report.phases[0].to, Seconds(4));
  EXPECT_EQ(report.phases[1].from, Millis(4500));
  EXPECT_EQ(report.phases[2].to, Seconds(10));
}

TEST_F(ReportTest, SharesAreByPhase) {
  const DemoReport report = Make(true);
  EXPECT_NEAR(report.tenants[0].got[0], 0.2, 1e-9);
  EXPECT_NEAR(report.tenants[0].got[1], 0.4, 1e-9);
  EXPECT_NEAR(report.tenants[0].got[2], 0.2, 1e-9);
  EXPECT_NEAR(report.tenants[1].got[1], 0.0, 1e-9);
  EXPECT_NEAR(report.tenants[1].got[2], 0.5, 1e-9);
  EXPECT_NEAR(report.tenants[1].metered[2], 0.51, 1e-9);
  EXPECT_EQ(report.tenants[0].series.size(), 100u);
  EXPECT_NEAR(report.busy, 0.9, 1e-9);
  EXPECT_NEAR(report.sms_held, 0.8, 1e-9);
}

TEST_F(ReportTest, TextShowsBothBooks) {
  const std::string text = ReportText(Make(true));
  EXPECT_THAT(text, HasSubstr("50.0 (51.0)"));
  EXPECT_THAT(text, HasSubstr("50 %"));
  EXPECT_THAT(text, HasSubstr("train-a away"));
  EXPECT_THAT(text, HasSubstr("0.099 ms"));
  EXPECT_THAT(text, HasSubstr("2.000 x"));
  EXPECT_THAT(text, HasSubstr("Device busy 90.0 %"));
}

TEST_F(ReportTest, OnARealGpuTheMeterIsAllThereIs) {
  const DemoReport report = Make(false);
  EXPECT_TRUE(std::isnan(report.tenants[0].got[0]));
  const std::string text = ReportText(report);
  EXPECT_THAT(text, HasSubstr("51.0"));
  EXPECT_THAT(text, Not(HasSubstr("(")));
  EXPECT_THAT(text, Not(HasSubstr("busy")));
  EXPECT_THAT(ReportJson(report), HasSubstr("\"busy\": null"));
}

TEST_F(ReportTest, PlotHasTheTenantsAndTheAbsence) {
  const SharePlot plot = ReportPlot(Make(true));
  ASSERT_EQ(plot.lines.size(), 2u);
  EXPECT_EQ(plot.lines[0].shares.size(), 50u) << "windows of 200 ms";
  EXPECT_NEAR(plot.lines[1].shares[0], 0.5, 1e-9);
  EXPECT_EQ(plot.lines[1].asked, 0.5);
  EXPECT_LT(plot.lines[0].asked, 0);
  ASSERT_EQ(plot.spans.size(), 1u);
  EXPECT_EQ(plot.spans[0].from_s, 4);
}

TEST_F(ReportTest, WhatWasAskedIsWhatThePolicyMadeOfIt) {
  VirtualDeviceStats& stats = shared_.tenants[1].stats;
  stats.guarantee = Share();
  stats.weight = 3;
  EXPECT_EQ(Make(true).tenants[1].asked, "weight 3");
  EXPECT_LT(Make(true).tenants[1].guarantee, 0);
  stats.priority = Priority::kLow;
  EXPECT_EQ(Make(true).tenants[1].asked, "best effort");
}

TEST_F(ReportTest, ARunThatIsTooShortHasNoShares) {
  shared_.step = Seconds(10);
  for (TenantOutcome& tenant : shared_.tenants)
    tenant.used_ns.resize(2), tenant.metered_ns.resize(2);
  shared_.busy.resize(2);
  const DemoReport report = Make(true);
  EXPECT_TRUE(std::isnan(report.tenants[0].got[0]));
  EXPECT_THAT(ReportText(report), HasSubstr("- (-)"));
}

}  // namespace
}  // namespace gpushare::cli
