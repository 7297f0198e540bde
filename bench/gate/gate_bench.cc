// SPDX-License-Identifier: Apache-2.0
// Measures what the gate adds to a launch. Each benchmark with the gate has a counterpart without it in the same run:
//
//   BM_Launch/gate:0          the simulated driver's launch call alone
//   BM_Launch/gate:1          the same behind the gate: an idle tenant alone, not throttled, warm. The
//                             difference in median_ns is what the gate adds; the difference in Time also
//                             includes grants, markers and the reconciler
//   BM_AdmitOnly/...          the gate's own instructions: Admit + Complete with credit in hand
//
// The launches go to a simulated device that takes no time, on the wall clock, so that no launch waits.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "bench/gate/launch_bed.h"
#include "driver/driver.h"
#include "gate/engine.h"
#include "gate/lane.h"

namespace gpushare {
namespace {

struct Bed : LaunchBed {
  std::unique_ptr<gate::Engine> engine, generous;

  Bed() {
    engine = Must(gate::Engine::Create(*driver, context, {}));
    // Grants so large that a run never leaves the fast path.
    gate::EngineOptions options;
    options.arbiter.lone_grant = Seconds(600);
    options.arbiter.window = Seconds(600);
    options.arbiter.active_grace = Seconds(600);
    generous = Must(gate::Engine::Create(*driver, context, options));
  }
};
Bed& TheBed() {
  static Bed* const bed = new Bed;
  return *bed;
}

struct OneTenant {
  gate::Gate* gate;
  gate::StreamGate* stream;
  driver::Stream handle = nullptr;

  OneTenant(gate::Engine& engine, double cap) {
    gate::TenantOptions options;
    options.limits.cap = cap;
    gate = Must(engine.AddTenant("bench", options));
    Must(TheBed().driver->CreateStream(&handle, 0));
    stream = Must(gate->AddStream(handle));
  }
};

// Times blocks of launches one by one. Launches that ask for a grant or record a marker are part of the mean (Time), but not of
// the median, which is the cost of a launch that is not throttled.
void BM_Launch(benchmark::State& state) {
  constexpr int kBlock = 16, kBlocks = 32;
  Bed& bed = TheBed();
  bed.driver->PushContext(bed.context);
  OneTenant tenant(*bed.engine, 1);
  const bool gated = state.range(0) != 0;
  const gate::Lane& lane = gate::Gate::LaneOf(*tenant.stream);
  std::vector<double> blocks;
  for (auto _ : state) {
    double total = 0;
    for (int b = 0; b < kBlocks; ++b) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kBlock; ++i) {
        if (gated) {
          const uint64_t key = gate::KernelKey(bed.function, kShape);
          gate::Admission admission = {.stream = tenant.stream};
          if (!lane.Take(key, &admission.launch)) {
            admission = tenant.gate->Admit(*tenant.stream, {key});
          }
          const driver::Result r = bed.driver->Launch(bed.function, kShape, tenant.handle, nullptr);
          tenant.gate->Complete(admission, r == driver::Result::kSuccess);
        } else {
          bed.driver->Launch(bed.function, kShape, tenant.handle, nullptr);
        }
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      blocks.push_back(took.count() / kBlock * 1e9);
      total += took.count();
    }
    state.SetIterationTime(total / (kBlock * kBlocks));  // per launch
    bed.driver->SynchronizeStream(tenant.handle);
  }
  std::nth_element(blocks.begin(), blocks.begin() + static_cast<long>(blocks.size() / 2),
                   blocks.end());
  state.counters["median_ns"] = blocks[blocks.size() / 2];
  if (gated) {
    const gate::GateStats stats = tenant.gate->stats();
    state.counters["launches_per_marker"] =
        static_cast<double>(stats.launches) /
        static_cast<double>(std::max<uint64_t>(stats.markers, 1));
  }
  tenant.gate->RemoveStream(tenant.stream);
  bed.engine->RemoveTenant(tenant.gate);
  bed.driver->PopContext();
}
BENCHMARK(BM_Launch)->ArgName("gate")->Arg(0)->Arg(1)->UseManualTime()->Iterations(4000);

// range(0): cap in percent (100: none). One tenant per run, shared by all threads, with one stream each.
gate::Gate* shared_gate = nullptr;
void AddShared(const benchmark::State& state) {
  gate::TenantOptions options;
  options.limits.cap = static_cast<double>(state.range(0)) / 100;
  options.limits.cap_depth = Seconds(600);
  shared_gate = Must(TheBed().generous->AddTenant("bench", options));
}
void RemoveShared(const benchmark::State&) { TheBed().generous->RemoveTenant(shared_gate); }

void BM_AdmitOnly(benchmark::State& state) {
  Bed& bed = TheBed();
  gate::Gate* const gate = shared_gate;
  bed.driver->PushContext(bed.context);
  driver::Stream handle = nullptr;
  Must(bed.driver->CreateStream(&handle, 0));
  gate::StreamGate* const stream = Must(gate->AddStream(handle));
  const gate::Work work = {gate::KernelKey(bed.function, kShape)};
  // Makes the cost known, by launches that are measured.
  for (int i = 0; i < 12; ++i) {
    const gate::Admission a = gate->Admit(*stream, work);
    gate->Complete(
        a, bed.driver->Launch(bed.function, kShape, handle, nullptr) == driver::Result::kSuccess);
    gate->Synchronizing(stream);
    bed.driver->SynchronizeStream(handle);
  }
  for (auto _ : state) {
    const gate::Admission admission = gate->Admit(*stream, work);
    gate->Complete(admission, true);
    benchmark::DoNotOptimize(admission.launch);
  }
  bed.driver->SynchronizeStream(handle);
  gate->RemoveStream(stream);
  bed.driver->PopContext();
}
BENCHMARK(BM_AdmitOnly)
    ->ArgName("cap")
    ->Arg(100)
    ->Arg(50)
    ->Setup(AddShared)
    ->Teardown(RemoveShared);
BENCHMARK(BM_AdmitOnly)
    ->ArgName("cap")
    ->Arg(100)
    ->ThreadRange(2, 8)
    ->Setup(AddShared)
    ->Teardown(RemoveShared);

}  // namespace
}  // namespace gpushare

BENCHMARK_MAIN();
