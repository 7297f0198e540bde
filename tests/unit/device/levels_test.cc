// SPDX-License-Identifier: Apache-2.0
// Which kernels go first when tenants share the device: those of the tenant that is due more than half of its time.
#include <string>
#include <vector>

#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

class LevelsTest : public StreamTest {
 protected:
  std::string config() const override {
    return "sms=100,memory=8GiB,overlap=footprint,clock=virtual";
  }

  struct Came {
    double share = 0;  // the first tenant's share of what both used
    double work = 0;   // the work of both, in time of a device that runs nothing side by side
    uint64_t with_priority = 0;  // launches with priority
  };
  struct Kernels {
    uint32_t blocks = 0;  // one on each SM
    uint64_t ns = 0;
  };
  // By default the first tenant's kernels fill a third of the device, and the second's take several waves. Both are
  // backlogged.
  Came Together(const std::string& first, const std::string& second,
                Kernels of_first = {33, 40'000}, Kernels of_second = {400, 40'000}) {
    struct Worker {
      VirtualDevice device;
      Stream stream;
      LaunchShape shape;
      uint64_t ns;
    };
    const auto make = [&](const std::string& spec, uint32_t account, uint32_t blocks, uint64_t ns) {
      VirtualDevice device = MakeDevice("t" + std::to_string(account), spec);
      Stream stream = Must(Stream::Create(device));
      EXPECT_EQ(account_(Must(stream.native()), account), 0);
      return Worker{std::move(device), std::move(stream), {.grid = {blocks}, .block = {1024}}, ns};
    };
    std::vector<Worker> workers;
    workers.push_back(make(first, accounts_ + 1, of_first.blocks, of_first.ns));
    workers.push_back(make(second, accounts_ + 2, of_second.blocks, of_second.ns));
    const absl::Duration begin = runtime_->Now() + absl::Milliseconds(200);
    const absl::Duration end = begin + absl::Milliseconds(800);
    std::vector<Thread> threads;
    for (const Worker& worker : workers) {
      threads.push_back(Must(runtime_->StartThread("worker", [&] {
        while (runtime_->Now() < end) {
          ASSERT_OK(worker.stream.Launch(spin_, worker.shape, worker.ns));
        }
      })));
    }
    const auto truths = [&] {
      std::vector<gpushare_sim_truth> found(2);
      for (uint32_t i = 0; i < 2; ++i) EXPECT_EQ(truth_(0, accounts_ + 1 + i, &found[i]), 0);
      return found;
    };
    runtime_->SleepUntil(begin);
    const std::vector<gpushare_sim_truth> before = truths();
    const uint64_t launched = Calls("cuLaunchKernelEx");
    runtime_->SleepUntil(end);
    const std::vector<gpushare_sim_truth> after = truths();
    accounts_ += 2;
    const double a = after[0].used_ns - before[0].used_ns, b = after[1].used_ns - before[1].used_ns;
    const double work = after[0].work_ns - before[0].work_ns + after[1].work_ns - before[1].work_ns;
    return {a / (a + b), work / absl::ToDoubleNanoseconds(end - begin),
            Calls("cuLaunchKernelEx") - launched};
  }
  uint32_t accounts_ = 0;
};

TEST_F(LevelsTest, OfWhoeverIsToHaveMoreThanHalfTheyGoFirst) {
  const Came came = Together("weight=70", "weight=30");
  EXPECT_NEAR(came.share, 0.7, 0.01);
  EXPECT_GT(came.work, 1.2);  // 1.16 without levels
  EXPECT_GT(came.with_priority, 5000u);
}

// With such short commands, only the order in which they ran shows whose time it was. A marker does not show it if
// the commands of both alternate.
TEST_F(LevelsTest, WhereOthersKernelsAreShortThoseThatLeaveLittleGoFirstToo) {
  const Came came = Together("weight=70", "weight=30", {93, 12'000}, {60, 3'000});
  EXPECT_GT(came.with_priority, 5000u);
  EXPECT_NEAR(came.share, 0.7, 0.015);
}

TEST_F(LevelsTest, WhereTheyAreLongOnesThatLeaveLittleDoNot) {
  const Came came = Together("weight=70", "weight=30", {93, 12'000}, {60, 60'000});
  EXPECT_EQ(came.with_priority, 0u);
  EXPECT_NEAR(came.share, 0.7, 0.015);
}

TEST_F(LevelsTest, ByGuaranteesAsByWeights) {
  const Came came = Together("guarantee=70%", "guarantee=30%");
  EXPECT_NEAR(came.share, 0.7, 0.01);
  EXPECT_GT(came.work, 1.2);
}

TEST_F(LevelsTest, OfEqualsNobodys) {
  const Came came = Together("weight=1", "weight=1");
  EXPECT_NEAR(came.share, 0.5, 0.025);
  EXPECT_EQ(came.with_priority, 0u);
}

// A high priority is the device's greatest, and belongs to the stream itself.
TEST_F(LevelsTest, AHighPriorityIsTheStreams) {
  const Came came = Together("priority=high,cap=80%", "weight=1");
  EXPECT_EQ(came.with_priority, 0u);
}

// A captured kernel is launched as it was recorded, at the priority of the stream on which the graph is launched.
TEST_F(LevelsTest, NothingIsWrittenIntoAGraph) {
  const VirtualDevice device = MakeDevice("a", "weight=70");
  const Stream stream = Must(Stream::Create(device));
  const uint64_t before = Calls("cuLaunchKernelEx");
  ASSERT_OK(stream.BeginCapture());
  for (int i = 0; i < 10; ++i) ASSERT_OK(Spin(stream, absl::Microseconds(10)));
  Must(stream.EndCapture());
  EXPECT_EQ(Calls("cuLaunchKernelEx"), before);
}

}  // namespace
}  // namespace gpushare
