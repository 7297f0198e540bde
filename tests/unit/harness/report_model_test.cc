// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/report/headline.h"
#include "harness/report/model.h"
#include "harness/report/words.h"
#include "report_bed.h"

namespace gpushare::harness::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReportModel, OfNoRuns) {
  const std::vector<Given> given = {GivenRuns({})};
  const Report report = ReportOf(given);
  EXPECT_TRUE(report.scenarios.empty());
  EXPECT_TRUE(report.methods.empty());
}

TEST(ReportModel, CasesAndMethodsInOneOrder) {
  const std::vector<Given> given = {
      GivenRuns({ShareRun("other", 0, 60, 50), ShareRun("gpushare", 0, 75, 74),
                 ShareRun("native", 0, 40, 40), ShareRun("gpushare", 1, 76, 71)})};
  const Report report = ReportOf(given);
  EXPECT_THAT(report.methods, ElementsAre("native", "gpushare", "other"));
  ASSERT_EQ(report.scenarios.size(), 1u);
  EXPECT_EQ(report.scenarios[0].question, "share");
  ASSERT_EQ(report.scenarios[0].cases.size(), 1u);
  const CaseReport& one = report.scenarios[0].cases[0];
  EXPECT_THAT(one.tenants, ElementsAre("a", "b"));
  ASSERT_EQ(one.parts.size(), 3u);
  const Part& ours = one.parts[1];
  EXPECT_EQ(ours.good, 2u);
  EXPECT_EQ(AskedOf(ours, "a"), 75);
  EXPECT_EQ(WindowsOf(ours, "a")->low, 71);
  EXPECT_EQ(WindowsOf(ours, "a")->high, 76);
  EXPECT_EQ(WorstCourse(ours), &given[0].results.runs[3].course);
  EXPECT_EQ(FindRow(one, "a.share")->by_method.at(1).value, 75.5);
}

TEST(ReportModel, AMethodOfTwoFilesIsTwo) {
  const std::vector<Given> given = {
      GivenRuns({ShareRun("native", 0, 40, 40), ShareRun("gpushare", 0, 75, 74)}),
      GivenRuns({ShareRun("gpushare", 0, 60, 50)})};
  const Report report = ReportOf(given);
  EXPECT_THAT(report.methods, ElementsAre("native", "gpushare (1)", "gpushare (2)"));
  EXPECT_EQ(FindRow(report.scenarios[0].cases[0], "a.share")->by_method.at(2).value, 60);
  // Each tenant has what it asked for.
  EXPECT_EQ(report.scenarios[0].cases[0].parts[2].good, 1u);
}

TEST(ReportModel, WhatIsMissingIsNoZero) {
  Result failed = WithoutFigures(ShareRun("other", 0, 0, 0));
  failed.error = "it hung";
  Result cannot = WithoutFigures(ShareRun("mute", 0, 0, 0));
  cannot.not_supported = "no share";
  const std::vector<Given> given = {
      GivenRuns({failed, failed, cannot, ShareRun("other", 2, 60, 50)})};
  const Report report = ReportOf(given);
  const CaseReport& one = report.scenarios[0].cases[0];
  ASSERT_EQ(one.parts.size(), 2u);
  EXPECT_EQ(StateOf(one.parts[0]), "2 of 3 runs failed");
  EXPECT_THAT(one.parts[0].why, ElementsAre("it hung"));
  EXPECT_EQ(MissingOf(one.parts[1]), "not supported");
  EXPECT_FALSE(WindowsOf(one.parts[1], "a").has_value());
  EXPECT_FALSE(FindRow(one, "a.share")->by_method.contains(1));
  EXPECT_EQ(AskedOf(one.parts[1], "a"), 75);  // it is known what was asked for all the same
}

TEST(ReportHeadline, SaysWhatWasAskedForAndGotAndTheWorstWindow) {
  Result failed = WithoutFigures(ShareRun("other", 0, 0, 0));
  failed.error = "it hung";
  const std::vector<Given> given = {GivenRuns({ShareRun("gpushare", 0, 74, 70), failed})};
  const Report report = ReportOf(given);
  const std::vector<Headline> told = HeadlinesOf(report, report.scenarios[0]);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].sentence,
            "In the worst window a tenant was 5.00 percentage points off what it asked for. a "
            "asked for 75.0 % and "
            "got 74.0 %, in the worst window 70.0 %.");
  EXPECT_EQ(told[1].sentence, "1 of 1 run failed: it hung.");
  EXPECT_THAT(QuestionOf(report.scenarios[0]), HasSubstr("in every window of 100ms"));
}

TEST(ReportHeadline, OfResultsThatHaveNoCourses) {
  Result run = ShareRun("native", 0, 50, 40);
  run.course = {};
  const std::vector<Given> given = {GivenRuns({run})};
  const Report report = ReportOf(given);
  EXPECT_EQ(QuestionOf(report.scenarios[0]), "");
  EXPECT_EQ(HeadlinesOf(report, report.scenarios[0])[0].sentence, "See the figures.");
}

TEST(ReportWords, MarkupIsHarmless) {
  EXPECT_EQ(Markup("<script>\"'&"), "&lt;script&gt;&quot;&#39;&amp;");
  EXPECT_EQ(Markup(std::string("a\x01\0b", 4)), "a\\x01\\x00b");
  EXPECT_EQ(Markup("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(Markup("µ"), "µ");
  EXPECT_LT(Markup(std::string(100000, 'x')).size(), 1100u);
}

TEST(ReportWords, Numbers) {
  EXPECT_EQ(Number(0.125), "0.12");
  EXPECT_EQ(Number(12.34), "12.3");
  EXPECT_EQ(Number(-1234.5), "-1234");
  EXPECT_EQ(Number(1e300), "1e+300");
  EXPECT_EQ(Number(1e300 * 1e300), "-");
  EXPECT_EQ(Interval({5, 4, 6, 0.95}), "5.00 [4.00, 6.00]");
  EXPECT_EQ(Interval({5, 4.999, 5.001, 0.95}), "5.00");
  EXPECT_EQ(IntervalIn("", {5, 4, 6, 0.95}), "5 [4, 6]");
  EXPECT_EQ(IntervalIn("", {5, 5, 5, 0.95}), "5");
  EXPECT_EQ(IntervalIn("", {4.5, 4, 5, 0.95}), "4.50 [4.00, 5.00]");
  EXPECT_EQ(IntervalIn("ms", {5, 4, 6, 0.95}), "5.00 [4.00, 6.00]");
  EXPECT_EQ(Counted({1, 1, 1, 0.95}, "tenant"), "1 tenant");
  EXPECT_EQ(Counted({2, 1, 3, 0.95}, "tenant"), "2 [1, 3] tenants");
  EXPECT_EQ(Counted({0, 0, 0, 0.95}, "tenant"), "0 tenants");
  EXPECT_EQ(Latency(1500), "1.5 ms");
}

TEST(ReportWords, ElidedKeepsBothEnds) {
  EXPECT_EQ(Elided("short", 8), "short");
  EXPECT_EQ(Elided("gpushare-preload", 9.4), "gpushare-preload");
  EXPECT_EQ(Elided("a-long-name-1", 5), "a-lo\u2026e-1");
  EXPECT_EQ(Elided("µµµµµµµµµ", 4), "µµ\u2026µµ");
  EXPECT_EQ(Elided("WWWWWWWWWW", 5), "WW\u2026WW");
}

}  // namespace
}  // namespace gpushare::harness::report
