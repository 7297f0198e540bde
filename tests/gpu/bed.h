// SPDX-License-Identifier: Apache-2.0
// A GPU with tenants on it who launch kernels of known length, and a witness of what they used.
//
//   class Shares : public GpuTest {};
//   TEST_F(Shares, OneToOne) {
//     Player& a = Add("a", "weight=1");  Player& b = Add("b", "weight=1");
//     OnClock([&] {
//       Together(absl::Seconds(3), {[&](absl::Duration stop) { Backlogged(a, a.Spin(...), stop); },
//       ...});
//     });
//     const Timeline timeline = Witnessed();
//   }
//
// The same tests run on a GPU and on the simulated one and its virtual clock. The witness is
// independent of gpushare's books: on a GPU each kernel writes its start and end (%globaltimer)
// into its tenant's log; on the simulated GPU, which executes no code, it is the simulator's ground
// truth.
#ifndef GPUSHARE_TESTS_GPU_BED_H_
#define GPUSHARE_TESTS_GPU_BED_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gpushare/allocator.h"
#include "gpushare/gpu.h"
#include "gpushare/module.h"
#include "gpushare/runtime.h"
#include "gpushare/stream.h"
#include "gpushare/tenant.h"
#include "gpushare/virtual_device.h"
#include "tests/gpu/timeline.h"

namespace gpushare::gpu_test {

// A kernel that holds every SM with one block each, for `length` when it has the device alone.
struct SpinKernel {
  Function function;
  LaunchShape shape;
  uint64_t cost_ns = 0, cycles = 0;
  DevicePtr log;

  absl::Status Launch(const Stream& stream) const {
    return stream.Launch(function, shape, cost_ns, cycles, log);
  }
};

// A tenant with its virtual device, a stream and its log.
struct Player {
  std::string name;
  Tenant tenant;
  VirtualDevice device;
  Allocator allocator;
  Stream stream;
  Allocation log;
};

class GpuTest : public testing::Test {
 protected:
  // Skips the test, with the reason, if there is no GPU.
  void SetUp() override;
  void TearDown() override;

  const Runtime& runtime() const { return *runtime_; }
  const Gpu& gpu() const { return *gpu_; }
  bool simulated() const { return simulated_; }

  Player& Add(const std::string& name, const std::string& spec);
  SpinKernel Spin(const Player& player, absl::Duration length) const;

  // Runs `body` on a thread of the clock and waits for it.
  void OnClock(const std::function<void()>& body);
  // To be called on such a thread. Runs each of `bodies` on its own thread, tells it when to stop, and observes the
  // device until then. Then waits for the bodies and for their streams.
  using Body = std::function<void(absl::Duration stop)>;
  void Together(absl::Duration length, const std::vector<Body>& bodies);
  // Keeps more launches queued than the device can run, until `stop`; with `synchronize`, waits for each launch.
  void Backlogged(const Player& player, const SpinKernel& kernel, absl::Duration stop,
                  bool synchronize = false);

  // The tenants' use, in the order in which they were added, since the last Together() began.
  Timeline Witnessed();

  // Records a figure in the test's report, and prints it.
  void Figure(const std::string& name, double value);

 private:
  void Calibrate();
  void ResetLogs();
  void Sample();

  std::optional<Runtime> runtime_;
  std::optional<Gpu> gpu_;
  std::optional<Module> module_;
  Function spin_;
  bool simulated_ = false;
  int sms_ = 0;
  Bytes shared_alone_;
  double cycles_per_ns_ = 1;
  std::vector<std::unique_ptr<Player>> players_;
  // On the simulated GPU: the cumulative use of each tenant, sampled every kSampleStep.
  std::vector<std::vector<double>> truth_ns_;
};

inline constexpr absl::Duration kSampleStep = absl::Milliseconds(10);
inline constexpr absl::Duration kSettle = absl::Seconds(1);  // shares hold from this time on

// Ends the current function when `expression` is not OK; for use in the tests' bodies.
#define GPUSHARE_GPU_TEST_OK(expression)                \
  do {                                                  \
    const absl::Status status_of_step = (expression);   \
    ASSERT_TRUE(status_of_step.ok()) << status_of_step; \
  } while (false)

}  // namespace gpushare::gpu_test

#endif  // GPUSHARE_TESTS_GPU_BED_H_
