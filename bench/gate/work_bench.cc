// SPDX-License-Identifier: Apache-2.0
// Measures what the layer `work` adds to a launch, compared with the bare call and with the gate alone in the same run:
//
//   BM_LaunchKernel/way:0   the simulated driver's launch call alone
//   BM_LaunchKernel/way:1   behind the gate, for a known stream: what gate_bench measures
//   BM_LaunchKernel/way:2   through work::Calls: the stream is found by its handle (the difference to 1 is that
//                           look-up)
//   BM_LaunchKernel/way:3   the same on the legacy stream, for which the driver has to be asked for the context
//   BM_LaunchKernel/way:4   the same on 32 streams in turn, which is more than a thread remembers
//
//   BM_StreamComesAndGoes/others:N  a stream is created, recognised as the tenant's and destroyed, with N other
//                                   streams: the cost should not depend on N
//
// median_ns is the median over blocks of launches; Time also includes grants, markers and the reconciler. The launches go to a
// simulated device that takes no time, on the wall clock, so that no launch waits.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "bench/gate/launch_bed.h"
#include "driver/driver.h"
#include "gate/engine.h"
#include "work/calls.h"

namespace gpushare {
namespace {

constexpr int kStreams = 32;

struct Bed : LaunchBed {
  driver::Stream streams[kStreams] = {};
  std::unique_ptr<gate::Engine> engine;
  std::unique_ptr<work::Calls> calls;
  gate::Gate* gate = nullptr;
  gate::StreamGate* known = nullptr;
  work::Gates gates;

  Bed() {
    for (driver::Stream& stream : streams) Must(driver->CreateStream(&stream, 0));
    engine = Must(gate::Engine::Create(*driver, context, {}));
    gate = Must(engine->AddTenant("bench", {}));
    known = Must(gate->AddStream(streams[0]));
    gates.on[0] = gate;
    calls = std::make_unique<work::Calls>(*driver);
  }
};

// A process has one simulated GPU, and the engine's remaining work for it outlives a benchmark.
Bed* OnlyBed() {
  static Bed* const bed = new Bed;
  return bed;
}

enum Way { kBare, kGate, kCalls, kLegacy, kManyStreams };

void LaunchOnce(Bed& bed, Way way, int i) {
  const driver::Stream stream = way == kLegacy        ? nullptr
                                : way == kManyStreams ? bed.streams[i % kStreams]
                                                      : bed.streams[0];
  switch (way) {
    case kBare:
      bed.driver->Launch(bed.function, kShape, stream, nullptr);
      return;
    case kGate: {
      const gate::Admission admission =
          bed.gate->Admit(*bed.known, {gate::KernelKey(bed.function, kShape)});
      const driver::Result r = bed.driver->Launch(bed.function, kShape, stream, nullptr);
      bed.gate->Complete(admission, r == driver::Result::kSuccess);
      return;
    }
    default:
      bed.calls->LaunchKernel({.gates = &bed.gates}, bed.function, 1, 1, 1, 32, 1, 1, 0, stream,
                              nullptr, nullptr);
  }
}

void BM_LaunchKernel(benchmark::State& state) {
  constexpr int kBlock = 16, kBlocks = 32;
  Bed* const bed = OnlyBed();
  const Way way = static_cast<Way>(state.range(0));
  std::vector<double> blocks;
  for (auto _ : state) {
    double total = 0;
    for (int b = 0; b < kBlocks; ++b) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kBlock; ++i) LaunchOnce(*bed, way, i);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      blocks.push_back(took.count() / kBlock * 1e9);
      total += took.count();
    }
    state.SetIterationTime(total / (kBlock * kBlocks));  // per launch
    bed->driver->SynchronizeContext();
  }
  std::nth_element(blocks.begin(), blocks.begin() + static_cast<long>(blocks.size() / 2),
                   blocks.end());
  state.counters["median_ns"] = blocks[blocks.size() / 2];
}
BENCHMARK(BM_LaunchKernel)->ArgName("way")->DenseRange(0, 4)->UseManualTime()->Iterations(4000);

void BM_StreamComesAndGoes(benchmark::State& state) {
  Bed& bed = *OnlyBed();
  const work::Payer payer = {.gates = &bed.gates};
  const auto make = [&] {
    driver::Stream stream = nullptr;
    Must(bed.driver->CreateStream(&stream, 0));
    bed.calls->DeviceOf(payer, stream);
    return stream;
  };
  std::vector<driver::Stream> others;
  for (int64_t i = 0; i < state.range(0); ++i) others.push_back(make());
  for (auto _ : state) bed.calls->StreamDestroy(make());
  for (const driver::Stream stream : others) bed.calls->StreamDestroy(stream);
}
BENCHMARK(BM_StreamComesAndGoes)->ArgName("others")->Arg(0)->Arg(1000)->Arg(20000);

}  // namespace
}  // namespace gpushare

BENCHMARK_MAIN();
