// SPDX-License-Identifier: Apache-2.0
// The contract that every policy keeps, run over the whole table, and what each kind of policy promises on a
// contended device.
#include "sched/policies.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/sched/harness.h"

namespace gpushare::sched {
namespace {

using ::testing::TestParamInfo;
using ::testing::TestWithParam;
using ::testing::Values;
using ::testing::ValuesIn;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A request with the share, and with a weight of 2, as far as the policy takes them.
PolicyRequest Asks(const Policy& policy, double share) {
  PolicyRequest request;
  if (Contradicts(policy.kind, PolicyKey::kShare) == nullptr) request.share = share;
  if (Contradicts(policy.kind, PolicyKey::kWeight) == nullptr) request.weight = 2;
  return request;
}

HarnessTenant Backlogged(const TenantLimits& limits, Nanos kernel = Micros(80)) {
  return {.limits = limits, .kernels = {kernel, kernel / 2, kernel * 2}};
}

class PolicyContract : public TestWithParam<Policy> {
 protected:
  TenantLimits Limits(const PolicyRequest& request) const {
    const auto limits = ApplyPolicy(GetParam().name, request);
    EXPECT_TRUE(limits.ok()) << limits.status();
    return limits.value_or(TenantLimits());
  }
  // Each tenant's share over two seconds after a warm-up.
  static std::vector<double> Shares(std::vector<HarnessTenant> tenants) {
    const size_t n = tenants.size();
    Harness h({}, std::move(tenants));
    h.RunUntil(Seconds(3));
    EXPECT_STREQ(h.arbiter().CheckInvariants(), "");
    std::vector<double> shares;
    for (size_t i = 0; i < n; ++i) shares.push_back(h.Used(i, Seconds(1), Seconds(3)) / 2e9);
    return shares;
  }
};

TEST_P(PolicyContract, HasANameAnOriginAndAMeaning) {
  const Policy& policy = GetParam();
  const std::string name = policy.name;
  EXPECT_FALSE(name.empty());
  EXPECT_TRUE(std::all_of(name.begin(), name.end(),
                          [](char c) { return (c >= 'a' && c <= 'z') || c == '-'; }));
  EXPECT_NE(std::string(policy.origin), "");
  EXPECT_EQ(std::string(policy.meaning).back(), '.');
  EXPECT_EQ(std::count_if(Policies().begin(), Policies().end(),
                          [&](const Policy& p) { return name == p.name; }),
            1);
}

TEST_P(PolicyContract, IsFoundHoweverItIsSpelled) {
  std::string shout = GetParam().name;
  for (char& c : shout) c = c == '-' ? '_' : static_cast<char>(c - 'a' + 'A');
  const auto found = FindPolicy(shout);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_STREQ((*found)->name, GetParam().name);
}

TEST_P(PolicyContract, GivesLimitsThatAnArbiterCanHold) {
  for (double share : {0.01, 0.3, 1.0}) {
    const TenantLimits limits = Limits(Asks(GetParam(), share));
    EXPECT_TRUE(CheckLimits(limits).ok()) << CheckLimits(limits);
    EXPECT_LE(limits.guarantee, limits.cap);
    EXPECT_NE(limits.band, Band::kHigh) << "a policy does not raise the priority by itself";
  }
}

TEST_P(PolicyContract, RefusesNonsenseAndNamesTheField) {
  for (double bad : {-0.1, 1.5, kNan, HUGE_VAL}) {
    for (const auto& [field, request] : std::vector<std::pair<std::string, PolicyRequest>>{
             {"share", {.share = bad, .weight = 1}},
             {"limit", {.share = 0.3, .limit = bad, .weight = 1}}}) {
      const auto limits = ApplyPolicy(GetParam().name, request);
      ASSERT_FALSE(limits.ok()) << field << " " << bad;
      EXPECT_EQ(limits.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_NE(std::string(limits.status().message()).find(field), std::string::npos)
          << limits.status();
    }
  }
  for (double bad : {-1.0, kNan, HUGE_VAL, 1e-9}) {
    const auto limits = ApplyPolicy(GetParam().name, {.share = 0.3, .weight = bad});
    ASSERT_FALSE(limits.ok()) << bad;
    EXPECT_NE(std::string(limits.status().message()).find("weight"), std::string::npos);
  }
}

TEST_P(PolicyContract, UsesTheWholeDeviceAloneUnlessItIsCapped) {
  const TenantLimits limits = Limits(Asks(GetParam(), 0.3));
  const std::vector<double> shares = Shares({Backlogged(limits)});
  EXPECT_NEAR(shares[0], limits.cap, 0.01);
}

TEST_P(PolicyContract, TwoAlikeGetTheSame) {
  const TenantLimits limits = Limits(Asks(GetParam(), 0.3));
  const std::vector<double> shares =
      Shares({Backlogged(limits, Micros(14)), Backlogged(limits, Millis(1))});
  EXPECT_NEAR(shares[0], shares[1], 0.01);
  EXPECT_NEAR(shares[0], std::min(0.5, limits.cap), 0.01);
}

TEST_P(PolicyContract, KeepsItsPromiseAgainstEightOrdinaryTenants) {
  const TenantLimits limits = Limits(Asks(GetParam(), 0.3));
  std::vector<HarnessTenant> tenants = {Backlogged(limits)};
  for (int i = 0; i < 8; ++i) tenants.push_back(Backlogged({.weight = 1}));
  const double got = Shares(tenants)[0];
  switch (GetParam().kind) {
    case PolicyKind::kBestEffort:
      EXPECT_LE(got, 0.01);
      break;
    case PolicyKind::kFixed:
      EXPECT_NEAR(got, 0.3, 0.01);
      break;
    case PolicyKind::kBurst:  // plus its weight's part (2 of 10) of the other 70 %
      EXPECT_NEAR(got, 0.3 + 0.7 * 0.2, 0.01);
      break;
    case PolicyKind::kEqual:
      EXPECT_NEAR(got, 1.0 / 9, 0.01);
      break;
    case PolicyKind::kWeighted:
      EXPECT_NEAR(got, 0.2, 0.01);
      break;
  }
}

std::string NameOf(const TestParamInfo<Policy>& info) {
  std::string name = info.param.name;
  name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, PolicyContract, ValuesIn(Policies().begin(), Policies().end()),
                         NameOf);

TEST(Policies, EveryNameOperatorsKnowIsThere) {
  for (const char* name : {"best-effort", "fixed-share", "burst-share", "fair-share", "preemptive",
                           "weight", "equal-share", "hard", "soft", "request/limit", "force",
                           "default", "Best Effort", "Equal Share", "FIXED_SHARE"}) {
    EXPECT_TRUE(FindPolicy(name).ok()) << name;
  }
}

TEST(Policies, UnknownNameListsAllNames) {
  const auto found = FindPolicy("turbo\n");
  ASSERT_FALSE(found.ok());
  const std::string message(found.status().message());
  EXPECT_NE(message.find("'turbo\\x0a'"), std::string::npos) << message;
  for (const Policy& policy : Policies()) EXPECT_NE(message.find(policy.name), std::string::npos);
}

TEST(Policies, AMegabyteOfNameIsQuotedInShort) {
  const auto found = FindPolicy(std::string(1 << 20, 'x'));
  ASSERT_FALSE(found.ok());
  EXPECT_LT(found.status().message().size(), 400u);
}

TEST(Policies, ShareByNumberOfTenants) {
  const auto limits = ApplyPolicy("fixed-share", {.tenants = 4});
  ASSERT_TRUE(limits.ok());
  EXPECT_DOUBLE_EQ(limits->guarantee, 0.25);
  EXPECT_DOUBLE_EQ(limits->cap, 0.25);
}

TEST(Policies, WhatAPolicyNeedsIsAskedFor) {
  const auto fixed = ApplyPolicy("hard", {});
  ASSERT_FALSE(fixed.ok());
  EXPECT_NE(std::string(fixed.status().message()).find("'hard' needs a share"), std::string::npos);
  const auto weighted = ApplyPolicy("weight", {.share = 0.5});
  ASSERT_FALSE(weighted.ok());
  EXPECT_NE(std::string(weighted.status().message()).find("needs a weight"), std::string::npos);
}

TEST(Policies, WhatContradictsAPolicyIsRefusedByField) {
  const struct {
    const char* policy;
    PolicyRequest request;
    const char* field;
    const char* why;
  } cases[] = {
      {"best-effort", {.share = 0.5}, "share: 0.5 given", "promises nothing"},
      {"fair-share", {.weight = 5}, "weight: 5 given", "each tenant the same"},
      {"equal-share", {.share = 0.5}, "share: 0.5 given", "each tenant the same"},
      {"weight", {.share = 0.5, .weight = 2}, "share: 0.5 given", "by weight alone"},
  };
  for (const auto& each : cases) {
    const auto limits = ApplyPolicy(each.policy, each.request);
    ASSERT_EQ(limits.status().code(), absl::StatusCode::kInvalidArgument) << each.policy;
    const std::string message(limits.status().message());
    EXPECT_NE(message.find(each.field), std::string::npos) << message;
    EXPECT_NE(message.find(each.why), std::string::npos) << message;
  }
  // A limit is compatible with every policy.
  const auto limits = ApplyPolicy("best-effort", {.limit = 0.3});
  ASSERT_TRUE(limits.ok()) << limits.status();
  EXPECT_DOUBLE_EQ(limits->cap, 0.3);
}

TEST(Policies, LimitBoundsABurst) {
  const auto limits = ApplyPolicy("request-limit", {.share = 0.3, .limit = 0.8});
  ASSERT_TRUE(limits.ok());
  EXPECT_DOUBLE_EQ(limits->guarantee, 0.3);
  EXPECT_DOUBLE_EQ(limits->cap, 0.8);
  EXPECT_FALSE(ApplyPolicy("request-limit", {.share = 0.8, .limit = 0.3}).ok());
  EXPECT_FALSE(ApplyPolicy("fixed-share", {.share = 0.3, .limit = 0.8}).ok());
}

struct BadLimits {
  const char* field;
  TenantLimits limits;
};
class CheckLimitsTest : public TestWithParam<BadLimits> {};
TEST_P(CheckLimitsTest, NamesTheField) {
  const absl::Status status = CheckLimits(GetParam().limits);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(std::string(status.message()).find(GetParam().field), std::string::npos) << status;
}
INSTANTIATE_TEST_SUITE_P(
    Bad, CheckLimitsTest,
    Values(BadLimits{"weight", {.weight = 0}}, BadLimits{"weight", {.weight = -3}},
           BadLimits{"weight", {.weight = kNan}}, BadLimits{"weight", {.weight = HUGE_VAL}},
           BadLimits{"guarantee", {.guarantee = 1.01}}, BadLimits{"guarantee", {.guarantee = kNan}},
           BadLimits{"guarantee", {.guarantee = 0.5, .cap = 0.4}}, BadLimits{"cap", {.cap = 0}},
           BadLimits{"cap", {.cap = 1.5}}, BadLimits{"cap", {.cap = kNan}},
           BadLimits{"cap_depth", {.cap_depth = Nanos(0)}},
           BadLimits{"burst", {.burst = Nanos(-1)}}, BadLimits{"delay", {.delay = -0.01}},
           BadLimits{"delay", {.delay = 1.01}}, BadLimits{"delay", {.delay = kNan}},
           BadLimits{"band", {.band = static_cast<Band>(7)}}));

}  // namespace
}  // namespace gpushare::sched
