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

using Clock = std::chrono::steady_clock;

double NanosEach(Clock::duration took, int of) {
  return std::chrono::duration<double, std::nano>(took).count() / of;
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
  // A stream whose handle the program has: other libraries may capture it, so the driver is asked before each launch.
  const absl::StatusOr<Stream> shared = Stream::Create(player.device);
  GPUSHARE_GPU_TEST_OK(shared.status());
  const absl::StatusOr<CUstream_st*> native = shared->native();
  GPUSHARE_GPU_TEST_OK(native.status());
  void* no_parameters[1] = {nullptr};
  const LaunchShape shape{.grid = {1}, .block = {32}};

  // The batches alternate, so that changes of the processor's clock affect all kinds.
  constexpr int kBatch = 256, kBatches = 600;
  enum Kind { kBare, kOwn, kShared, kBeside, kKinds };
  std::vector<double> took[kKinds];
  const auto run = [&](Kind kind) {
    const Stream& stream = kind == kOwn || kind == kBeside ? player.stream : *shared;
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kBatch; ++i) {
      if (kind == kBare) {
        ASSERT_EQ(launch(nothing->native(), 1, 1, 1, 32, 1, 1, 0, *native, nullptr, nullptr), 0);
      } else {
        GPUSHARE_GPU_TEST_OK(stream.LaunchRaw(nothing->native(), shape, no_parameters));
      }
    }
    took[kind].push_back(NanosEach(Clock::now() - start, kBatch));
    GPUSHARE_GPU_TEST_OK(stream.Synchronize());
  };
  const auto markers = [&] { return static_cast<double>(player.device.stats()->compute.markers); };
  const double before = markers();
  for (int batch = 0; batch < kBatches; ++batch) {
    for (const Kind kind : {kBare, kOwn, kShared}) run(kind);
  }
  Figure("markers_per_launch", (markers() - before) / (2.0 * kBatch * kBatches));
  Add("b", "");
  for (int batch = 0; batch < kBatches / 4; ++batch) run(kBeside);

  // Batches that were hit by an interrupt are left out of all kinds, and so are the first ones.
  constexpr double kPart = 0.95;
  constexpr int kFirst = 20;
  double mean[kKinds];
  for (int kind = 0; kind < kKinds; ++kind) {
    took[kind].erase(took[kind].begin(), took[kind].begin() + kFirst);
    mean[kind] = MeanOfLower(took[kind], kPart);
  }
  const double bare = Median(took[kBare]);
  Figure("bare_median_ns", bare);
  Figure("added_median_ns", Median(took[kOwn]) - bare);
  Figure("added_mean_ns", mean[kOwn] - mean[kBare]);
  Figure("added_mean_ns_handle_is_shared", mean[kShared] - mean[kBare]);
  Figure("added_mean_ns_beside_an_idle_tenant", mean[kBeside] - mean[kBare]);
  EXPECT_LE(mean[kOwn] - mean[kBare], 60);
}

}  // namespace
}  // namespace gpushare::gpu_test
