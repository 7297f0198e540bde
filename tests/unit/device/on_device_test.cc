// SPDX-License-Identifier: Apache-2.0
// Sets, and copies within the device: held and charged like kernels, compared with the simulator's own books.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

class OnDeviceTest : public StreamTest {
 protected:
  // 1 MB takes 100 us.
  std::string config() const override { return StreamTest::config() + ",d2d=10GB/s"; }
  static constexpr Bytes kSize = Bytes(1'000'000);

  struct Worker {
    VirtualDevice device;
    Allocation memory;
    Stream stream;
  };
  Worker MakeWorker(const std::string& name, const std::string& spec, uint32_t account) {
    VirtualDevice device = MakeDevice(name, "memory=1GiB," + spec);
    Allocation memory = Must(Must(Allocator::Create(device)).Allocate(kSize * 2));
    Stream stream = Must(Stream::Create(device));
    EXPECT_EQ(account_(Must(stream.native()), account), 0);
    return {std::move(device), std::move(memory), std::move(stream)};
  }
  static absl::Status Set(const Worker& worker) {
    return worker.stream.SetAsync(worker.memory.pointer(), 1, kSize);
  }
  static absl::Status Copy(const Worker& worker) {
    return worker.stream.CopyOnDeviceAsync(worker.memory.pointer() + kSize, worker.memory.pointer(),
                                           kSize);
  }
  // Bytes moved by copies; the simulator does not count the bytes that sets write.
  double MovedBytes(uint32_t account) const {
    gpushare_sim_truth truth = {};
    EXPECT_EQ(truth_(0, account, &truth), 0);
    return static_cast<double>(truth.d2d_bytes);
  }
  double UsedNs(uint32_t account) const {
    gpushare_sim_truth truth = {};
    EXPECT_EQ(truth_(0, account, &truth), 0);
    return truth.used_ns;
  }
  // Runs each body repeatedly on its own thread for `how_long`.
  void Together(absl::Duration how_long, const std::vector<std::function<absl::Status()>>& bodies) {
    const absl::Duration end = runtime_->Now() + how_long;
    std::vector<Thread> threads;
    for (const auto& body : bodies) {
      threads.push_back(Must(runtime_->StartThread("worker", [&, end] {
        while (runtime_->Now() < end) ASSERT_OK(body());
      })));
    }
    runtime_->SleepUntil(end);
  }
};

TEST_F(OnDeviceTest, ACapHoldsThem) {
  for (const bool copies : {false, true}) {
    const Worker worker = MakeWorker(copies ? "copies" : "sets", "cap=20%", copies ? 2 : 1);
    const absl::Duration began = runtime_->Now();
    for (int i = 0; i < 500; ++i) ASSERT_OK(copies ? Copy(worker) : Set(worker));
    ASSERT_OK(worker.stream.Synchronize());
    // 50 ms of the device at a fifth of it, minus the 5 ms that a cap saves up.
    EXPECT_NEAR(absl::ToDoubleMilliseconds(runtime_->Now() - began), 225, 5) << copies;
    runtime_->SleepFor(absl::Milliseconds(5));
    const VirtualDeviceStats stats = Must(worker.device.stats());
    EXPECT_EQ(stats.compute.launches, 500u);
    EXPECT_NEAR(absl::ToDoubleMilliseconds(stats.compute.measured), 50, 3);
    if (copies) {
      EXPECT_EQ(MovedBytes(2), 500.0 * static_cast<double>(kSize.count()));
    }
  }
}

TEST_F(OnDeviceTest, WeightsDivideThem) {
  const Worker a = MakeWorker("a", "weight=3", 1), b = MakeWorker("b", "weight=1", 2);
  Together(absl::Milliseconds(400), {[&] { return Copy(a); }, [&] { return Copy(b); }});
  const double moved_a = MovedBytes(1), moved_b = MovedBytes(2);
  EXPECT_NEAR(moved_a / (moved_a + moved_b), 0.75, 0.03);
  EXPECT_GT(moved_a + moved_b, 0.9 * 4e9);  // 4 GB is what 10 GB/s allow
}

// The simulated GPU moves bytes beside its kernels; the time of the kernels is measured correctly all the same.
TEST_F(OnDeviceTest, KernelsBesideThemAreMeasuredRight) {
  const Worker kernels = MakeWorker("kernels", "weight=1", 1),
               copies = MakeWorker("copies", "weight=1", 2);
  Together(absl::Milliseconds(400), {[&] { return Spin(kernels.stream, absl::Microseconds(50)); },
                                     [&] { return Copy(copies); }});
  ASSERT_OK(kernels.stream.Synchronize());
  runtime_->SleepFor(absl::Milliseconds(5));
  const double measured = absl::ToDoubleNanoseconds(Must(kernels.device.stats()).compute.measured);
  EXPECT_NEAR(measured / UsedNs(1), 1, 0.05);
  EXPECT_GT(MovedBytes(2), 0.25 * 4e9);  // and neither starves
  EXPECT_GT(UsedNs(1), 0.1e9);
}

TEST_F(OnDeviceTest, WhatIsCapturedIsNotHeld) {
  const Worker worker = MakeWorker("a", "cap=1%", 1);
  ASSERT_OK(worker.stream.BeginCapture());
  for (int i = 0; i < 100; ++i) ASSERT_OK(Set(worker));
  const Graph graph = Must(worker.stream.EndCapture());
  EXPECT_EQ(Must(worker.device.stats()).compute.launches, 0u);
}

TEST_F(OnDeviceTest, TheyWaitWhileTheirDeviceIsSuspended) {
  const Worker worker = MakeWorker("a", "weight=1", 1);
  ASSERT_OK(worker.device.Suspend());
  const Thread thread = Must(runtime_->StartThread("resume", [&] {
    runtime_->SleepFor(absl::Milliseconds(3));
    EXPECT_EQ(Must(worker.device.stats()).compute.launches, 0u);
    EXPECT_OK(worker.device.Resume());
  }));
  const absl::Duration began = runtime_->Now();
  EXPECT_OK(Set(worker));
  EXPECT_GE(runtime_->Now() - began, absl::Milliseconds(3));
  EXPECT_OK(worker.stream.Synchronize());
}

}  // namespace
}  // namespace gpushare
