// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "harness/method.h"
#include "harness/report/axis.h"
#include "harness/report/plots.h"
#include "harness/report/svg.h"
#include "harness/report/thin.h"
#include "report_bed.h"

namespace gpushare::harness::report {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ReportThin, KeepsTheExtremesOfEveryColumn) {
  std::mt19937 random(1);
  std::vector<Point> points;
  for (int i = 0; i < 100000; ++i) {
    points.push_back({i * 0.003, std::uniform_real_distribution<double>(0, 100)(random)});
  }
  points[77777].y = 500;
  points[33333].y = -500;
  const std::vector<Point> kept = Thin(points, 1);
  EXPECT_LE(kept.size(), 4u * 300);
  EXPECT_EQ(kept.front(), points.front());
  EXPECT_EQ(kept.back(), points.back());
  EXPECT_EQ(std::count(kept.begin(), kept.end(), points[77777]), 1);
  EXPECT_EQ(std::count(kept.begin(), kept.end(), points[33333]), 1);
  const auto before = [](const Point& a, const Point& b) { return a.x < b.x; };
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end(), before));
  for (int column = 0; column < 300; ++column) {
    const auto range = [column](const std::vector<Point>& of) {
      double least = 1e9, most = -1e9;
      for (const Point& point : of) {
        if (std::floor(point.x) != column) continue;
        least = std::min(least, point.y);
        most = std::max(most, point.y);
      }
      return std::pair(least, most);
    };
    ASSERT_EQ(range(kept), range(points)) << column;
  }
}

TEST(ReportThin, OfNothingAndOfFew) {
  EXPECT_TRUE(Thin({}, 1).empty());
  const std::vector<Point> few = {{0, 1}, {5, 2}, {9, 0}};
  EXPECT_EQ(Thin(few, 1), few);
}

TEST(ReportAxis, TicksAreRoundAndWithin) {
  const Axis axis = Axis::Linear(0, 97, 100, 300);
  EXPECT_EQ(axis.At(0), 100);
  EXPECT_EQ(axis.At(100), 300);
  EXPECT_EQ(axis.At(1e9), 300);
  EXPECT_EQ(axis.At(NAN), 100);
  for (const Axis::Tick& tick : axis.ticks()) EXPECT_EQ(std::fmod(tick.value, 20), 0);
  EXPECT_EQ(Axis::Within(1, 3, 0, 200).At(3), 200);
}

TEST(ReportAxis, LabelsOfLongNumbersAreShort) {
  const auto labels = [](double most) {
    const Axis axis = Axis::Linear(0, most, 0, 100);
    std::vector<std::string> texts;
    for (const Axis::Tick& tick : axis.ticks()) texts.push_back(tick.label);
    return texts;
  };
  EXPECT_THAT(labels(1'265'813), ElementsAre("0", "500k", "1M", "1.5M"));
  EXPECT_THAT(labels(4100), ElementsAre("0", "1000", "2000", "3000", "4000", "5000"));
  EXPECT_THAT(labels(3e9), ElementsAre("0", "500M", "1G", "1.5G", "2G", "2.5G", "3G"));
}

