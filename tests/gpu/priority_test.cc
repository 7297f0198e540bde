// SPDX-License-Identifier: Apache-2.0
// An online service of high priority beside best-effort training: its latency alone and shared.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/gpu/bed.h"

namespace gpushare::gpu_test {
namespace {

constexpr absl::Duration kLength = absl::Seconds(6);
constexpr int kKernelsOfARequest = 20;
constexpr absl::Duration kRequestKernel = absl::Microseconds(100);
constexpr absl::Duration kTrainingKernel = absl::Microseconds(250);

class PriorityTest : public GpuTest {
 protected:
  // Open-loop Poisson arrivals, the same in every run, served one after the other. Returns the times from arrival to
  // completion.
  std::vector<absl::Duration> Serve(const Player& service, double load, absl::Duration stop) {
    const SpinKernel kernel = Spin(service, kRequestKernel);
    std::mt19937_64 random(7);
    std::exponential_distribution<double> gap(
        load / absl::ToDoubleSeconds(kKernelsOfARequest * kRequestKernel));
    std::vector<absl::Duration> latencies;
    for (absl::Duration arrival = stop - kLength;;) {
      arrival += absl::Seconds(gap(random));
      if (arrival >= stop) break;
      runtime().SleepUntil(arrival);
      for (int i = 0; i < kKernelsOfARequest; ++i) {
        const absl::Status launched = kernel.Launch(service.stream);
        EXPECT_TRUE(launched.ok()) << launched;
        if (!launched.ok()) return latencies;
      }
      const absl::Status done = service.stream.Synchronize();
      EXPECT_TRUE(done.ok()) << done;
      if (!done.ok()) return latencies;
      latencies.push_back(runtime().Now() - arrival);
    }
    return latencies;
  }

  static double QuantileUs(std::vector<absl::Duration> latencies, double q) {
    std::sort(latencies.begin(), latencies.end());
    const auto rank = static_cast<size_t>(q * static_cast<double>(latencies.size() - 1));
    return absl::ToDoubleMicroseconds(latencies[rank]);
  }

  void ExpectLatencyHolds(double load) {
    Player& service = Add("service", "priority=high");
    std::vector<absl::Duration> alone, shared;
    OnClock([&] {
      Together(kLength, {[&](absl::Duration stop) { alone = Serve(service, load, stop); }});
    });
    Player& training = Add("training", "priority=low");
    OnClock([&] {
      Together(kLength, {[&](absl::Duration stop) { shared = Serve(service, load, stop); },
                         [&](absl::Duration stop) {
                           Backlogged(training, Spin(training, kTrainingKernel), stop);
                         }});
    });
    if (HasFailure()) return;
    const Timeline timeline = Witnessed();
    ASSERT_GE(alone.size(), 400u);
    ASSERT_EQ(alone.size(), shared.size());
    const double alone_p99 = QuantileUs(alone, 0.99), shared_p99 = QuantileUs(shared, 0.99);
    const absl::Duration skip = absl::Milliseconds(500), rest = timeline.length() - skip;
    const double left_over = 1 - timeline.OfDevice(0, skip, rest);
    const double used_of_it = timeline.OfDevice(1, skip, rest) / left_over;
    Figure("p50_alone_us", QuantileUs(alone, 0.5));
    Figure("p50_shared_us", QuantileUs(shared, 0.5));
    Figure("p99_alone_us", alone_p99);
    Figure("p99_shared_us", shared_p99);
    Figure("best_effort_of_left_over", used_of_it);
    EXPECT_LE(shared_p99, 1.05 * alone_p99 + absl::ToDoubleMicroseconds(kTrainingKernel));
    EXPECT_GE(used_of_it, 0.95);
  }
};

TEST_F(PriorityTest, LatencyAt20PercentLoad) { ExpectLatencyHolds(0.2); }
TEST_F(PriorityTest, LatencyAt50PercentLoad) { ExpectLatencyHolds(0.5); }

}  // namespace
}  // namespace gpushare::gpu_test
