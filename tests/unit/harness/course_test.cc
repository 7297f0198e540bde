// SPDX-License-Identifier: Apache-2.0
#include "harness/course.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "harness/questions/question.h"
#include "harness/run.h"

namespace gpushare::harness {
namespace {

Scenario CourseScenario(const Question& question, Nanos length) {
  Scenario scenario;
  scenario.question = &question;
  scenario.length = length;
  scenario.warm_up = Seconds(1);
  scenario.window = Seconds(1);
  Tenant a, b;
  a.name = "a";
  a.ask.share = 0.75;
  b.name = "b";
  scenario.cases.push_back({"case", "", {a, b}});
  return scenario;
}

// Two tenants. a uses `part` of each sample, except for one sample in which it uses nothing.
Outcome CourseOutcome(Nanos length, double part, size_t without) {
  Outcome outcome;
  outcome.tenants.resize(2);
  outcome.tenants[0].name = "a";
  outcome.tenants[1].name = "b";
  double a = 0, b = 0;
  for (size_t i = 0; i <= static_cast<size_t>(length / kSample); ++i) {
    outcome.tenants[0].used_ns.push_back(static_cast<int64_t>(a));
    outcome.tenants[1].used_ns.push_back(static_cast<int64_t>(b));
    a += i == without ? 0 : part * static_cast<double>(kSample.count());
    b += 0.25 * static_cast<double>(kSample.count());
  }
  return outcome;
}

TEST(Course, HasEveryWindowOfAShortRun) {
  const Scenario scenario = CourseScenario(CapQuestion(), Seconds(4));
  const Course course =
      CourseOf(scenario, scenario.cases[0], CourseOutcome(Seconds(4), 0.5, SIZE_MAX), {});
  EXPECT_EQ(course.question, "cap");
  EXPECT_EQ(course.step, kSample);
  ASSERT_EQ(course.tenants.size(), 2u);
  EXPECT_EQ(course.tenants[0].low.size(), 201u);  // begin at 1 s, 1.01 s, ..., 3 s
  EXPECT_EQ(course.tenants[0].low, course.tenants[0].high);
  EXPECT_EQ(course.tenants[0].low.front(), 50);
  EXPECT_EQ(course.tenants[0].ask.share, 0.75);
  // Relative to what both used.
  const Scenario shares = CourseScenario(ShareQuestion(), Seconds(4));
  const Course of_used =
      CourseOf(shares, shares.cases[0], CourseOutcome(Seconds(4), 0.5, SIZE_MAX), {});
  EXPECT_TRUE(of_used.of_used);
  EXPECT_DOUBLE_EQ(of_used.tenants[0].low.front(), 66.67);
}

TEST(Course, OfALongRunIsBoundedAndKeepsTheWorstWindow) {
  const Scenario scenario = CourseScenario(CapQuestion(), Seconds(600));
  const Course course =
      CourseOf(scenario, scenario.cases[0], CourseOutcome(Seconds(600), 0.5, 40000), {});
  const TenantCourse& a = course.tenants[0];
  EXPECT_LE(a.low.size(), kMostCourseSteps);
  EXPECT_GT(a.low.size(), kMostCourseSteps / 2);
  EXPECT_EQ(*std::min_element(a.low.begin(), a.low.end()), 49.5);
  EXPECT_EQ(*std::max_element(a.high.begin(), a.high.end()), 50);
}

TEST(Course, SaysWhichWindowsCount) {
  // b serves requests: in the first second after the warm-up it always has one, and then none.
  Scenario scenario = CourseScenario(ShareQuestion(), Seconds(4));
  scenario.cases[0].tenants[1].mode = player::PlayMode::kOpenLoop;
  Outcome outcome = CourseOutcome(Seconds(4), 0.75, SIZE_MAX);
  outcome.tenants[1].requests.push_back({Millis(500), Seconds(2)});
  for (size_t i = 251; i <= 400; ++i)
    outcome.tenants[1].used_ns[i] = outcome.tenants[1].used_ns[250];
  const Course course = CourseOf(scenario, scenario.cases[0], outcome, {});
  const TenantCourse& a = course.tenants[0];
  const TenantCourse& b = course.tenants[1];
  EXPECT_EQ(a.high.back(), 100);  // this window is drawn
  EXPECT_EQ(a.least, 75);
  EXPECT_EQ(a.most, 75);  // this is not an error, since b had no work
  EXPECT_EQ(b.low.back(), 0);
  EXPECT_EQ(b.least, 25);
  EXPECT_EQ(b.most, 25);
  // A tenant may be above its cap with or without work, but below it only with work.
  scenario.question = &CapQuestion();
  const Course cap = CourseOf(scenario, scenario.cases[0], outcome, {});
  EXPECT_EQ(cap.tenants[1].least, 25);
  EXPECT_EQ(cap.tenants[1].most, 25);
  scenario.cases[0].tenants[1].mode = player::PlayMode::kBacklog;
  EXPECT_EQ(CourseOf(scenario, scenario.cases[0], outcome, {}).tenants[1].least, 0);
}

TEST(Course, OfLatenciesHasAsManyNinesAsThereAreRequests) {
  const Scenario scenario = CourseScenario(LatencyQuestion(), Seconds(4));
  Outcome outcome = CourseOutcome(Seconds(4), 0.5, SIZE_MAX);
  outcome.tenants[0].requests.push_back({Millis(500), Seconds(9)});  // in the warm-up
  for (int i = 1; i <= 1000; ++i) {
    outcome.tenants[0].requests.push_back({Seconds(1), Micros(i)});
  }
  const Course course = CourseOf(scenario, scenario.cases[0], outcome, {});
  const TenantCourse& a = course.tenants[0];
  EXPECT_EQ(a.requests, 1000u);
  ASSERT_EQ(a.latency_us.size(), 32u);  // three nines and the maximum
  EXPECT_EQ(a.latency_us[0], 1);
  EXPECT_EQ(a.latency_us[10], 900);
  EXPECT_EQ(a.latency_us[20], 990);
  EXPECT_EQ(a.latency_us[30], 999);
  EXPECT_EQ(a.latency_us[31], 1000);
  EXPECT_TRUE(a.alone_us.empty());
  EXPECT_TRUE(course.tenants[1].latency_us.empty());
}

TEST(Course, OfARunThatEndedBeforeTheFirstWindow) {
  const Scenario scenario = CourseScenario(CapQuestion(), Seconds(4));
  const Course course =
      CourseOf(scenario, scenario.cases[0], CourseOutcome(Millis(1500), 0.5, SIZE_MAX), {});
  EXPECT_TRUE(course.tenants[0].low.empty());
  EXPECT_EQ(course.tenants[0].name, "a");
}

TEST(Course, OfMoreTenantsThanAreNamedTellsHowMany) {
  Scenario scenario;
  scenario.question = &ScaleQuestion();
  Case one;
  one.tenants.resize(kMostTenants + 1);
  EXPECT_EQ(CourseOf(scenario, one).unnamed, kMostTenants + 1);
  EXPECT_TRUE(CourseOf(scenario, one).tenants.empty());
  one.tenants.resize(kMostTenants);
  EXPECT_EQ(CourseOf(scenario, one).unnamed, 0u);
  EXPECT_EQ(CourseOf(scenario, one).tenants.size(), kMostTenants);
}

}  // namespace
}  // namespace gpushare::harness
