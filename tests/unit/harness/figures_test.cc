// SPDX-License-Identifier: Apache-2.0
#include "harness/figures.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "harness/questions/question.h"

namespace gpushare::harness {
namespace {

// A tenant with `part` of each sample, and `later` from sample `changes` on.
TenantOutcome Uses(const std::string& name, size_t samples, double part, size_t changes = SIZE_MAX,
                   double later = 0) {
  TenantOutcome tenant;
  tenant.name = name;
  double used = 0;
  for (size_t i = 0; i <= samples; ++i) {
    tenant.used_ns.push_back(static_cast<int64_t>(used));
    used += (i < changes ? part : later) * static_cast<double>(kSample.count());
  }
  return tenant;
}

std::map<std::string, double> Figures(const Scenario& scenario, const Outcome& outcome,
                                      const Outcome& alone = {}) {
  std::map<std::string, double> figures;
  for (const Figure& each : FiguresOf(scenario, scenario.cases[0], outcome, alone)) {
    if (each.value.has_value()) figures[each.name] = *each.value;
  }
  return figures;
}

Scenario Of(const Question& question, std::vector<Tenant> tenants) {
  Scenario scenario;
  scenario.question = &question;
  scenario.length = Seconds(4);
  scenario.warm_up = Seconds(1);
  scenario.window = Seconds(1);
  for (const OwnKey& key : question.keys) scenario.settings[key.name] = key.otherwise;
  scenario.cases.push_back({"case", "", std::move(tenants)});
  return scenario;
}

TEST(Figures, OfShares) {
  Tenant a, b;
  a.ask.share = 0.75;
  b.ask.share = 0.25;
  const Scenario scenario = Of(ShareQuestion(), {a, b});
  auto figures = Figures(scenario, {"", {Uses("a", 400, 0.6), Uses("b", 400, 0.2)}});
  EXPECT_NEAR(figures["a.share"], 75, 1e-6);
  EXPECT_NEAR(figures["worst_error"], 0, 1e-6);
  EXPECT_NEAR(figures["busy"], 80, 1e-6);
  // In the last second b has nothing.
  figures = Figures(scenario, {"", {Uses("a", 400, 0.6), Uses("b", 400, 0.2, 300, 0)}});
  EXPECT_NEAR(figures["worst_error"], 25, 1e-6);
  // Samples before the end of the warm-up do not count.
  figures = Figures(scenario, {"", {Uses("a", 400, 0, 100, 0.75), Uses("b", 400, 0.25)}});
  EXPECT_NEAR(figures["worst_error"], 0, 1e-6);
}

TEST(Figures, OfCaps) {
  Tenant a;
  a.ask.cap = 0.3;
  const Scenario scenario = Of(CapQuestion(), {a});
  auto figures = Figures(scenario, {"", {Uses("a", 400, 0.3)}});
  EXPECT_NEAR(figures["a.share"], 30, 1e-6);
  EXPECT_NEAR(figures["worst_over"], 0, 1e-6);
  // Half a second of the whole device is half of the window.
  figures = Figures(scenario, {"", {Uses("a", 400, 0.3, 350, 1)}});
  EXPECT_NEAR(figures["worst_over"], 35, 1e-6);
}

TEST(Figures, OfLatencies) {
  Tenant service, job;
  service.mode = player::PlayMode::kOpenLoop;
  const Scenario scenario = Of(LatencyQuestion(), {service, job});
  TenantOutcome online = Uses("online", 400, 0.2), by_itself = Uses("online", 400, 0.2);
  for (int i = 0; i < 200; ++i) {
    const Nanos arrival = Millis(20 * i);
    // Requests before the end of the warm-up are slow and do not count.
    online.requests.push_back({arrival, arrival < Seconds(1) ? Seconds(1) : Micros(200 + i)});
    by_itself.requests.push_back({arrival, Micros(100)});
  }
  auto figures = Figures(scenario, {"", {online, Uses("job", 400, 0.5)}}, {"", {by_itself}});
  EXPECT_EQ(figures["online.p50"], 324);
  EXPECT_EQ(figures["online.p999"], 399);
  EXPECT_NEAR(figures["online.p99_ratio"], 3.98, 1e-9);
  EXPECT_NEAR(figures["job.share"], 50, 1e-6);
}

TEST(Figures, ARequestThatWasNotServedTookUntilTheEnd) {
  Tenant service;
  service.mode = player::PlayMode::kOpenLoop;
  const Scenario scenario = Of(LatencyQuestion(), {service});
  TenantOutcome online = Uses("online", 400, 0.1);
  // Served at 100 us each from the end of the warm-up to 2 s, then starved.
  for (int i = 0; i < 100; ++i) online.requests.push_back({Millis(1000 + 10 * i), Micros(100)});
  for (int i = 0; i < 200; ++i) online.unserved.push_back(Millis(2000 + 10 * i));
  online.unserved.insert(online.unserved.begin(), Millis(500));  // before the warm-up's end
  auto figures = Figures(scenario, {"", {online}});
  EXPECT_NEAR(figures["online.served"], 100.0 / 3, 1e-6);
  EXPECT_NEAR(figures["online.p999"], 2e6, 1e-6);  // the first of them
  EXPECT_NEAR(figures["online.p50"], 500e3, 11e3);
  // Complete starvation must not be the best result.
  online.requests.clear();
  figures = Figures(scenario, {"", {online}});
  EXPECT_EQ(figures["online.served"], 0);
  EXPECT_GT(figures["online.p50"], 0.9e6);
  EXPECT_EQ(figures.count("busy"), 1u);
}

TEST(Figures, WithoutRequestsTheirLatencyHasNoSamples) {
  Tenant service;
  service.mode = player::PlayMode::kOpenLoop;
  const Scenario scenario = Of(LatencyQuestion(), {service});
  const TenantOutcome online = Uses("online", 400, 0);
  for (const Figure& each :
       FiguresOf(scenario, scenario.cases[0], {"", {online}}, {"", {online}})) {
    EXPECT_EQ(each.value.has_value(), each.name == "busy") << each.name;
  }
}

TEST(Figures, AWindowCountsForATenantWhereItHadWork) {
  Tenant service, job;
  service.mode = player::PlayMode::kOpenLoop;
  service.ask.share = 0.5;
  job.ask.share = 0.5;
  const Scenario scenario = Of(ShareQuestion(), {service, job});
  // It works from 1 s to 2.5 s and has its share; then it is idle and the job has the whole device.
  TenantOutcome online = Uses("online", 400, 0.5, 250, 0);
  online.requests = {{Millis(900), Millis(700)}, {Millis(1500), Millis(1000)}};
  auto figures = Figures(scenario, {"", {online, Uses("job", 400, 0.5, 250, 1)}});
  EXPECT_NEAR(figures["worst_error"], 0, 1e-6);
  // The job's shortage is an error, although the other one has work for only a part of the time.
  figures = Figures(scenario,
                    {"", {Uses("online", 400, 0.5, 250, 0.7), Uses("job", 400, 0.5, 250, 0.3)}});
  EXPECT_NEAR(figures["worst_error"], 20, 1e-6);
  // If it has to wait with its requests meanwhile, it is starved.
  online.requests[1].latency = Millis(2500);
  figures = Figures(scenario, {"", {online, Uses("job", 400, 0.5, 250, 1)}});
  EXPECT_NEAR(figures["worst_error"], 50, 1e-6);
  online.requests.resize(1);
  online.unserved = {Millis(1500)};
  figures = Figures(scenario, {"", {online, Uses("job", 400, 0.5, 250, 1)}});
  EXPECT_NEAR(figures["worst_error"], 50, 1e-6);
}

TEST(Figures, ACapIsNoOnesDueWithoutWork) {
  Tenant a;
  a.ask.cap = 0.3;
  a.mode = player::PlayMode::kOpenLoop;
  const Scenario scenario = Of(CapQuestion(), {a});
  TenantOutcome idle = Uses("a", 400, 0.05);
  auto figures = Figures(scenario, {"", {idle}});
  EXPECT_EQ(figures.count("worst_under"), 0u);  // no samples
  EXPECT_EQ(figures["worst_over"], 0);
  idle.unserved = {Nanos(0)};
  figures = Figures(scenario, {"", {idle}});
  EXPECT_NEAR(figures["worst_under"], 25, 1e-6);
}

TEST(Figures, AServerThatMayWaitForMoreIsHeldAgainstNobody) {
  Tenant server, job;
  server.mode = player::PlayMode::kBatches;
  server.ask.share = 0.5;
  job.ask.share = 0.5;
  const Scenario scenario = Of(ShareQuestion(), {server, job});
  TenantOutcome online = Uses("online", 400, 0.2);
  online.unserved = {Nanos(0)};
  auto figures = Figures(scenario, {"", {online, Uses("job", 400, 0.8)}});
  EXPECT_EQ(figures["worst_error"], 0);
}

TEST(Figures, WhoIsAwayHasNoWork) {
  Tenant away, job;
  away.ask.share = 0.5;
  away.active = {{Seconds(0), Millis(2500)}};
  job.ask.share = 0.5;
  const Scenario scenario = Of(ShareQuestion(), {away, job});
  auto figures =
      Figures(scenario, {"", {Uses("away", 400, 0.5, 250, 0), Uses("job", 400, 0.5, 250, 1)}});
  EXPECT_NEAR(figures["worst_error"], 0, 1e-6);
  figures =
      Figures(scenario, {"", {Uses("away", 400, 0.5, 200, 0), Uses("job", 400, 0.5, 200, 1)}});
  EXPECT_NEAR(figures["worst_error"], 25, 1e-6);  // half of the window from 1.5 s on
}

TEST(Figures, OfARunThatEndedAtOnceThereAreNone) {
  Tenant a;
  a.ask.cap = 0.3;
  EXPECT_TRUE(Figures(Of(CapQuestion(), {a}), {"", {Uses("a", 0, 1)}}).empty());
  EXPECT_TRUE(Figures(Of(CapQuestion(), {a}), {}).empty());
}

}  // namespace
}  // namespace gpushare::harness
