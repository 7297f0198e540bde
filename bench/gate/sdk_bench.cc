// SPDX-License-Identifier: Apache-2.0
// Measures what Stream::Launch costs beside the driver's own call: both in turns in one process, in batches of ten, on the virtual
// clock. `sdk_ns` and `driver_ns` are the medians of the batches, for one launch; `more_ns` is the difference.
//
// In some batches the gate asks for the next grant, or its thread gets the clock's turn and gives it back. These have no
// part in the medians, as in bench/shim/calls.c.
//
// Bar: 8 ns more.
#include <benchmark/benchmark.h>
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "gpushare/gpu.h"
#include "gpushare/module.h"
#include "gpushare/runtime.h"
#include "gpushare/stream.h"
#include "gpushare/tenant.h"
#include "gpushare/testing/sim.h"
#include "gpushare/virtual_device.h"

namespace gpushare {
namespace {

constexpr int kLaunches = 10, kBatches = 10'000, kInFlight = 200;
constexpr char kPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=1us blocks_per_sm=1
.visible .entry shortly() { ret; }
)";

void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}
void Must(CUresult result) {
  if (result != CUDA_SUCCESS) std::exit(1);
}
template <typename T>
T Must(absl::StatusOr<T> value) {
  Must(value.status());
  return *std::move(value);
}

template <typename Launch>
double Batch(const Launch& launch) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kLaunches; ++i) launch();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
}

// The mean of the middle fifth of the batches that take at most three times the least, for one launch.
double Median(std::vector<double> batches) {
  std::sort(batches.begin(), batches.end());
  batches.erase(std::upper_bound(batches.begin(), batches.end(), 3 * batches.front()),
                batches.end());
  const auto fifth = static_cast<std::ptrdiff_t>(batches.size() / 5 + 1);
  const auto begin = batches.begin() + (static_cast<std::ptrdiff_t>(batches.size()) - fifth) / 2;
  return std::accumulate(begin, begin + fifth, 0.0) / static_cast<double>(fifth) / kLaunches;
}

void BM_Launch(benchmark::State& state) {
  const Runtime runtime = Must(Runtime::Create({.driver = "sim", .simulation = "memory=64GiB"}));
  runtime.Symbol<decltype(gpushare_sim_thread_enter)>("gpushare_sim_thread_enter")("sdk_bench");
  {
    const Gpu gpu = Must(Gpu::Open(runtime, "0"));
    const Module module = Must(Module::Load(gpu, kPtx));
    const Function function = Must(module.GetFunction("shortly"));
    const Tenant tenant = Must(Tenant::Create(runtime, {.name = "bench"}));
    const VirtualDevice device =
        Must(VirtualDevice::Create(gpu, tenant, "memory=8GiB,cap=99%"));  // that it never reaches
    const Stream stream = Must(Stream::Create(device));
    auto* const launch = runtime.Symbol<decltype(cuLaunchKernel)>("cuLaunchKernel");
    CUstream bare = nullptr;
    Must(runtime.Symbol<decltype(cuStreamCreate)>("cuStreamCreate")(&bare, CU_STREAM_NON_BLOCKING));
    const auto sdk = [&] { Must(stream.Launch(function, {.grid = {1}, .block = {32}})); };
    const auto driver = [&] {
      Must(launch(function.native(), 1, 1, 1, 32, 1, 1, 0, bare, nullptr, nullptr));
    };
    const auto rest = runtime.Symbol<decltype(cuCtxSynchronize)>("cuCtxSynchronize");
    std::vector<double> by_sdk, by_driver;
    int batches = 0;
    for (auto _ : state) {
      by_sdk.push_back(Batch(sdk));
      by_driver.push_back(Batch(driver));
      state.SetIterationTime(by_sdk.back() / kLaunches / 1e9);
      if (++batches % (kInFlight / kLaunches) == 0) Must(rest());
    }
    const double sdk_ns = Median(by_sdk), driver_ns = Median(by_driver);
    state.counters["sdk_ns"] = sdk_ns;
    state.counters["driver_ns"] = driver_ns;
    state.counters["more_ns"] = sdk_ns - driver_ns;
  }
  runtime.Symbol<decltype(gpushare_sim_thread_leave)>("gpushare_sim_thread_leave")();
}
BENCHMARK(BM_Launch)->UseManualTime()->Iterations(kBatches);

}  // namespace
}  // namespace gpushare

BENCHMARK_MAIN();
