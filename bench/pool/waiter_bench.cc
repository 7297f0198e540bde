// SPDX-License-Identifier: Apache-2.0
// How long after memory is free does who waits for it have it, by the machine's clock?
//
// On the simulated GPU with clock=wall: a thread waits at the quota, another one frees what it waits for. Time is from
// before the call that frees to the return of the one that waits, so it has the driver's calls of both and the machine's
// wake-up of a thread. `us_p50` and `us_p99` are of all rounds. Bar: 20 us; on the virtual clock, where neither takes
// time, it is 0 (tests/unit/device/served_test.cc).
//
//   Served/<strategy>/<in a stream>   strategies: 0 direct, 1 pool, 2 suballocating; 1: freed on a stream that is idle
//   Reached/<strategy>                 freed behind a kernel that runs yet: time is from a function on the host that
//                                      the stream comes to just before the free
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
#include "gpushare/module.h"
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

constexpr char kPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry spin(.param .u64 ns)
{
  ret;
}
)";

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const size_t at = static_cast<size_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(at), values.end());
  return values[at];
}

struct Bed {
  static const Runtime& runtime() {
    static const Runtime made =
        Must(Runtime::Create({.driver = "sim", .simulation = "memory=4GiB,clock=wall"}));
    return made;
  }

  explicit Bed(int64_t strategy)
      : allocator(Must(
            Allocator::Create(device, {.strategy = static_cast<AllocationStrategy>(strategy)}))) {}

  // Frees what another thread waits for, which is in line and asleep by then: it looks by itself each millisecond
  // only. When it was served.
  template <typename Free>
  Clock::time_point Round(const Free& free) {
    std::atomic<bool> there{false};
    Clock::time_point served;
    std::thread waiter([&] {
      there.store(true);
      Must(allocator.Allocate(kBytes, {.stream = &stream, .timeout = absl::Seconds(5)}));
      served = Clock::now();
    });
    while (!there.load()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(1700));
    free();
    waiter.join();
    return served;
  }

  static constexpr Bytes kBytes = MiB(160);
  const Gpu gpu = Must(Gpu::Open(runtime(), "0"));
  const Tenant tenant = Must(Tenant::Create(runtime(), {.name = "tenant"}));
  const VirtualDevice device = Must(VirtualDevice::Create(gpu, tenant, "memory=256MiB"));
  const Stream stream = Must(Stream::Create(device)), other = Must(Stream::Create(device));
  const Allocator allocator;
};

void Tell(benchmark::State& state, const std::vector<double>& us) {
  state.counters["us_p50"] = Quantile(us, 0.5);
  state.counters["us_p99"] = Quantile(us, 0.99);
}

double Since(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

void Served(benchmark::State& state) {
  Bed bed(state.range(0));
  const bool in_stream = state.range(1) != 0;
  std::vector<double> us;
  for (auto _ : state) {
    Allocation held = in_stream ? Must(bed.allocator.Allocate(Bed::kBytes, bed.stream))
                                : Must(bed.allocator.Allocate(Bed::kBytes));
    Clock::time_point freed;
    const Clock::time_point served = bed.Round([&] {
      freed = Clock::now();
      if (!held.Free().ok()) std::exit(1);
    });
    us.push_back(Since(freed, served) * 1e6);
    state.SetIterationTime(Since(freed, served));
  }
  Tell(state, us);
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

void Reached(benchmark::State& state) {
  static const Module module = Must(Module::Load(Must(Gpu::Open(Bed::runtime(), "0")), kPtx));
  const Function spin = Must(module.GetFunction("spin"));
  Bed bed(state.range(0));
  std::vector<double> us;
  for (auto _ : state) {
    Allocation held = Must(bed.allocator.Allocate(Bed::kBytes, bed.other));
    Clock::time_point reached;
    const Clock::time_point served = bed.Round([&] {
      constexpr uint64_t kNs = 1'300'000;
      const auto stamp = [](void* at) { *static_cast<Clock::time_point*>(at) = Clock::now(); };
      if (!bed.other.Launch(spin, {.grid = {1}, .block = {32}}, kNs).ok() ||
          !bed.other.LaunchHost(stamp, &reached).ok() || !held.Free().ok()) {
        std::exit(1);
      }
    });
    us.push_back(Since(reached, served) * 1e6);
    state.SetIterationTime(Since(reached, served));
  }
  Tell(state, us);
}
BENCHMARK(Reached)->ArgName("strategy")->Arg(1)->Arg(2)->UseManualTime()->Iterations(400);

}  // namespace

BENCHMARK_MAIN();
