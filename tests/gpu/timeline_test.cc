// SPDX-License-Identifier: Apache-2.0
// Tests the instrument of the other tests, also on machines without a GPU.
#include "tests/gpu/timeline.h"

#include <gtest/gtest.h>

namespace gpushare::gpu_test {
namespace {

constexpr absl::Duration kStep = absl::Nanoseconds(10);

TEST(Timeline, RunsInTurnHaveTheirLengths) {
  // 30 ns of tenant 0 and 10 ns of tenant 1, repeatedly.
  std::vector<KernelRun> runs;
  for (int i = 0; i < 100; ++i) {
    const double at = 1e9 + 40.0 * i;
    runs.push_back({0, at, at + 30});
    runs.push_back({1, at + 30, at + 40});
  }
  const Timeline timeline = TimelineOf(runs, 2, kStep, absl::ZeroDuration());
  EXPECT_GE(timeline.length(), absl::Nanoseconds(3960));
  EXPECT_NEAR(timeline.Share(0, absl::ZeroDuration(), absl::Nanoseconds(2000)), 0.75, 1e-9);
  EXPECT_NEAR(timeline.Share(1, absl::Nanoseconds(400), absl::Nanoseconds(800)), 0.25, 1e-9);
  EXPECT_NEAR(timeline.OfDevice(1, absl::Nanoseconds(400), absl::Nanoseconds(800)), 0.25, 1e-9);
}

TEST(Timeline, OverlapIsDividedEqually) {
  const Timeline timeline = TimelineOf({{0, 0, 100}, {1, 50, 150}, {0, 150, 200}, {1, 190, 200}}, 2,
                                       kStep, absl::ZeroDuration());
  EXPECT_EQ(timeline.Used(0, absl::ZeroDuration(), absl::Nanoseconds(150)), absl::Nanoseconds(75));
  EXPECT_EQ(timeline.Used(1, absl::ZeroDuration(), absl::Nanoseconds(150)), absl::Nanoseconds(75));
}

TEST(Timeline, ShortPausesAreTheNextRunsAndLongOnesNobodys) {
  // A pause of 3 ns counts for the next run, and one of 40 ns for nobody.
  const Timeline timeline = TimelineOf({{0, 0, 47}, {1, 50, 100}, {0, 140, 200}, {1, 190, 200}}, 2,
                                       kStep, absl::Nanoseconds(5));
  EXPECT_EQ(timeline.Used(0, absl::ZeroDuration(), absl::Nanoseconds(100)), absl::Nanoseconds(47));
  EXPECT_EQ(timeline.Used(1, absl::ZeroDuration(), absl::Nanoseconds(100)), absl::Nanoseconds(53));
  EXPECT_EQ(timeline.Used(0, absl::Nanoseconds(100), absl::Nanoseconds(40)), absl::ZeroDuration());
}

TEST(Timeline, EndsWhenTheFirstTenantHasNoWorkLeft) {
  const Timeline timeline =
      TimelineOf({{0, 0, 100}, {1, 100, 200}, {0, 200, 1000}}, 2, kStep, absl::ZeroDuration());
  EXPECT_EQ(timeline.length(), absl::Nanoseconds(200));
}

}  // namespace
}  // namespace gpushare::gpu_test
