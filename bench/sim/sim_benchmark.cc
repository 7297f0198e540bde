// SPDX-License-Identifier: Apache-2.0
// Measures the wall time of the simulated GPU. Bars: a launch without a switch <= 50 ns, >= 200,000 switches of the turn per
// second.
#include <benchmark/benchmark.h>
#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "gpushare/testing/sim.h"

namespace {

constexpr char kPtx[] = R"(.version 7.5
.target sm_90
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry spin(.param .u64 ns) { ret; }
//gpushare.sim cost=14us blocks_per_sm=1
.visible .entry k_14us() { ret; }
)";

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s failed: %d\n", what, static_cast<int>(result));
  std::exit(1);
}

// A device for one benchmark. The calling thread is registered.
class Fixture {
 public:
  explicit Fixture(const char* config) {
    if (gpushare_sim_configure(config, nullptr, 0) != 0) std::exit(1);
    gpushare_sim_thread_enter("benchmark");
    Check(cuInit(0), "cuInit");
    Check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    Check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    Check(cuModuleLoadData(&module, kPtx), "cuModuleLoadData");
    Check(cuModuleGetFunction(&spin, module, "spin"), "cuModuleGetFunction");
    Check(cuModuleGetFunction(&k_14us, module, "k_14us"), "cuModuleGetFunction");
  }
  ~Fixture() {
    gpushare_sim_thread_leave();
    gpushare_sim_reset();
  }
  static CUstream NewStream() {
    CUstream stream = nullptr;
    Check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return stream;
  }
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction spin = nullptr, k_14us = nullptr;
};

// One thread launches kernels of 14 us. The queue is full, so every launch waits for a completion.
void BM_SimLaunch(benchmark::State& bench) {
  Fixture fixture("");
  const CUstream stream = Fixture::NewStream();
  for (auto _ : bench) {
    benchmark::DoNotOptimize(
        cuLaunchKernel(fixture.k_14us, 132, 1, 1, 128, 1, 1, 0, stream, nullptr, nullptr));
  }
}
BENCHMARK(BM_SimLaunch);

// The same with kernels shorter than a launch, so that every kernel finds its stream idle.
void BM_SimLaunchIdleStream(benchmark::State& bench) {
  Fixture fixture("");
  const CUstream stream = Fixture::NewStream();
  uint64_t ns = 500;
  void* parameters[] = {&ns};
  for (auto _ : bench) {
    benchmark::DoNotOptimize(
        cuLaunchKernel(fixture.spin, 132, 1, 1, 128, 1, 1, 0, stream, parameters, nullptr));
  }
}
BENCHMARK(BM_SimLaunchIdleStream);

// Only the call: no kernel begins or ends meanwhile, and the stream is busy and has room.
void BM_SimLaunchQueued(benchmark::State& bench) {
  constexpr int kBlock = 512;
  Fixture fixture("");
  const CUstream stream = Fixture::NewStream();
  uint64_t ns = 1'000'000'000;
  void* parameters[] = {&ns};
  for (auto _ : bench) {
    ns = 1'000'000'000;  // the first kernel holds up those behind it
    cuLaunchKernel(fixture.spin, 132, 1, 1, 128, 1, 1, 0, stream, parameters, nullptr);
    ns = 500;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kBlock; ++i) {
      benchmark::DoNotOptimize(
          cuLaunchKernel(fixture.spin, 132, 1, 1, 128, 1, 1, 0, stream, parameters, nullptr));
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    bench.SetIterationTime(took.count() / kBlock);
    Check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
}
BENCHMARK(BM_SimLaunchQueued)->UseManualTime()->Iterations(4000);

void BM_SimEventQuery(benchmark::State& bench) {
  Fixture fixture("");
  CUevent event;
  Check(cuEventCreate(&event, 0), "cuEventCreate");
  for (auto _ : bench) benchmark::DoNotOptimize(cuEventQuery(event));
}
BENCHMARK(BM_SimEventQuery);

void BM_SimMemAllocFree(benchmark::State& bench) {
  Fixture fixture("");
  std::vector<CUdeviceptr> live(static_cast<size_t>(bench.range(0)));
  for (CUdeviceptr& pointer : live) Check(cuMemAlloc(&pointer, 4096), "cuMemAlloc");
  for (auto _ : bench) {
    CUdeviceptr pointer;
    cuMemAlloc(&pointer, 4096);
    cuMemFree(pointer);
  }
}
BENCHMARK(BM_SimMemAllocFree)->Arg(0)->Arg(1000)->Arg(100000);

// Threads that spend equal times, so that every spend is a switch.
void BM_SimSwitch(benchmark::State& bench) {
  Fixture fixture("");
  const auto threads = static_cast<int>(bench.range(0));
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) {
    others.emplace_back([&stop, number = gpushare_sim_thread_announce("other")] {
      gpushare_sim_thread_enter_announced(number);
      while (!stop) gpushare_sim_spend(1000);
      gpushare_sim_thread_leave();
    });
  }
  for (auto _ : bench) gpushare_sim_spend(1000);
  bench.counters["switches"] = benchmark::Counter(static_cast<double>(bench.iterations()) * threads,
                                                  benchmark::Counter::kIsRate);
  stop = true;
  gpushare_sim_external_begin();
  for (std::thread& thread : others) thread.join();
  gpushare_sim_external_end();
}
BENCHMARK(BM_SimSwitch)->Arg(2)->Arg(8)->UseRealTime();

// Four threads launch kernels with mixed footprints until 100 ms of device time have passed.
void BM_SimFourThreads(benchmark::State& bench) {
  Fixture fixture("");
  uint64_t kernels = 0, simulated = 0;
  for (auto _ : bench) {
    const uint64_t start = gpushare_sim_now(), end = start + 100'000'000;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) {
      threads.emplace_back([&, i, number = gpushare_sim_thread_announce("tenant")] {
        gpushare_sim_thread_enter_announced(number);
        Check(cuCtxSetCurrent(fixture.context), "cuCtxSetCurrent");
        const CUstream stream = Fixture::NewStream();
        uint64_t ns = 5000 + 3000 * i, launched = 0;
        void* parameters[] = {&ns};
        while (gpushare_sim_now() < end) {
          cuLaunchKernel(fixture.spin, 40 + 40 * i, 1, 1, 128, 1, 1, 0, stream, parameters,
                         nullptr);
          ++launched;
        }
        Check(cuStreamSynchronize(stream), "cuStreamSynchronize");
        Check(cuStreamDestroy(stream), "cuStreamDestroy");
        kernels += launched;
        gpushare_sim_thread_leave();
      });
    }
    gpushare_sim_external_begin();
    for (std::thread& thread : threads) thread.join();
    gpushare_sim_external_end();
    simulated += gpushare_sim_now() - start;
  }
  bench.counters["kernels"] =
      benchmark::Counter(static_cast<double>(kernels), benchmark::Counter::kIsRate);
  bench.counters["simulated_s_per_s"] =
      benchmark::Counter(static_cast<double>(simulated) / 1e9, benchmark::Counter::kIsRate);
}
BENCHMARK(BM_SimFourThreads)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
