// SPDX-License-Identifier: Apache-2.0
// What every policy promises to operators who pick it by name, tested on the arbiter alone with an exact meter:
// guarantees are met, caps are not exceeded, idle time is lent or withheld. The expectations are written here under
// the names that operators know, and not taken from the policy table. Shares are over windows of 1 s.
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sched/policies.h"
#include "tests/unit/sched/harness.h"

namespace gpushare::sched {
namespace {

using ::testing::HasSubstr;

constexpr double kTolerance =
    0.01;  // 1 percentage point; tests also allow the burst of a returning tenant where they say so

struct Promise {
  const char* name;  // the name as an operator writes it
  bool guaranteed;   // the tenant gets its share whenever it has work
  bool withholds;    // the share is also the tenant's limit
  bool yields;       // the tenant gets only the time that others leave
  bool takes_share, takes_weight, takes_limit;
};

constexpr Promise kPromises[] = {
    // qGPU
    {"best-effort", false, false, true, false, true, true},
    {"fixed-share", true, true, false, true, true, false},
    {"burst-share", true, false, false, true, true, true},
    // cGPU
    {"fair-share", false, false, false, false, false, true},
    {"preemptive", false, false, false, false, false, true},
    {"weight", false, false, false, false, true, true},
    // NVIDIA vGPU
    {"Best Effort", false, false, true, false, true, true},
    {"Equal Share", false, false, false, false, false, true},
    {"Fixed Share", true, true, false, true, true, false},
    // vCUDA
    {"hard", true, true, false, true, true, false},
    {"soft", true, false, false, true, true, true},
    // KubeShare
    {"request/limit", true, false, false, true, true, true},
    // HAMi
    {"force", true, true, false, true, true, false},
    {"default", true, false, false, true, true, true},
};

PolicyRequest Ask(const Promise& promise, double share, double limit = 0) {
  PolicyRequest request;
  if (promise.takes_share) request.share = share;
  if (std::string(promise.name) == "weight") request.weight = 1;
  if (promise.takes_limit) request.limit = limit;
  return request;
}

TenantLimits LimitsOf(const Promise& promise, double share, double limit = 0) {
  const auto limits = ApplyPolicy(promise.name, Ask(promise, share, limit));
  EXPECT_TRUE(limits.ok()) << limits.status();
  return limits.ok() ? *limits : TenantLimits{};
}

HarnessTenant Backlogged(const TenantLimits& limits, Nanos kernel = Micros(100)) {
  return {.limits = limits, .kernels = {kernel}};
}

// Under sanitizers and in debug builds a simulated second takes up to a hundred times as long.
constexpr Nanos kWarm = kSlowBuild ? Millis(200) : Seconds(1);
constexpr Nanos kEnd = kSlowBuild ? Millis(1300) : Seconds(4);

class PolicyPromises : public ::testing::TestWithParam<Promise> {
 protected:
  static double Share(const Harness& h, size_t tenant, Nanos from, Nanos to) {
    return h.Used(tenant, from, to) / static_cast<double>((to - from).count());
  }
};

TEST_P(PolicyPromises, AGuaranteeIsGotInEverySecondWhileBacklogged) {
  // Three others that want the whole device, one of them with ten times the weight.
  Harness h({}, {Backlogged(LimitsOf(GetParam(), 0.3)), Backlogged({.weight = 10}, Millis(1)),
                 Backlogged({.weight = 1}, Micros(14)), Backlogged({.weight = 1}, Micros(300))});
  h.RunUntil(kEnd);
  const double least = h.LeastUsed(0, kWarm, kEnd), most = h.MostUsed(0, kWarm, kEnd);
  if (GetParam().guaranteed) {
    EXPECT_GE(least, 0.3 - kTolerance);
  } else if (GetParam().yields) {
    EXPECT_LE(most, kTolerance);
  } else {  // by weight: one part in 13
    EXPECT_NEAR(least, 1.0 / 13, kTolerance);
    EXPECT_NEAR(most, 1.0 / 13, kTolerance);
  }
}

TEST_P(PolicyPromises, ACapIsNeverPassedNorLeftUnused) {
  const double cap = 0.3;  // the share, if it is the limit; else a limit above a smaller share
  const TenantLimits limits =
      GetParam().withholds ? LimitsOf(GetParam(), cap) : LimitsOf(GetParam(), 0.2, cap);
  ASSERT_DOUBLE_EQ(limits.cap, cap);
  Harness h({}, {Backlogged(limits)});  // alone, so that the whole device would be available
  h.RunUntil(kEnd);
  // The tolerance is half a percentage point and the longest command divided by the window.
  EXPECT_LE(h.MostUsed(0, kWarm, kEnd), cap + 0.005 + 1e-4);
  EXPECT_GE(h.LeastUsed(0, kWarm, kEnd), cap - 0.005 - 1e-4);
}

TEST_P(PolicyPromises, IdleTimeIsLentUnlessThePolicyWithholdsIt) {
  const TenantLimits half = LimitsOf(GetParam(), 0.5);
  HarnessTenant idle = Backlogged(half);
  idle.stop = Millis(20);
  Harness h({}, {Backlogged(half), idle});
  h.RunUntil(kEnd);
  EXPECT_NEAR(Share(h, 0, kWarm, kEnd), GetParam().withholds ? 0.5 : 1.0, kTolerance);
}

TEST_P(PolicyPromises, WhatWasLentComesBackWithinASecond) {
  const TenantLimits half = LimitsOf(GetParam(), 0.5);
  HarnessTenant back = Backlogged(half);
  back.start = kWarm;
  Harness h({}, {Backlogged(half, Micros(300)), back});
  h.RunUntil(kEnd);
  // The first 100 ms may contain the burst of 20 ms; afterwards both tenants have their half.
  EXPECT_LE(Share(h, 1, kWarm, kWarm + Millis(100)), 0.5 + 0.2 + kTolerance);
  const Nanos settled = kWarm + Millis(kSlowBuild ? 100 : 1000);
  EXPECT_NEAR(Share(h, 0, settled, kEnd), 0.5, 1.5 * kTolerance);
  EXPECT_NEAR(Share(h, 1, settled, kEnd), 0.5, 1.5 * kTolerance);
}

TEST_P(PolicyPromises, HighPriorityGoesFirst) {
  HarnessTenant online{.limits = {.band = Band::kHigh},
                       .kernels = {Micros(50), Micros(120), Micros(30)},
                       .repeat = 5,
                       .mode = HarnessTenant::Mode::kRequests,
                       .load = 0.2};
  const Nanos end = kSlowBuild ? Seconds(2) : Seconds(8);
  Harness alone({}, {online});
  alone.RunUntil(end);
  Harness h({}, {online, Backlogged(LimitsOf(GetParam(), 0.5)), Backlogged({})});
  h.RunUntil(end);
  // One command of 100 us may be running when a request arrives.
  EXPECT_LE(h.LatencyUs(0, 0.99), 1.05 * alone.LatencyUs(0, 0.99) + 100);
  EXPECT_GT(h.LatencyUs(0, 0.5), 0);
}

TEST_P(PolicyPromises, NobodyStarvesButWhoOnlyTakesWhatIsLeft) {
  Harness h({}, {Backlogged(LimitsOf(GetParam(), 0.02)), Backlogged({.weight = 10}, Millis(1)),
                 Backlogged({.weight = 10}, Micros(14))});
  h.RunUntil(kEnd);
  if (GetParam().yields) {
    EXPECT_LE(Share(h, 0, kWarm, kEnd), kTolerance);
  } else {
    // 2 % of 5 ms is 100 us, and debts are paid within the slack.
    EXPECT_LT(h.longest_wait(0), Millis(60));
    EXPECT_GT(Share(h, 0, kWarm, kEnd), 0.015);
  }
}

TEST_P(PolicyPromises, WhoTakesWhatIsLeftGetsAllOfIt) {
  // The other tenant uses only a part of the device: the rest goes to this tenant, up to its limit.
  HarnessTenant part = Backlogged({.cap = 0.6});
  Harness h({}, {Backlogged(LimitsOf(GetParam(), 0.3)), part});
  h.RunUntil(kEnd);
  const double got = Share(h, 0, kWarm, kEnd);
  if (GetParam().withholds) {
    EXPECT_NEAR(got, 0.3, kTolerance);
  } else {
    EXPECT_GE(got, 0.4 - kTolerance);
  }
  EXPECT_GE(got + Share(h, 1, kWarm, kEnd), GetParam().withholds ? 0.89 : 0.99);
}

TEST_P(PolicyPromises, TakesOverFromEveryOtherWhileRunning) {
  for (const Promise& before : kPromises) {
    if (kSlowBuild && &before != &kPromises[1]) continue;
    const TenantLimits after = LimitsOf(GetParam(), 0.3);
    Harness h({}, {Backlogged(LimitsOf(before, 0.6)), Backlogged({.weight = 1}, Micros(300))});
    const Nanos change = kSlowBuild ? Millis(300) : Seconds(1);
    h.At(change, [&] { h.Update(0, after); });
    const Nanos from = 2 * change, to = from + (kSlowBuild ? Millis(700) : Seconds(1));
    h.RunUntil(to);
    // Beside one tenant of weight 1: the guarantee and half of the remaining time, unless the share is also the
    // limit.
    const double want = GetParam().withholds    ? 0.3
                        : GetParam().guaranteed ? 0.3 + 0.7 / 2
                        : GetParam().yields     ? 0
                                                : 0.5;
    EXPECT_NEAR(Share(h, 0, from, to), want, 2 * kTolerance) << "after " << before.name;
    EXPECT_STREQ(h.arbiter().CheckInvariants(), "") << "after " << before.name;
  }
}

TEST_P(PolicyPromises, RefusesWhatContradictsIt) {
  const auto refused = [](const PolicyRequest& request) {
    return ApplyPolicy(GetParam().name, request).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  PolicyRequest request = Ask(GetParam(), 0.3);
  request.share = 0.3;
  EXPECT_EQ(refused(request), !GetParam().takes_share);
  request = Ask(GetParam(), 0.3);
  request.weight = 2;
  EXPECT_EQ(refused(request), !GetParam().takes_weight);
  request = Ask(GetParam(), 0.3);
  request.limit = 0.8;  // differs from the share
  EXPECT_EQ(refused(request), !GetParam().takes_limit);
}

std::string NameOf(const ::testing::TestParamInfo<Promise>& info) {
  std::string name = info.param.name;
  for (char& c : name) c = c == '-' || c == ' ' || c == '/' ? '_' : c;
  return name;
}
INSTANTIATE_TEST_SUITE_P(ByName, PolicyPromises, ::testing::ValuesIn(kPromises), NameOf);

TEST(PolicyNames, EveryPolicyOfTheTableHasItsPromiseHere) {
  for (const Policy& policy : Policies()) {
    EXPECT_TRUE(std::any_of(std::begin(kPromises), std::end(kPromises), [&](const Promise& p) {
      return *FindPolicy(p.name) == &policy;
    })) << policy.name;
  }
}

TEST(PolicyNames, AnUnknownOneIsRefusedWithTheNamesThereAre) {
  for (const char* name : {"turbo", "", "fixed", "best effort ", "BURSTSHARE"}) {
    const auto limits = ApplyPolicy(name, {.share = 0.3});
    ASSERT_EQ(limits.status().code(), absl::StatusCode::kInvalidArgument) << name;
    for (const Policy& policy : Policies()) {
      EXPECT_THAT(std::string(limits.status().message()), HasSubstr(policy.name));
    }
  }
}

}  // namespace
}  // namespace gpushare::sched
