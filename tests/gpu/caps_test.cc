// SPDX-License-Identifier: Apache-2.0
// A cap holds for a tenant that is alone, whatever the shape of its work.
#include <gtest/gtest.h>

#include <string>

#include "tests/gpu/bed.h"

namespace gpushare::gpu_test {
namespace {

class Caps : public GpuTest {
 protected:
  // The excess is at most 0.5 points and one command relative to the window. The shortfall may be one point more,
  // since gaps between launches cannot be made up at once.
  void ExpectWithinCap(const Timeline& timeline, double cap, absl::Duration command) {
    ASSERT_GE(timeline.Windows(kSettle), 50);
    const double most = timeline.MostOfDevice(0, kSettle);
    const double least = timeline.LeastOfDevice(0, kSettle);
    const double slack = 0.005 + absl::FDivDuration(command, kWindow);
    Figure("cap", cap);
    Figure("most", most);
    Figure("least", least);
    EXPECT_LE(most, cap + slack);
    EXPECT_GE(least, cap - slack - 0.01);
  }

  void ExpectCapHolds(double cap, absl::Duration kernel_length, bool synchronize) {
    Player& player = Add("capped", "cap=" + std::to_string(100 * cap) + "%");
    OnClock([&] {
      Together(absl::Seconds(3.5), {[&](absl::Duration stop) {
                 Backlogged(player, Spin(player, kernel_length), stop, synchronize);
               }});
    });
    if (HasFailure()) return;
    ExpectWithinCap(Witnessed(), cap, kernel_length);
  }
};

TEST_F(Caps, TenPercent) { ExpectCapHolds(0.10, absl::Microseconds(100), false); }
TEST_F(Caps, ThirtyPercent) { ExpectCapHolds(0.30, absl::Microseconds(100), false); }
TEST_F(Caps, FiftyPercent) { ExpectCapHolds(0.50, absl::Microseconds(100), false); }
TEST_F(Caps, EightyPercent) { ExpectCapHolds(0.80, absl::Microseconds(100), false); }
TEST_F(Caps, ThirtyPercentOf14us) { ExpectCapHolds(0.30, absl::Microseconds(14), false); }
TEST_F(Caps, ThirtyPercentOf10ms) { ExpectCapHolds(0.30, absl::Milliseconds(10), false); }
TEST_F(Caps, ThirtyPercentSynchronizingEachLaunch) {
  ExpectCapHolds(0.30, absl::Microseconds(100), true);
}

TEST_F(Caps, ResizeTakesHoldAtOnce) {
  Player& player = Add("capped", "cap=80%");
  OnClock([&] {
    Together(absl::Seconds(4), {[&](absl::Duration stop) {
               const SpinKernel kernel = Spin(player, absl::Microseconds(100));
               Backlogged(player, kernel, stop - absl::Seconds(2));
               GPUSHARE_GPU_TEST_OK(player.device.Resize("cap=20%"));
               Backlogged(player, kernel, stop);
             }});
  });
  if (HasFailure()) return;
  const Timeline timeline = Witnessed();
  const double before = timeline.OfDevice(0, absl::Milliseconds(900), kWindow);
  // From a tenth of a second after the change on.
  const double after = timeline.OfDevice(0, absl::Milliseconds(2100), kWindow);
  Figure("before", before);
  Figure("after", after);
  EXPECT_NEAR(before, 0.80, 0.015);
  EXPECT_NEAR(after, 0.20, 0.015);
}

// Replays of a graph are charged and limited like launches.
TEST_F(Caps, ThirtyPercentOfGraphReplays) {
  Player& player = Add("capped", "cap=30%");
  constexpr int kKernels = 20;
  constexpr absl::Duration kKernel = absl::Microseconds(25);
  OnClock([&] {
    const SpinKernel kernel = Spin(player, kKernel);
    GPUSHARE_GPU_TEST_OK(player.stream.BeginCapture());
    for (int i = 0; i < kKernels; ++i) GPUSHARE_GPU_TEST_OK(kernel.Launch(player.stream));
    const absl::StatusOr<Graph> graph = player.stream.EndCapture();
    GPUSHARE_GPU_TEST_OK(graph.status());
    Together(absl::Seconds(3.5), {[&](absl::Duration stop) {
               while (runtime().Now() < stop) {
                 GPUSHARE_GPU_TEST_OK(player.stream.LaunchGraph(*graph));
               }
             }});
  });
  if (HasFailure()) return;
  const Timeline timeline = Witnessed();
  ExpectWithinCap(timeline, 0.30, kKernels * kKernel);
  const absl::StatusOr<VirtualDeviceStats> stats = player.device.stats();
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_GE(stats->compute.graph_launches, 1000u);
  const absl::Duration used = timeline.Used(0, absl::ZeroDuration(), timeline.length());
  const double charged_by_used = absl::FDivDuration(stats->compute.charged, used);
  Figure("charged_by_used", charged_by_used);
  // The first replays ran before the limit had its first measurement; nothing stays uncharged for long.
  EXPECT_NEAR(charged_by_used, 1.0, 0.03);
}

}  // namespace
}  // namespace gpushare::gpu_test
