// SPDX-License-Identifier: Apache-2.0
// The gate's cost for a launch, including markers, compared with the driver's own call.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "tests/gpu/bed.h"

namespace gpushare::gpu_test {
namespace {

constexpr char kNothing[] = R"(
.version 7.0
.target sm_70
.address_size 64

//gpushare.sim cost=1us blocks_per_sm=1
.visible .entry nothing()
{
  ret;
}
)";

using CuLaunchKernel = int(CUfunc_st*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, CUstream_st*, void**, void**);

class LaunchCost : public GpuTest {};

double MeanOfLower(std::vector<double> samples, double part) {
  std::sort(samples.begin(), samples.end());
  const auto n = static_cast<size_t>(part * static_cast<double>(samples.size()));
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += samples[i];
  return sum / static_cast<double>(n);
}

double Median(std::vector<double> samples) {
  std::nth_element(samples.begin(),
                   samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2),
                   samples.end());
  return samples[samples.size() / 2];
}

TEST_F(LaunchCost, GateAddsLessThan60ns) {
  if (simulated()) {
    GTEST_SKIP() << "on the simulated GPU's virtual clock computing costs nothing; bench/gate "
                    "measures the gate "
                    "over the simulated driver on the machine's clock";
  }
  Player& player = Add("a", "");
  const absl::StatusOr<Module> module = Module::Load(gpu(), kNothing);
  GPUSHARE_GPU_TEST_OK(module.status());
  const absl::StatusOr<Function> nothing = module->GetFunction("nothing");
  GPUSHARE_GPU_TEST_OK(nothing.status());
  auto* launch = runtime().Symbol<CuLaunchKernel>("cuLaunchKernel");
  ASSERT_NE(launch, nullptr);
  CUstream_st* native = *player.stream.native();
  void* no_parameters[1] = {nullptr};
  const LaunchShape shape{.grid = {1}, .block = {32}};

  // The batches alternate, so that changes of the processor's clock affect both kinds. They are long enough for the
  // gated ones to contain their markers: one for every 64 launches or 100 us of predicted work.
  constexpr int kBatch = 256, kBatches = 800;
  using Clock = std::chrono::steady_clock;
  std::vector<double> bare, gated;
  for (int batch = -20; batch < kBatches; ++batch) {
    GPUSHARE_GPU_TEST_OK(player.stream.Synchronize());
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kBatch; ++i) {
      ASSERT_EQ(launch(nothing->native(), 1, 1, 1, 32, 1, 1, 0, native, nullptr, nullptr), 0);
    }
    const Clock::time_point middle = Clock::now();
    GPUSHARE_GPU_TEST_OK(player.stream.Synchronize());
    const Clock::time_point again = Clock::now();
    for (int i = 0; i < kBatch; ++i) {
      GPUSHARE_GPU_TEST_OK(player.stream.LaunchRaw(nothing->native(), shape, no_parameters));
    }
    const Clock::time_point end = Clock::now();
    if (batch < 0) continue;
    const auto ns_each = [](Clock::duration d) {
      return std::chrono::duration<double, std::nano>(d).count() / kBatch;
    };
    bare.push_back(ns_each(middle - start));
    gated.push_back(ns_each(end - again));
  }
  // Batches that were hit by an interrupt are left out on both sides.
  constexpr double kPart = 0.95;
  const double added_mean = MeanOfLower(gated, kPart) - MeanOfLower(bare, kPart);
  Figure("bare_median_ns", Median(bare));
  Figure("gated_median_ns", Median(gated));
  Figure("added_median_ns", Median(gated) - Median(bare));
  Figure("added_mean_ns", added_mean);
  Figure("markers_per_launch", static_cast<double>(player.device.stats()->compute.markers) /
                                   static_cast<double>(player.device.stats()->compute.launches));
  EXPECT_LE(added_mean, 60);
}

}  // namespace
}  // namespace gpushare::gpu_test
