// SPDX-License-Identifier: Apache-2.0
// Shares of backlogged tenants by the device's own record, in windows of one second that slide by 10 ms.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/gpu/bed.h"

namespace gpushare::gpu_test {
namespace {

class Shares : public GpuTest {
 protected:
  struct Load {
    double weight;
    absl::Duration kernel;
    bool synchronize = false;
  };

  // Runs the loads for some seconds. In every window each tenant's share must match its weight.
  void ExpectSharesByWeight(const std::vector<Load>& loads, double tolerance) {
    double weights = 0;
    std::vector<Player*> players;
    for (size_t i = 0; i < loads.size(); ++i) {
      players.push_back(
          &Add("tenant-" + std::to_string(i), "weight=" + std::to_string(loads[i].weight)));
      weights += loads[i].weight;
    }
    OnClock([&] {
      std::vector<Body> bodies;
      for (size_t i = 0; i < loads.size(); ++i) {
        bodies.push_back([&, i](absl::Duration stop) {
          Backlogged(*players[i], Spin(*players[i], loads[i].kernel), stop, loads[i].synchronize);
        });
      }
      Together(absl::Seconds(4), bodies);
    });
    if (HasFailure()) return;
    const Timeline timeline = Witnessed();
    ASSERT_GE(timeline.Windows(kSettle), 100);
    double busy = 0;
    for (size_t i = 0; i < loads.size(); ++i) {
      const double want = loads[i].weight / weights;
      const double off = timeline.WorstShareError(i, want, kSettle);
      const absl::Duration rest = timeline.length() - kSettle;
      Figure("share_" + std::to_string(i), timeline.Share(i, kSettle, rest));
      Figure("worst_window_error_" + std::to_string(i), off);
      EXPECT_LE(off, tolerance) << "tenant " << i << " wants " << want;
      busy += timeline.OfDevice(i, kSettle, rest);

      // Compares the books with the witness. The books also contain the time before and after the windows.
      const absl::StatusOr<VirtualDeviceStats> stats = players[i]->device.stats();
      ASSERT_TRUE(stats.ok()) << stats.status();
      const double used =
          absl::ToDoubleSeconds(timeline.Used(i, absl::ZeroDuration(), timeline.length()));
      Figure("charged_by_used_" + std::to_string(i),
             absl::ToDoubleSeconds(stats->compute.charged) / used);
    }
    Figure("device_busy", busy);
    EXPECT_GE(busy, 0.98) << "the device idled while all tenants had work";
  }
};

TEST_F(Shares, ThreeToOneOf14usAnd1ms) {
  ExpectSharesByWeight({{3, absl::Microseconds(14)}, {1, absl::Milliseconds(1)}}, 0.01);
}

TEST_F(Shares, ThreeToOneOf1msAnd14us) {
  ExpectSharesByWeight({{3, absl::Milliseconds(1)}, {1, absl::Microseconds(14)}}, 0.01);
}

TEST_F(Shares, FourTenantsOfMixedSizes) {
  ExpectSharesByWeight({{1, absl::Microseconds(14)},
                        {2, absl::Microseconds(50)},
                        {3, absl::Microseconds(200)},
                        {4, absl::Milliseconds(1)}},
                       0.01);
}

TEST_F(Shares, OneOfTwoSynchronizesEachLaunch) {
  ExpectSharesByWeight(
      {{1, absl::Microseconds(100), /*synchronize=*/true}, {1, absl::Microseconds(100)}}, 0.015);
}

// Half way one tenant pauses and its share is lent out. When it returns it has its share again, and no more.
TEST_F(Shares, AnAbsentTenantsShareIsLentAndReturns) {
  Player& stays = Add("stays", "weight=1");
  Player& leaves = Add("leaves", "weight=3");
  constexpr absl::Duration kPhase = absl::Seconds(2);
  OnClock([&] {
    Together(3 * kPhase, {[&](absl::Duration stop) {
                            Backlogged(stays, Spin(stays, absl::Microseconds(50)), stop);
                          },
                          [&](absl::Duration stop) {
                            const SpinKernel kernel = Spin(leaves, absl::Microseconds(100));
                            Backlogged(leaves, kernel, stop - 2 * kPhase);
                            runtime().SleepUntil(stop - kPhase);
                            Backlogged(leaves, kernel, stop);
                          }});
  });
  if (HasFailure()) return;
  const Timeline timeline = Witnessed();
  const double together = timeline.Share(0, absl::Milliseconds(900), kWindow);
  const double alone = timeline.OfDevice(0, kPhase + absl::Milliseconds(500), kWindow);
  const double again = timeline.Share(0, 2 * kPhase + absl::Milliseconds(900), kWindow);
  Figure("share_together", together);
  Figure("of_device_alone", alone);
  Figure("share_again", again);
  EXPECT_NEAR(together, 0.25, 0.01);
  EXPECT_GE(alone, 0.98);
  EXPECT_NEAR(again, 0.25, 0.01);
}

}  // namespace
}  // namespace gpushare::gpu_test
