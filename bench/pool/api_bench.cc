// SPDX-License-Identifier: Apache-2.0
// Measures an allocation and its free through the public interface, for each strategy.
//
// On the simulated GPU. `device_us` is the time of a pair on the simulated clock, on which cuMemAlloc is configured to cost its
// caller 1 us. Time and CPU are the host's time for the pair, where the simulated driver's own work stands for a real driver's.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <iostream>
#include <utility>

#include "gpushare/allocator.h"
#include "gpushare/gpu.h"
#include "gpushare/runtime.h"
#include "gpushare/stream.h"
#include "gpushare/tenant.h"
#include "gpushare/testing/sim.h"
#include "gpushare/virtual_device.h"

namespace {

using namespace gpushare;

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << value.status() << "\n";
    std::exit(1);
  }
  return *std::move(value);
}

void Pair(benchmark::State& state, AllocationStrategy strategy, bool on_stream) {
  static const Runtime runtime =
      Must(Runtime::Create({.driver = "sim", .simulation = "memory=64GiB"}));
  runtime.Symbol<decltype(gpushare_sim_thread_enter)>("gpushare_sim_thread_enter")("bench");
  {
    const Gpu gpu = Must(Gpu::Open(runtime, "0"));
    const Tenant tenant = Must(Tenant::Create(runtime, {.name = "tenant"}));
    const VirtualDevice device = Must(VirtualDevice::Create(gpu, tenant, "memory=8GiB"));
    const Stream stream = Must(Stream::Create(device));
    const Allocator allocator = Must(Allocator::Create(device, {.strategy = strategy}));
    char error[128];
    auto* const inject = runtime.Symbol<decltype(gpushare_sim_inject)>("gpushare_sim_inject");
    if (inject("slow call=cuMemAlloc_v2 host=1us", error, sizeof(error)) != 0) std::exit(1);
    const auto size = Bytes(static_cast<uint64_t>(state.range(0)));
    const absl::Duration began = runtime.Now();
    for (auto _ : state) {
      gpushare_device_ptr pointer = 0;
      const gpushare_status taken =
          on_stream ? gpushare_alloc_on(allocator.handle(), size.count(), stream.handle(), &pointer)
                    : gpushare_alloc(allocator.handle(), size.count(), &pointer);
      if (taken != GPUSHARE_OK || gpushare_free(allocator.handle(), pointer) != GPUSHARE_OK) {
        state.SkipWithError("an allocation or a free failed");
        break;
      }
    }
    state.counters["device_us"] =
        benchmark::Counter(absl::ToDoubleMicroseconds(runtime.Now() - began) /
                           static_cast<double>(state.iterations()));
    inject("clear", error, sizeof(error));
  }
  runtime.Symbol<decltype(gpushare_sim_thread_leave)>("gpushare_sim_thread_leave")();
}

void Direct(benchmark::State& state) { Pair(state, AllocationStrategy::kDirect, false); }
void Suballocating(benchmark::State& state) {
  Pair(state, AllocationStrategy::kSuballocating, false);
}
void SuballocatingOnAStream(benchmark::State& state) {
  Pair(state, AllocationStrategy::kSuballocating, true);
}
BENCHMARK(Direct)->Arg(64 << 10)->Arg(4 << 20);
BENCHMARK(Suballocating)->Arg(64 << 10)->Arg(4 << 20);
BENCHMARK(SuballocatingOnAStream)->Arg(64 << 10)->Arg(4 << 20);

}  // namespace

BENCHMARK_MAIN();
