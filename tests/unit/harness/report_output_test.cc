// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/report/csv.h"
#include "harness/report/markdown.h"
#include "harness/report/page.h"
#include "harness/report/words.h"
#include "report_bed.h"

namespace gpushare::harness::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHostile[] = "</title><script>alert(\"1\")</script>' onload=x \x01\xff|`*";

Given Hostile() {
  Result run = ShareRun(kHostile, 0, 74, 70);
  run.scenario = run.one_case = kHostile;
  for (TenantCourse& tenant : run.course.tenants) tenant.name = kHostile;
  for (Figure& figure : run.figures) figure.name = figure.unit = kHostile;
  Result failed = WithoutFigures(run);
  failed.method = "=cmd|' /C calc'!A0";
  failed.error = kHostile;
  Given given = GivenRuns({run, failed}, kHostile);
  Circumstances& in = given.results.circumstances;
  in.gpu = in.machine = in.begun = in.driver = in.commit = in.version = kHostile;
  return given;
}

TEST(ReportPage, NothingInAFileIsMarkup) {
  const std::vector<Given> given = {Hostile()};
  const std::string page = PageOf(ReportOf(given));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("alert(\"1\")")));
  EXPECT_EQ(page.find('\x01'), std::string::npos);
  EXPECT_EQ(page.find('\xff'), std::string::npos);
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;"));
}

TEST(ReportPage, NeedsNothingElse) {
  const std::vector<Given> given = {GivenRuns({ShareRun("gpushare", 0, 74, 70)})};
  const std::string page = PageOf(ReportOf(given));
  for (const char* what : {"http://", "https://", "src=", "url(", "@import", "<link", "<script"}) {
    EXPECT_THAT(page, Not(HasSubstr(what)));
  }
  for (const char* what :
       {"H200", "580.1", "a processor", "2026-01-01T00:00:00Z", "abcdef", "<dd>7</dd>", "0.1.0",
        "prefers-color-scheme: dark", "width=device-width"}) {
    EXPECT_THAT(page, HasSubstr(what));
  }
}

TEST(ReportPage, OfNothing) {
  const std::vector<Given> given = {GivenRuns({})};
  EXPECT_THAT(PageOf(ReportOf(given)), HasSubstr("There are no runs"));
  EXPECT_THAT(MarkdownOf(ReportOf(given)), HasSubstr("r.jsonl"));
  EXPECT_THAT(MarkdownOf(ReportOf(given)), HasSubstr("There are no runs"));
  const std::string csv = CsvOf(ReportOf(given));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1);
}

TEST(ReportMarkdown, SaysHowToReadIt) {
  std::vector<Given> given = {GivenRuns({ShareRun("gpushare", 0, 74, 70)})};
  given[0].results.circumstances.gpu = "simulated as h100.yaml";
  given[0].results.circumstances.driver = "";
  const std::string text = MarkdownOf(ReportOf(given));
  EXPECT_THAT(text, HasSubstr("the interval in which it lies in brackets"));
  EXPECT_THAT(text, HasSubstr("| the simulated GPU's |"));
  EXPECT_THAT(PageOf(ReportOf(given)), HasSubstr(std::string(kHowToRead)));
  given[0].results.circumstances.gpu = "H200";
  EXPECT_THAT(MarkdownOf(ReportOf(given)), HasSubstr("| not recorded |"));
}

TEST(ReportMarkdown, NothingInAFileIsMarkup) {
  const std::vector<Given> given = {Hostile()};
  const std::string text = MarkdownOf(ReportOf(given));
  EXPECT_THAT(text, Not(HasSubstr("<")));
  EXPECT_THAT(text, HasSubstr("\\|\\`\\*"));
  EXPECT_EQ(text.find('\x01'), std::string::npos);
}

TEST(ReportMarkdown, HasARowForEachFigure) {
  Result cannot = WithoutFigures(ShareRun("mute", 0, 0, 0));
  cannot.not_supported = "no share";
  const std::vector<Given> given = {GivenRuns({ShareRun("gpushare", 0, 74, 70), cannot})};
  const std::string text = MarkdownOf(ReportOf(given));
  EXPECT_THAT(text, HasSubstr("\n| figure | unit | gpushare | mute |\n|---|---|---:|---:|\n"
                              "| a: share of the device | % | 74.0 | not supported |\n"));
  EXPECT_THAT(text, HasSubstr("- **mute**: Not supported in 1 of 1 case: no share.\n"));
}

TEST(ReportCsv, ALineForEachFigureAndForWhatHasNone) {
  Result failed = WithoutFigures(ShareRun("other", 1, 0, 0));
  failed.error = "it \"hung\", at last";
  const std::vector<Given> given = {GivenRuns({ShareRun("gpushare", 0, 74.125, 70), failed})};
  const std::string csv = CsvOf(ReportOf(given));
  const std::string from =
      "r.jsonl,2026-01-01T00:00:00Z,H200,580.1,a processor,0.1.0,abcdef,7,share,two,";
  EXPECT_THAT(csv, HasSubstr("\r\n" + from + "gpushare,0,good,a.share,%,74.125,,\r\n"));
  EXPECT_THAT(csv, HasSubstr("\r\n" + from + "gpushare,0,good,worst_error,pp,5,lower,\r\n"));
  EXPECT_THAT(csv,
              HasSubstr("\r\n" + from + "other,1,failed,,,,,\"it \"\"hung\"\", at last\"\r\n"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 4 + 1);
}

TEST(ReportOutput, OfAFigureWithoutSamplesThereIsNoValue) {
  Result run = ShareRun("gpushare", 0, 74, 70);
  run.figures[2].value = std::nullopt;
  const std::vector<Given> given = {GivenRuns({run})};
  EXPECT_THAT(CsvOf(ReportOf(given)), HasSubstr(",good,worst_error,pp,,lower,\r\n"));
  EXPECT_THAT(MarkdownOf(ReportOf(given)), HasSubstr(" | pp | no figure |\n"));
}

TEST(ReportCsv, NoFormulas) {
  const std::vector<Given> given = {Hostile()};
  EXPECT_THAT(CsvOf(ReportOf(given)), HasSubstr(",'=cmd|"));
}

}  // namespace
}  // namespace gpushare::harness::report
