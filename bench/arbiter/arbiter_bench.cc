// SPDX-License-Identifier: Apache-2.0
// Measures what a decision of the arbiter costs, by the number of tenants.
//
//   bench_arbiter --benchmark_filter=BM_Decision
//
// BM_Decision/N: N tenants wait at the gate. One step settles the command that the device has just finished, files the next
// request of its tenant and decides who is next: all that the engine asks of the arbiter for one command. Bar: 1 us at 10,000
// tenants. BM_DecisionMixed/N: the same with guarantees on a third of the tenants and caps on another. BM_DecisionFamilies/N:
// BM_Decision with parents of ten tenants each. BM_DecisionRunning/N: N - 2 tenants are active but not at the gate, and two
// compete.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "benchmark/benchmark.h"
#include "sched/arbiter.h"

namespace gpushare::sched {
namespace {

// The device runs commands in order, 14 us each.
constexpr Nanos kCommand = Micros(14);

struct Flow {
  explicit Flow(int64_t n, bool mixed, int64_t family = 0) {
    TenantId parent = kNoTenant;
    for (int64_t i = 0; i < n; ++i) {
      TenantLimits limits;
      limits.weight = 1 + static_cast<double>(i % 7);
      if (mixed && i % 3 == 0) limits.guarantee = 0.5 / static_cast<double>(n);
      if (mixed && i % 3 == 1) limits.cap = std::max(0.01, 2.0 / static_cast<double>(n));
      if (family != 0 && i % family == 0) parent = arbiter.Add({}, now);
      ids.push_back(arbiter.Add(limits, now, parent));
    }
    grants.reserve(ids.size());
  }
  // One command ends, its tenant asks again, and the arbiter decides.
  void Step() {
    if (next < grants.size()) {
      const Grant done = grants[next++];
      now += kCommand;
      arbiter.Settle(done.tenant, done.phase, done.amount, kCommand, 1, now);
      arbiter.Block(done.tenant, kCommand, false, now);
    } else {
      now = std::max(again == kNever ? now : again, now + Nanos(1));
    }
    if (next == grants.size()) {
      grants.clear();
      next = 0;
    }
    const size_t before = grants.size();
    again = arbiter.Run(now, grants);
    for (size_t i = before; i < grants.size(); ++i) arbiter.Launched(grants[i].tenant, 1, now);
    decisions += grants.size() - before;
  }
  Arbiter arbiter{ArbiterOptions{}};
  std::vector<TenantId> ids;
  std::vector<Grant> grants;
  size_t next = 0;
  uint64_t decisions = 0;
  Time now{Seconds(1)}, again = kNever;
};

void Report(benchmark::State& state, const Flow& flow) {
  state.counters["decisions_per_step"] =
      static_cast<double>(flow.decisions) / static_cast<double>(state.iterations());
}

void BM_Decision(benchmark::State& state) {
  Flow flow(state.range(0), false);
  for (TenantId id : flow.ids) flow.arbiter.Block(id, kCommand, false, flow.now);
  for (int i = 0; i < 1000; ++i) flow.Step();
  flow.decisions = 0;
  for (auto _ : state) flow.Step();
  Report(state, flow);
}
BENCHMARK(BM_Decision)->Arg(2)->Arg(100)->Arg(10'000);

void BM_DecisionMixed(benchmark::State& state) {
  Flow flow(state.range(0), true);
  for (TenantId id : flow.ids) flow.arbiter.Block(id, kCommand, false, flow.now);
  for (int i = 0; i < 1000; ++i) flow.Step();
  flow.decisions = 0;
  for (auto _ : state) flow.Step();
  Report(state, flow);
}
BENCHMARK(BM_DecisionMixed)->Arg(2)->Arg(100)->Arg(10'000);

void BM_DecisionFamilies(benchmark::State& state) {
  Flow flow(state.range(0), false, /*family=*/10);
  for (TenantId id : flow.ids) flow.arbiter.Block(id, kCommand, false, flow.now);
  for (int i = 0; i < 1000; ++i) flow.Step();
  flow.decisions = 0;
  for (auto _ : state) flow.Step();
  Report(state, flow);
}
BENCHMARK(BM_DecisionFamilies)->Arg(2)->Arg(100)->Arg(10'000);

void BM_DecisionRunning(benchmark::State& state) {
  Flow flow(state.range(0), false);
  // All but two have a command on the device that does not end during the run and was charged ahead.
  for (size_t i = 2; i < flow.ids.size(); ++i) {
    flow.arbiter.Charge(flow.ids[i], Nanos(1), flow.now);
    flow.arbiter.Touch(flow.ids[i], flow.now);
  }
  for (size_t i = 0; i < 2; ++i) flow.arbiter.Block(flow.ids[i], kCommand, false, flow.now);
  for (int i = 0; i < 1000; ++i) flow.Step();
  flow.decisions = 0;
  for (auto _ : state) flow.Step();
  Report(state, flow);
}
BENCHMARK(BM_DecisionRunning)->Arg(2)->Arg(100)->Arg(10'000);

}  // namespace
}  // namespace gpushare::sched
