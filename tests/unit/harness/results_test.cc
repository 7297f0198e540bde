// SPDX-License-Identifier: Apache-2.0
#include "harness/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace gpushare::harness {
namespace {

using ::testing::HasSubstr;

const Circumstances kHere = {"0.1.0", "simulated", "a processor", "2026-01-01T00:00:00Z"};

TEST(Results, RoundTrip) {
  Result run = {.scenario = "share", .one_case = "two", .method = "native", .repetition = 2};
  run.figures = {{"a.share", "%", 75.25, Figure::Better::kNeither},
                 {"worst_error", "pp", 0.5, Figure::Better::kLower},
                 {"busy", "%", 99, Figure::Better::kHigher}};
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
  EXPECT_EQ(read->runs[0].repetition, 2);
  ASSERT_EQ(read->runs[0].figures.size(), 3u);
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

}  // namespace
}  // namespace gpushare::harness
