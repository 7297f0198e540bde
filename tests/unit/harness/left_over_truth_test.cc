// SPDX-License-Identifier: Apache-2.0
// Compares the harness's left-over time, computed from what the service's program saw, with the simulated GPU's own
// record for every microsecond: whether a command of the service was present, and what the job had.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "harness/figures.h"
#include "harness/questions/left_over.h"
#include "harness/questions/question.h"
#include "player/player.h"
#include "tests/sim/sim_test.h"

namespace gpushare::harness {
namespace {

constexpr int kLengthUs = 200'000;
constexpr int kGraceUs = 30;  // the scenario's grace
constexpr uint32_t kOnline = 1, kJob = 2;

constexpr char kBatches[] = R"(question: harvest
length: 200ms
warm_up: 0s
window: 100ms
cases:
  - name: one
    tenants:
      - {name: online, mode: batches, rate: 100/s, batches: {1: {kernels: 60us}}}
      - {name: job, work: {kernels: 20us}}
)";

// A program on the simulated GPU, with one stream.
class SimPort final : public player::Port {
 public:
  SimPort(CUcontext context, CUfunction spin, CUstream stream)
      : context_(context), spin_(spin), stream_(stream) {}
  absl::Status Launch(const player::Step& step) override {
    uint64_t ns = step.duration_ns;
    void* parameters[] = {&ns};
    cuCtxSetCurrent(context_);
    EXPECT_CU(cuLaunchKernel(spin_, step.grid, 1, 1, 32, 1, 1, 0, stream_, parameters, nullptr));
    return absl::OkStatus();
  }
  absl::Status Synchronize() override {
    cuCtxSetCurrent(context_);
    EXPECT_CU(cuStreamSynchronize(stream_));
    return absl::OkStatus();
  }
  Time Now() override { return Time(Nanos(static_cast<int64_t>(gpushare_sim_now()))); }
  void SleepUntil(Time when) override {
    const uint32_t word = 0;
    const auto deadline = static_cast<uint64_t>(when.time_since_epoch().count());
    if (when > Now()) gpushare_sim_wait_word(&word, 0, deadline, 0);
  }

 private:
  const CUcontext context_;
  const CUfunction spin_;
  const CUstream stream_;
};

struct Served {
  std::string name;
  player::PlayMode mode;
  Nanos kernel;
  int kernels;  // kernels in each request
  Nanos wait{0};
};

class LeftOverTruth : public sim_test::SimTest, public ::testing::WithParamInterface<Served> {
 protected:
  // Like a real GPU: launches, synchronization and the time between them cost something.
  void SetUp() override { Start("name=Test GPU,sms=100,memory=1GiB"); }

  void Play(const Served& served);

  Outcome outcome_;                     // like that of a run
  double left_over_ = 0, harvest_ = 0;  // %, by the simulator's record
};

void LeftOverTruth::Play(const Served& served) {
  const CUstream online = NewStream(), job = NewStream();
  ASSERT_EQ(0, gpushare_sim_set_account(online, kOnline));
  ASSERT_EQ(0, gpushare_sim_set_account(job, kJob));
  SimPort online_port(context_, spin_, online), job_port(context_, spin_, job);
  const Time start = online_port.Now() + Millis(1);
  player::Program program;
  for (int i = 0; i < served.kernels; ++i) {
    program.steps.push_back({nullptr, 100, 32, 0, static_cast<uint64_t>(served.kernel.count()), 0});
  }
  player::PlayOptions options = {.mode = served.mode, .start = start, .end = start + Millis(200)};
  // Some requests come back to back, most with time between them.
  for (Nanos at = Micros(700); at < Millis(200); at += Micros(1730)) options.arrivals.push_back(at);
  for (Nanos at = Micros(777); at < Millis(200); at += Micros(5410)) options.arrivals.push_back(at);
  std::sort(options.arrivals.begin(), options.arrivals.end());
  options.batches = {{4, 0, program.steps.size()}};
  options.batch_wait = served.wait;
  player::PlayResult result;
  std::atomic<bool> over{false};
  {
    sim_test::SimThread service(
        "service", [&] { EXPECT_TRUE(player::Play(program, options, online_port, &result).ok()); });
    // Kernels of 20 us, one at a time, and none while the service has commands: no job could use more of the
    // left-over time.
    sim_test::SimThread others("job", [&] {
      job_port.SleepUntil(start);
      while (!over) {
        gpushare_sim_truth truth = {};
        gpushare_sim_account_truth(0, kOnline, &truth);
        if (truth.queued > 0) {
          gpushare_sim_spend(5000);
          continue;
        }
        EXPECT_TRUE(job_port.Launch({nullptr, 100, 32, 0, 20'000, 0}).ok());
        EXPECT_TRUE(job_port.Synchronize().ok());
      }
    });
    online_port.SleepUntil(start);
    TenantOutcome tenants[2];
    int quiet = kGraceUs + 1;  // us since the last command of the service
    double left_ns = 0, harvested_ns = 0, before = 0;
    for (int at = 0; at <= kLengthUs; ++at) {
      ASSERT_EQ(online_port.Now(), start + Micros(at));
      gpushare_sim_truth truths[2] = {};
      for (uint32_t i = 0; i < 2; ++i) {
        gpushare_sim_account_truth(0, i + 1, &truths[i]);
        const auto used = static_cast<int64_t>(truths[i].used_ns);
        if (Micros(at) % kLeftOverFine == Nanos(0)) tenants[i].fine_ns.push_back(used);
        if (Micros(at) % kSample == Nanos(0)) tenants[i].used_ns.push_back(used);
      }
      if (at > 0 && quiet > kGraceUs) {
        left_ns += 1000;
        harvested_ns += truths[1].used_ns - before;
      }
      before = truths[1].used_ns;
      quiet = truths[0].queued > 0 ? 0 : quiet + 1;
      if (at < kLengthUs) gpushare_sim_spend(1000);
    }
    over = true;
    tenants[0].name = "online", tenants[1].name = "job";
    outcome_.tenants = {tenants[0], tenants[1]};
    left_over_ = 100 * left_ns / (kLengthUs * 1e3);
    harvest_ = 100 * harvested_ns / left_ns;
  }
  outcome_.tenants[0].requests = result.requests;
}

TEST_P(LeftOverTruth, IsWhatTheSimulatedGpuSays) {
  ASSERT_NO_FATAL_FAILURE(Play(GetParam()));
  const auto scenario = ParseScenario(kBatches, "s.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  std::optional<double> left_over, harvest;
  for (const Figure& each : FiguresOf(*scenario, scenario->cases[0], outcome_, {})) {
    if (each.name == "left_over") left_over = each.value;
    if (each.name == "harvest") harvest = each.value;
  }
  ASSERT_TRUE(left_over.has_value() && harvest.has_value());
  // The program learns of a command's end some microseconds late.
  EXPECT_NEAR(*left_over, left_over_, 0.5);
  // Between two samples device time counts as evenly spread, even if a request begins in between.
  EXPECT_NEAR(*harvest, harvest_, 0.3);
}

INSTANTIATE_TEST_SUITE_P(
    Services, LeftOverTruth,
    ::testing::Values(Served{"short", player::PlayMode::kOpenLoop, Micros(2), 100},
                      Served{"long", player::PlayMode::kOpenLoop, Micros(60), 8},
                      Served{"batches", player::PlayMode::kBatches, Micros(60), 8, Millis(2)}),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace gpushare::harness
