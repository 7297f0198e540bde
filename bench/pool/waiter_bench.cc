// SPDX-License-Identifier: Apache-2.0
// How long after memory is free does who waits for it have it, by the machine's clock?
//
// On the simulated GPU with clock=wall: a thread waits at the quota, another one frees what it waits for. Time is from
// before the call that frees to the return of the one that waits, so it has the driver's calls of both and the machine's
// wake-up of a thread. `us_p50` and `us_p99` are of all rounds. Bar: 20 us; on the virtual clock, where neither takes
// time, it is 0 (tests/unit/device/served_test.cc).
//
//   Served/<strategy>/<in a stream>   strategies: 0 direct, 1 pool, 2 suballocating; 1: freed behind a stream's work
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gpushare/allocator.h"
#include "gpushare/gpu.h"
#include "gpushare/runtime.h"
#include "gpushare/stream.h"
#include "gpushare/tenant.h"
#include "gpushare/virtual_device.h"

namespace {

using namespace gpushare;
using Clock = std::chrono::steady_clock;

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << value.status() << "\n";
    std::exit(1);
  }
  return *std::move(value);
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const size_t at = static_cast<size_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(at), values.end());
  return values[at];
}

void Served(benchmark::State& state) {
  static const Runtime runtime =
      Must(Runtime::Create({.driver = "sim", .simulation = "memory=4GiB,clock=wall"}));
  const Gpu gpu = Must(Gpu::Open(runtime, "0"));
  const Tenant tenant = Must(Tenant::Create(runtime, {.name = "tenant"}));
  const VirtualDevice device = Must(VirtualDevice::Create(gpu, tenant, "memory=256MiB"));
  const Stream stream = Must(Stream::Create(device));
  const Allocator allocator = Must(
      Allocator::Create(device, {.strategy = static_cast<AllocationStrategy>(state.range(0))}));
  const bool in_stream = state.range(1) != 0;
  std::vector<double> us;
  for (auto _ : state) {
    Allocation held =
        in_stream ? Must(allocator.Allocate(MiB(160), stream)) : Must(allocator.Allocate(MiB(160)));
    std::atomic<bool> there{false};
    Clock::time_point served;
    std::thread waiter([&] {
      there.store(true);
      Must(allocator.Allocate(MiB(160), {.stream = &stream, .timeout = absl::Seconds(5)}));
      served = Clock::now();
    });
    while (!there.load()) std::this_thread::yield();
    // It is in line and asleep by then, and looks by itself each millisecond only.
    std::this_thread::sleep_for(std::chrono::microseconds(1700));
    const Clock::time_point freed = Clock::now();
    if (!held.Free().ok()) std::exit(1);
    waiter.join();
    const double took = std::chrono::duration<double>(served - freed).count();
    us.push_back(took * 1e6);
    state.SetIterationTime(took);
  }
  state.counters["us_p50"] = Quantile(us, 0.5);
  state.counters["us_p99"] = Quantile(us, 0.99);
}
BENCHMARK(Served)
    ->ArgNames({"strategy", "stream"})
    ->Args({0, 0})
    ->Args({1, 0})
    ->Args({2, 0})
    ->Args({1, 1})
    ->Args({2, 1})
    ->UseManualTime()
    ->Iterations(400);

}  // namespace

BENCHMARK_MAIN();
