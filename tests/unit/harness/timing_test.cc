// SPDX-License-Identifier: Apache-2.0
#include "harness/timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gpushare::harness {
namespace {

using ::testing::HasSubstr;

// The tenant of a scenario with these keys.
absl::StatusOr<Tenant> TenantWith(const std::string& keys) {
  const auto scenario =
      ParseScenario(absl::StrCat("question: cap\nlength: 2s\ncases:\n- name: one\n  tenants:\n"
                                 "  - {name: a, cap: 50%, work: {kernels: 1ms}, ",
                                 keys, "}\n"),
                    "s.yaml");
  if (!scenario.ok()) return scenario.status();
  return scenario->cases[0].tenants[0];
}

std::string WhyNot(const std::string& keys) {
  return std::string(TenantWith(keys).status().message());
}

TEST(Timing, RequestsComeByLoadOrByRate) {
  const auto by_load = TenantWith("mode: requests, load: 20%");
  ASSERT_TRUE(by_load.ok()) << by_load.status();
  EXPECT_DOUBLE_EQ(RequestsPerSecond(*by_load), 200);
  const auto by_rate = TenantWith("mode: requests, rate: 12.5/s");
  ASSERT_TRUE(by_rate.ok()) << by_rate.status();
  EXPECT_DOUBLE_EQ(RequestsPerSecond(*by_rate), 12.5);
  EXPECT_THAT(WhyNot("mode: requests, rate: 1/s, load: 1%"), HasSubstr("either 'load' or 'rate'"));
  EXPECT_THAT(WhyNot("rate: 1/s"), HasSubstr("are of the modes 'requests' and 'batches'"));
  EXPECT_THAT(WhyNot("arrivals: uniform"), HasSubstr("'arrivals' and 'goal' are of the modes"));
  for (const char* rate : {"10", "0/s", "2000000/s", "/s", "1/s/s", "nan/s", "10/m"}) {
    EXPECT_THAT(WhyNot(absl::StrCat("mode: requests, rate: ", rate)),
                HasSubstr("s.yaml:6: cases[0].tenants[0].rate: "))
        << rate;
  }
}

TEST(Timing, RequestsComeByATrace) {
  const std::string folder = ::testing::TempDir(), times = folder + "/times.txt";
  std::ofstream(times) << "0.5\n0.75\n0.75\n2\n3\n";
  const auto tenant = TenantWith(absl::StrCat("mode: requests, arrivals: {times: ", times, "}"));
  ASSERT_TRUE(tenant.ok()) << tenant.status();
  std::mt19937_64 random(7), same(7);
  const std::vector<Nanos> expected = {Millis(500), Millis(750), Millis(750)};
  EXPECT_EQ(ArrivalsOf(*tenant, Seconds(2), random), expected);
  EXPECT_EQ(random, same);  // the other tenants' requests are the same as without it
  EXPECT_EQ(RequestsExpected(*tenant, Seconds(2)), 3);
  const auto gaps = TenantWith(
      absl::StrCat("mode: requests, active: 0s-1s 1500ms-2s, arrivals: {gaps: ", times, "}"));
  ASSERT_TRUE(gaps.ok()) << gaps.status();
  EXPECT_EQ(ArrivalsOf(*gaps, Seconds(2), random), std::vector<Nanos>{Millis(500)});

  const auto refused = [&](const std::string& keys) {
    return WhyNot(absl::StrCat("mode: requests, ", keys));
  };
  const std::string traced = absl::StrCat("arrivals: {times: ", times, "}");
  EXPECT_THAT(refused(traced + ", load: 5%"), HasSubstr("a trace of 'arrivals' says how many"));
  EXPECT_THAT(refused("arrivals: {}"), HasSubstr("allowed: either times or gaps"));
  EXPECT_THAT(refused("arrivals: {times: a, gaps: b}"), HasSubstr("allowed: either times or gaps"));
  EXPECT_THAT(refused("arrivals: {times: /nowhere/a}"),
              HasSubstr("s.yaml:6: cases[0].tenants[0].arrivals: /nowhere/a: No such file"));
  EXPECT_THAT(refused("arrivals: bursty, load: 5%"), HasSubstr("allowed: poisson, uniform"));
  EXPECT_THAT(WhyNot(traced), HasSubstr("are of the modes 'requests' and 'batches'"));
  std::ofstream(times) << "2\n";
  EXPECT_THAT(refused(traced), HasSubstr("'a' comes after the end of the run"));
  std::ofstream(times) << "soon\n";
  EXPECT_THAT(refused(traced), HasSubstr(":1: 'soon' given; allowed: a number of seconds"));
}

TEST(Timing, UniformArrivalsAreAsFarApartAsTheirRateSays) {
  const auto tenant = TenantWith("mode: requests, rate: 100/s, arrivals: uniform");
  ASSERT_TRUE(tenant.ok()) << tenant.status();
  std::mt19937_64 random(7);
  const std::vector<Nanos> first = ArrivalsOf(*tenant, Seconds(2), random);
  const std::vector<Nanos> second = ArrivalsOf(*tenant, Seconds(2), random);
  ASSERT_EQ(first.size(), 200u);
  for (size_t i = 1; i < first.size(); ++i) {
    EXPECT_NEAR(static_cast<double>((first[i] - first[i - 1]).count()), 1e7, 1);
  }
  EXPECT_LT(first[0], Millis(10));
  EXPECT_NE(first[0], second[0]);  // two clients with the same rate do not ask at the same time
  std::mt19937_64 again(7);
  EXPECT_EQ(ArrivalsOf(*tenant, Seconds(2), again), first);
}

TEST(Timing, OutsideOfItsActiveTimesATenantHasNoWork) {
  const auto loop = TenantWith("mode: sync, active: 0s-500ms 1s-1990ms");
  ASSERT_TRUE(loop.ok()) << loop.status();
  const std::vector<player::Absence> absences = AbsencesOf(*loop, Seconds(2));
  ASSERT_EQ(absences.size(), 2u);
  EXPECT_EQ(absences[0].from, Millis(500));
  EXPECT_EQ(absences[0].to, Seconds(1));
  EXPECT_EQ(absences[1].from, Millis(1990));
  const auto service = TenantWith("mode: requests, rate: 1000/s, active: 500ms-1s");
  ASSERT_TRUE(service.ok()) << service.status();
  std::mt19937_64 random(1);
  const std::vector<Nanos> arrivals = ArrivalsOf(*service, Seconds(2), random);
  EXPECT_NEAR(static_cast<double>(arrivals.size()), 500, 100);
  EXPECT_GE(arrivals.front(), Millis(500));
  EXPECT_LT(arrivals.back(), Seconds(1));
  EXPECT_TRUE(AbsencesOf(*service, Seconds(2)).empty());
}

TEST(Timing, TakenShortTheyEndWithTheRun) {
  constexpr char kText[] = R"(question: cap
length: 2s
warm_up: 100ms
window: 100ms
short: {length: 1s}
cases:
- name: one
  tenants:
  - {name: a, cap: 50%, work: {kernels: 1ms}, active: 0s-500ms 800ms-1200ms 1500ms-2s}
)";
  const auto shorter = ParseScenario(kText, "s.yaml", nullptr, Length::kShort);
  ASSERT_TRUE(shorter.ok()) << shorter.status();
  EXPECT_EQ(shorter->cases[0].tenants[0].active,
            (std::vector<Stretch>{{Nanos(0), Millis(500)}, {Millis(800), Seconds(1)}}));
  std::string late = kText;
  late.replace(late.find("0s-500ms 800ms-1200ms "), 22, "");
  EXPECT_THAT(std::string(ParseScenario(late, "s.yaml").status().message()),
              HasSubstr("s.yaml:5: short.length: 'a' of 'one' is not active within it"));
}

TEST(Timing, ActiveTimesAreAscending) {
  for (const char* active : {"0s", "0s-0s", "1s-500ms", "0s-1s 1s-2s", "0s-1s 500ms-2s", "0s-5ms",
                             "-1s", "1s-", "'0s-1s,1500ms-2s'", "' '"}) {
    EXPECT_THAT(WhyNot(absl::StrCat("active: ", active)), HasSubstr("cases[0].tenants[0].active: "))
        << active;
  }
  EXPECT_THAT(WhyNot("active: 1s-3s"),
              HasSubstr("'a' is active until 3s, after the end of the run"));
}

}  // namespace
}  // namespace gpushare::harness
