// SPDX-License-Identifier: Apache-2.0
#include "harness/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace gpushare::harness {
namespace {

using ::testing::HasSubstr;

const Circumstances kHere = {
    "0.1.0", "simulated",   "a processor", "2026-01-01T00:00:00Z", "580.1", "abcdef",
    7,       "SM 1980 MHz", "h200.yaml"};

TEST(Results, RoundTrip) {
  Result run = {.scenario = "share", .one_case = "two", .method = "native", .repetition = 2};
  run.sm_mhz = 1980;
  run.length = Seconds(4);
  run.warm_up = Seconds(1);
  run.course = {
      .question = "latency", .window = Millis(100), .begins = Seconds(1), .step = Millis(20)};
  run.course.tenants.push_back({.name = "a",
                                .ask = {.share = 0.75},
                                .low = {75.25, 1},
                                .high = {75.25, 1},
                                .least = 1.5,
                                .most = 75.25});
  run.course.tenants.push_back({.name = "b",
                                .ask = {.cap = 0.5, .high_priority = true},
                                .low = {1, 2},
                                .high = {2, 3},
                                .requests = 7,
                                .latency_us = {10, 12.5, 99},
                                .alone_us = {5, 6}});
  run.figures = {{"a.share", "%", 75.25, Figure::Better::kNeither},
                 {"worst_error", "pp", 0.5, Figure::Better::kLower},
                 {"busy", "%", 99, Figure::Better::kHigher},
                 {"p50", "us", std::nullopt, Figure::Better::kLower, true}};
  run.course.unnamed = 100;
  Result failed = run;
  failed.figures.clear();
  failed.error = "it \"hung\"\n";
  Result cannot = failed;
  cannot.error.clear();
  cannot.not_supported = "no share";
  const std::string text =
      FormatCircumstances(kHere) + FormatResult(run) + FormatResult(failed) + FormatResult(cannot);
  const auto read = ParseResults(text, "r.jsonl");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->circumstances, kHere);
  ASSERT_EQ(read->runs.size(), 3u);
  EXPECT_EQ(read->runs[0].sm_mhz, 1980);
  EXPECT_EQ(read->runs[0].repetition, 2);
  EXPECT_EQ(read->runs[0].length, Seconds(4));
  EXPECT_EQ(read->runs[0].warm_up, Seconds(1));
  EXPECT_EQ(read->runs[0].course, run.course);
  ASSERT_EQ(read->runs[0].figures.size(), 4u);
  EXPECT_FALSE(read->runs[0].figures[3].value.has_value());
  EXPECT_TRUE(read->runs[0].figures[3].by_host);
  EXPECT_FALSE(read->runs[0].figures[2].by_host);
  EXPECT_EQ(read->runs[0].figures[0].value, 75.25);
  EXPECT_EQ(read->runs[0].figures[1].better, Figure::Better::kLower);
  EXPECT_EQ(read->runs[1].error, "it \"hung\"\n");
  EXPECT_EQ(read->runs[2].not_supported, "no share");
}

TEST(Results, ALineThatWasNotFinishedIsLeftOut) {
  const std::string text =
      FormatCircumstances(kHere) + FormatResult({.scenario = "share"}) + "{\"scenario\":\"sha";
  const auto read = ParseResults(text, "r.jsonl");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->runs.size(), 1u);
  EXPECT_TRUE(read->cut);
  const auto whole = ParseResults(FormatCircumstances(kHere), "r.jsonl");
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_FALSE(whole->cut);
}

TEST(Results, SaysWhereWhatIsWrongStands) {
  const auto refused = [](const std::string& text) {
    const auto read = ParseResults(text, "r.jsonl");
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << text;
    return std::string(read.status().message());
  };
  EXPECT_THAT(refused(""), HasSubstr("no results"));
  EXPECT_THAT(refused("{\"gpushare_bench\":2}\n"), HasSubstr("r.jsonl:1: results of version 2"));
  EXPECT_THAT(refused("[]\n"), HasSubstr("r.jsonl:1: "));
  EXPECT_THAT(refused(FormatCircumstances(kHere) + "nonsense\n"), HasSubstr("r.jsonl:2: "));
  EXPECT_THAT(refused(FormatCircumstances(kHere) + "{\"scenario\":5}\n"), HasSubstr("r.jsonl:2: "));
}

TEST(Results, SaysSoInWordsForPeople) {
  const auto refused = [](const std::string& text) {
    return std::string(ParseResults(text, "r.jsonl").status().message());
  };
  const std::string here = FormatCircumstances(kHere);
  EXPECT_THAT(refused("{\"runs\":1}\n"),
              HasSubstr("r.jsonl:1: it is not what `gpushare bench run --out` writes"));
  EXPECT_THAT(refused(here + "{\"scenario\": NaN}\n"), HasSubstr("the line is no JSON"));
  EXPECT_THAT(refused(here + "{\"scenario\":\"s\"}\n"), HasSubstr("key 'case' not found"));
  // The library would turn such a number into any count.
  EXPECT_THAT(
      refused(here + "{\"scenario\":\"s\",\"case\":\"c\",\"method\":\"m\",\"repetition\":4e56}\n"),
      HasSubstr("a whole number is wanted"));
  EXPECT_THAT(refused("{\"gpushare_bench\":1e300}\n"), HasSubstr("a whole number is wanted"));
  // `cat` of two files gives such a file.
  EXPECT_THAT(refused(here + FormatResult({.scenario = "share"}) + here),
              HasSubstr("r.jsonl:3: other results begin here"));
  for (const std::string& text : {here + "{\"scenario\":\"s\"}\n", here + "{\"scenario\":5}\n"}) {
    EXPECT_EQ(refused(text).find("json.exception"), std::string::npos) << refused(text);
  }
}

TEST(Results, RefusesACourseThatIsMoreThanACourseMayBe) {
  Result run = {.scenario = "share", .one_case = "two", .method = "native"};
  run.course = {.question = "share", .window = Millis(100)};
  const auto status = [&](const TenantCourse& tenant) {
    run.course.tenants = {tenant};
    return ParseResults(FormatCircumstances(kHere) + FormatResult(run), "r.jsonl").status();
  };
  EXPECT_TRUE(status({.low = {1}, .high = {2}}).ok());
  EXPECT_THAT(std::string(status({.low = {1}, .high = {1, 2}}).message()),
              HasSubstr("r.jsonl:2: 'low' and 'high'"));
  const std::vector<double> many(kMostCourseSteps + 1, 50.0);
  EXPECT_THAT(std::string(status({.low = many, .high = many}).message()),
              HasSubstr("longer than it may be"));
  EXPECT_THAT(std::string(status({.latency_us = many}).message()),
              HasSubstr("longer than it may be"));
  run.course.window = kLongestRun + kLongestRun;
  EXPECT_THAT(std::string(status({}).message()), HasSubstr("out of range"));
}

TEST(Results, OfBeforeThereWereCourses) {
  const auto read = ParseResults(
      "{\"gpushare_bench\":1,\"gpushare\":\"0.1.0\",\"gpu\":\"simulated\",\"machine\":\"m\","
      "\"begun\":\"b\"}\n"
      "{\"scenario\":\"s\",\"case\":\"c\",\"method\":\"m\",\"repetition\":0}\n",
      "r.jsonl");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->runs[0].course, Course());
}

}  // namespace
}  // namespace gpushare::harness
