// SPDX-License-Identifier: Apache-2.0
// Measures how long after memory was freed a thread that waits for it has it, by the machine's clock.
//
// On the simulated GPU with clock=wall: one thread waits at the quota, another one frees the memory. The time is from before
// the freeing call to the return of the waiting one, so it includes the driver's calls of both and the machine's wake-up of a
// thread. `us_p50` and `us_p99` are over all rounds. Bar: 20 us. On the virtual clock, where calls and wake-ups take no time,
// it is 0 (tests/unit/device/served_test.cc).
//
//   Served/<strategy>/<in a stream>   strategies: 0 direct, 1 pool, 2 suballocating; 1: freed on a stream that is idle
//   Reached/<strategy>                 freed behind a kernel that is still running: the time is from a host function that
//                                      the stream reaches just before the free
//   Bare/<calls>                       a lower bound for any implementation, on the bare driver: a host function behind the
//                                      same kernel wakes a thread, which calls nothing (0), or returns the pool's idle
//                                      memory and allocates (1)
#include <benchmark/benchmark.h>
#include <cuda.h>

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

// A waiter polls each millisecond. When the stream reaches the free, 2.5 ms after the waiter came, the waiter is asleep.
constexpr uint64_t kKernelNs = 800'000;

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

  // Frees the memory that another thread waits for. By then that thread is in the queue and asleep; it polls only each
  // millisecond. Returns when the thread had the memory.
  template <typename Free>
  Clock::time_point Round(const Free& free) {
    std::atomic<bool> there{false};
    Clock::time_point served;
    std::thread waiter([&] {
      there.store(true);
      const Allocation got =
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
      const auto stamp = [](void* at) { *static_cast<Clock::time_point*>(at) = Clock::now(); };
      if (!bed.other.Launch(spin, {.grid = {1}, .block = {32}}, kKernelNs).ok() ||
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

void Try(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  std::cerr << "driver: " << static_cast<int>(result) << "\n";
  std::exit(1);
}

void Bare(benchmark::State& state) {
  const bool calls = state.range(0) != 0;
  const Gpu gpu = Must(Gpu::Open(Bed::runtime(), "0"));
  CUcontext context = nullptr;
  Try(cuDevicePrimaryCtxRetain(&context, 0));
  Try(cuCtxSetCurrent(context));
  CUmodule module = nullptr;
  Try(cuModuleLoadData(&module, kPtx));
  CUfunction spin = nullptr;
  Try(cuModuleGetFunction(&spin, module, "spin"));
  CUstream stream = nullptr, other = nullptr;
  Try(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  Try(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  CUmemoryPool pool = nullptr;
  Try(cuMemPoolCreate(&pool, &properties));
  cuuint64_t keep = UINT64_MAX;
  Try(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  struct Word {
    std::atomic<uint32_t> told{0};
    Clock::time_point reached;
  } word;
  std::vector<double> us;
  for (auto _ : state) {
    CUdeviceptr held = 0, got = 0;
    Try(cuMemAllocFromPoolAsync(&held, Bed::kBytes.count(), pool, other));
    Clock::time_point served;
    std::thread waiter([&] {
      Try(cuCtxSetCurrent(context));
      word.told.wait(0);
      if (calls) {
        Try(cuMemPoolTrimTo(pool, 0));
        Try(cuMemAllocFromPoolAsync(&got, Bed::kBytes.count(), pool, stream));
      }
      served = Clock::now();
    });
    std::this_thread::sleep_for(std::chrono::microseconds(1700));
    uint64_t ns = kKernelNs;
    void* parameters[] = {&ns};
    Try(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, other, parameters, nullptr));
    const auto stamp = [](void* at) { static_cast<Word*>(at)->reached = Clock::now(); };
    const auto tell = [](void* at) {
      static_cast<Word*>(at)->told.store(1);
      static_cast<Word*>(at)->told.notify_one();
    };
    Try(cuLaunchHostFunc(other, stamp, &word));
    Try(cuMemFreeAsync(held, other));
    Try(cuLaunchHostFunc(other, tell, &word));
    waiter.join();
    if (got != 0) Try(cuMemFreeAsync(got, stream));
    Try(cuCtxSynchronize());
    word.told.store(0);
    us.push_back(Since(word.reached, served) * 1e6);
    state.SetIterationTime(Since(word.reached, served));
  }
  Tell(state, us);
  Try(cuMemPoolDestroy(pool));
  Try(cuStreamDestroy(stream));
  Try(cuStreamDestroy(other));
  Try(cuModuleUnload(module));
  Try(cuDevicePrimaryCtxRelease(0));
}
BENCHMARK(Bare)->ArgName("calls")->Arg(0)->Arg(1)->UseManualTime()->Iterations(400);

}  // namespace

BENCHMARK_MAIN();