TEST(ReportAxis, LabelsDoNotRunIntoEachOther) {
  const Axis axis = Axis::Doubling({1, 10, 60, 100, 1000, 10'000}, 40, 240);
  std::vector<std::string> labels;
  for (const Axis::Tick& tick : axis.ticks()) labels.push_back(tick.label);
  EXPECT_THAT(labels, ElementsAre("10k", "1000", "100", "", "10", "1"));
}

TEST(ReportAxis, OfStrangeValues) {
  for (const double least : {0.0, -1e308, 1e308, 5.0, 1e-320, double{INFINITY}, double{NAN}}) {
    for (const double most : {0.0, -1e308, 1e308, 5.0, 1e-320, double{INFINITY}, double{NAN}}) {
      for (const Axis& axis : {Axis::Linear(least, most, 0, 100), Axis::Within(least, most, 0, 100),
                               Axis::Logarithmic(least, most, 0, 100), Axis::Nines(most, 0, 100),
                               Axis::Doubling({least, most}, 0, 100)}) {
        EXPECT_LE(axis.ticks().size(), 13u) << least << " " << most;
        for (const double value : {least, most, 0.0, 7.0}) {
          EXPECT_GE(axis.At(value), 0) << least << " " << most;
          EXPECT_LE(axis.At(value), 100) << least << " " << most;
        }
      }
    }
  }
}

TEST(ReportAxis, Latencies) {
  const Axis axis = Axis::Logarithmic(150, 1800, 0, 100);
  ASSERT_EQ(axis.ticks().size(), 5u);  // 100, 200, 500, 1000, 2000
  EXPECT_EQ(axis.ticks().front().label, "100 µs");
  EXPECT_EQ(axis.ticks().back().label, "2 ms");
  EXPECT_EQ(axis.At(2000), 100);
  const Axis nines = Axis::Nines(0.999, 0, 300);
  EXPECT_NEAR(nines.At(0.99), 200, 1e-6);
}

TEST(ReportSvg, NamesOfLinesThatEndTogetherAreApart) {
  Svg svg(300, "");
  const Field field(3);
  field.DrawNames(&svg, {{100, "a", 0}, {100, "b", 1}, {101, "c", 2}, {field.bottom(), "d", 3}});
  const std::string drawn = std::move(svg).Take();
  EXPECT_THAT(drawn, HasSubstr("y=\"104\">a<"));
  EXPECT_THAT(drawn, HasSubstr("y=\"117\">b<"));
  EXPECT_THAT(drawn, HasSubstr("y=\"130\">c<"));
}

TEST(ReportSvg, NoTwoOfTwentyStylesAreTheSame) {
  std::set<std::string> styles = {StyleOf(kOfNobody)}, colours = {ColourOf(kOfNobody)};
  for (size_t i = 0; i < 24; ++i) styles.insert(StyleOf(i));
  EXPECT_EQ(styles.size(), 25u);
  // Each of the project's own methods has its own colour, dash and mark.
  std::set<std::string> dashes, marks;
  const auto dash = [](size_t index) {
    const std::string style = StyleOf(index);
    return style.substr(style.find(' '));
  };
  dashes.insert(dash(kOfNobody));
  for (size_t i = 0; i < MethodNames().size(); ++i) {
    colours.insert(ColourOf(i));
    dashes.insert(dash(i));
    Svg svg(10, "a mark");
    svg.Mark(0, 0, i, "", "");
    marks.insert(std::move(svg).Take());
  }
  EXPECT_EQ(colours.size(), MethodNames().size() + 1);
  EXPECT_EQ(dashes.size(), MethodNames().size() + 1);
  EXPECT_EQ(marks.size(), MethodNames().size());
}

TEST(ReportPlots, ASingleWindowIsNoCourse) {
  Result run = ShareRun("gpushare", 0, 74, 70);
  const auto plots = [&run] {
    const std::vector<Given> given = {GivenRuns({run})};
    const Report report = ReportOf(given);
    return SharePlots(report, report.scenarios[0].cases[0]).size();
  };
  ASSERT_EQ(plots(), 1u);
  for (TenantCourse& tenant : run.course.tenants) {
    tenant.low.resize(1);
    tenant.high.resize(1);
  }
  EXPECT_EQ(plots(), 0u);
}

TEST(ReportPlots, WhatHasNoFigureSaysWhy) {
  Result failed = WithoutFigures(ShareRun("other", 0, 0, 0));
  failed.error = "it hung";
  const std::vector<Given> given = {GivenRuns({ShareRun("gpushare", 0, 74, 70), failed})};
  const Report report = ReportOf(given);
  const CaseReport& one = report.scenarios[0].cases[0];
  const std::vector<Plot> bars = BarPlots(report, one);
  ASSERT_EQ(bars.size(), 2u);  // worst_error and busy
  EXPECT_THAT(bars[0].svg, HasSubstr("1 of 1 run failed"));
  EXPECT_THAT(bars[0].svg, Not(HasSubstr(">0.00<")));
  const std::vector<Plot> asked = AskedPlots(report, one);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_THAT(asked[0].svg, HasSubstr("1 of 1 run failed"));
  EXPECT_EQ(SharePlots(report, one).size(), 1u);  // of gpushare only
  EXPECT_TRUE(LatencyPlots(report, one).empty());
}

TEST(ReportPlots, ManyTenantsAreSeveralPlotsOnOneScale) {
  Result run = ShareRun("gpushare", 0, 75, 75);
  run.course.tenants.clear();
  for (int i = 0; i < 20; ++i) {
    run.course.tenants.push_back({.name = "t" + std::to_string(i),
                                  .ask = {.share = 0.05},
                                  .low = {5, 5},
                                  .high = {6, 6},
                                  .least = 5,
                                  .most = 6});
    run.figures.push_back({"t" + std::to_string(i) + ".share", "%", 5.5});
  }
  const std::vector<Given> given = {GivenRuns({run})};
  const Report report = ReportOf(given);
  const CaseReport& one = report.scenarios[0].cases[0];
  const std::vector<Plot> asked = AskedPlots(report, one);
  ASSERT_EQ(asked.size(), 3u);  // 8, 8 and 4 tenants
  EXPECT_THAT(asked[0].svg, HasSubstr(">t7<"));
  EXPECT_THAT(asked[1].svg, HasSubstr(">t8<"));
  EXPECT_THAT(asked[2].svg, HasSubstr(">t19<"));
  EXPECT_THAT(asked[2].svg, HasSubstr(">6%<"));
  EXPECT_THAT(asked[2].svg, Not(HasSubstr(">100%<")));
  EXPECT_THAT(SharePlots(report, one)[0].svg, HasSubstr(">6<"));
}

TEST(ReportPlots, SharesAreAskedAgainstGotOnlyWhereTheyAreFigures) {
  Result run = ShareRun("gpushare", 0, 75, 75);
  run.figures = {{"a.after", "%", 20.0, Figure::Better::kHigher}};
  const std::vector<Given> given = {GivenRuns({run})};
  const Report report = ReportOf(given);
  EXPECT_TRUE(AskedPlots(report, report.scenarios[0].cases[0]).empty());
}

TEST(ReportPlots, ACountIsWholeAndHasNoUnit) {
  Result run = ShareRun("gpushare", 0, 75, 75);
  run.figures = {{"hurt", "", 19.0, Figure::Better::kLower}};
  const std::vector<Given> given = {GivenRuns({run})};
  const Report report = ReportOf(given);
  const std::vector<Plot> bars = BarPlots(report, report.scenarios[0].cases[0]);
  ASSERT_EQ(bars.size(), 1u);
  EXPECT_THAT(bars[0].caption, EndsWith("refused (less is better)"));
  EXPECT_THAT(bars[0].svg, HasSubstr(">19<"));
}

TEST(ReportPlots, OverheadIsAgainstNative) {
  Result native = ShareRun("native", 0, 40, 40);
  native.figures[3].value = 100;
  const std::vector<Given> given = {GivenRuns({native, ShareRun("gpushare", 0, 75, 75)})};
  const Report report = ReportOf(given);
  const std::vector<Plot> bars = BarPlots(report, report.scenarios[0].cases[0]);
  ASSERT_EQ(bars.size(), 3u);
  EXPECT_THAT(bars[2].svg, HasSubstr(">10.0<"));
  EXPECT_THAT(bars[2].svg, HasSubstr("what is compared with"));
}

// The method always had the same value; native, with which it is compared, did not.
TEST(ReportPlots, OverheadIsAsUncertainAsNativeIs) {
  std::vector<Result> runs;
  for (const int i : {0, 1, 2}) {
    Result native = ShareRun("native", i, 40, 40);
    native.figures[3].value = 95 + 5 * i;
    runs.push_back(native);
    runs.push_back(ShareRun("gpushare", i, 75, 75));
  }
  const std::vector<Given> given = {GivenRuns(runs)};
  const Report report = ReportOf(given);
  const std::vector<Plot> bars = BarPlots(report, report.scenarios[0].cases[0]);
  ASSERT_EQ(bars.size(), 3u);
  EXPECT_THAT(bars[2].svg, HasSubstr(">10.0<"));
  EXPECT_THAT(bars[2].svg, HasSubstr("whisker"));
  EXPECT_THAT(bars[2].caption, HasSubstr("both intervals"));
}

TEST(ReportPlots, ScaleNeedsThreeNumbersOfTenants) {
  const auto with_tenants = [](size_t tenants) {
    Result run = ShareRun("gpushare", 0, 75, 75);
    run.one_case = "of-" + std::to_string(tenants);
    run.course.tenants.clear();
    for (size_t i = 0; i < tenants; ++i)
      run.course.tenants.push_back({.name = "t" + std::to_string(i)});
    return run;
  };
  std::vector<Given> given = {GivenRuns({with_tenants(2), with_tenants(4)})};
  Report report = ReportOf(given);
  EXPECT_TRUE(ScalePlots(report, report.scenarios[0]).empty());
  given = {GivenRuns({with_tenants(2), with_tenants(4), with_tenants(16)})};
  report = ReportOf(given);
  const std::vector<Plot> plots = ScalePlots(report, report.scenarios[0]);
  ASSERT_FALSE(plots.empty());
  EXPECT_THAT(plots[0].svg, HasSubstr(">16<"));
}

TEST(ReportPlots, ScaleIsOfTheCasesThatHaveTheFigure) {
  // Tenants in one program, and processes apart: of each number there is a case of either.
  std::vector<Result> runs;
  for (const size_t number : {1u, 50u, 500u}) {
    for (const char* const figure : {"launch", "ready_last"}) {
      Result& run = runs.emplace_back();
      run = {.scenario = "scale", .method = "gpushare"};
      run.one_case = absl::StrCat(figure, "-", number);
      run.course.question = "scale";
      run.course.unnamed = number;
      run.figures = {{figure, "us", static_cast<double>(number), Figure::Better::kLower}};
    }
  }
  const std::vector<Given> given = {GivenRuns(runs)};
  const Report report = ReportOf(given);
  const std::vector<Plot> plots = ScalePlots(report, report.scenarios[0]);
  ASSERT_EQ(plots.size(), 2u);
  EXPECT_THAT(plots[0].caption, HasSubstr("processor time of a launch by the number of tenants"));
  EXPECT_THAT(plots[1].caption, HasSubstr("until all processes can launch"));
}

TEST(ReportPlots, ARunOfManyWindowsIsDrawnWithWhatAPlotCanShow) {
  Result run = ShareRun("gpushare", 0, 75, 75);
  for (TenantCourse& tenant : run.course.tenants) {
    tenant.low.assign(100000, 50);
    tenant.high.assign(100000, 60);
    tenant.high[50000] = 90;
  }
  const std::vector<Given> given = {GivenRuns({run})};
  const Report report = ReportOf(given);
  const std::vector<Plot> plots = SharePlots(report, report.scenarios[0].cases[0]);
  ASSERT_EQ(plots.size(), 1u);
  EXPECT_LT(plots[0].svg.size(), 50000u);
}

}  // namespace
}  // namespace gpushare::harness::report
