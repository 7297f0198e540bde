// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bed.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "bench/gpu/facts/spin_ptx.h"
#include "gpushare/testing/sim.h"

namespace gpushare::gpu_test {
namespace {

// A log: the number of runs, the capacity, and then the start and end of each run.
constexpr size_t kLogCapacity = 600'000;
constexpr size_t kLogBytes = 16 * (kLogCapacity + 1);

// Pauses of the device that count as part of the next launch.
constexpr absl::Duration kLaunchOverhead = absl::Microseconds(10);

constexpr char kSpinBegin[] = R"(
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry spin(.param .u64 cost, .param .u64 cycles, .param .u64 out)
{
  .reg .pred %p<4>;
  .reg .b32 %r<2>;
  .reg .b64 %rd<13>;
)";
// `out` is the log, which the first block of each launch writes.
constexpr char kSpinEnd[] = R"(
  mov.u32 %r1, %ctaid.x;
  setp.ne.u32 %p2, %r1, 0;
  @%p2 bra DONE;
  cvta.to.global.u64 %rd7, %rd1;
  atom.global.add.u64 %rd8, [%rd7], 1;
  ld.global.u64 %rd9, [%rd7+8];
  setp.ge.u64 %p3, %rd8, %rd9;
  @%p3 bra DONE;
  shl.b64 %rd10, %rd8, 4;
  add.u64 %rd11, %rd7, %rd10;
  st.global.u64 [%rd11+16], %rd2;
  st.global.u64 [%rd11+24], %rd6;
DONE:
  ret;
}
)";

// Driver functions that gpushare does not use, by their plain C types.
using GetAttribute = int(int* value, int attribute, int device);
constexpr int kSharedPerSm = 81, kMostSharedPerBlock = 97;

template <typename T>
T Value(absl::StatusOr<T> value, const char* what) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s: %s\n", what, value.status().ToString().c_str());
    std::abort();  // the fixture itself is broken, so no test can go on
  }
  return *std::move(value);
}

}  // namespace

void GpuTest::SetUp() {
  absl::StatusOr<Runtime> runtime = Runtime::Create();
  if (!runtime.ok()) GTEST_SKIP() << runtime.status();
  runtime_ = *std::move(runtime);
  simulated_ = Value(runtime_->info(), "Runtime::info").simulated;
  absl::StatusOr<Gpu> gpu = Gpu::Open(*runtime_);
  if (!gpu.ok()) GTEST_SKIP() << gpu.status();
  gpu_ = *std::move(gpu);
  sms_ = Value(gpu_->Probe(), "Gpu::Probe").sm_count;

  absl::StatusOr<Module> module =
      Module::Load(*gpu_, std::string(facts::kPtxHead) + kSpinBegin + facts::kPtxSpin + kSpinEnd);
  ASSERT_TRUE(module.ok()) << module.status();
  module_ = *std::move(module);
  spin_ = Value(module_->GetFunction("spin"), "spin");
  // More than half of an SM's shared memory, so that one block fits on an SM.
  int per_sm = 0, most = 0;
  auto* attribute = runtime_->Symbol<GetAttribute>("cuDeviceGetAttribute");
  ASSERT_NE(attribute, nullptr);
  ASSERT_EQ(attribute(&per_sm, kSharedPerSm, 0), 0);
  ASSERT_EQ(attribute(&most, kMostSharedPerBlock, 0), 0);
  shared_alone_ = Bytes(static_cast<uint64_t>(std::min(per_sm / 2 + 1024, most)));
  GPUSHARE_GPU_TEST_OK(spin_.SetMaxShared(*gpu_, shared_alone_));
  if (!simulated_) Calibrate();
}

void GpuTest::TearDown() { players_.clear(); }

Player& GpuTest::Add(const std::string& name, const std::string& spec) {
  Tenant tenant = Value(Tenant::Create(*runtime_, {.name = name}), "Tenant::Create");
  VirtualDevice device = Value(VirtualDevice::Create(*gpu_, tenant, spec), "VirtualDevice::Create");
  Allocator allocator = Value(Allocator::Create(device), "Allocator::Create");
  Stream stream = Value(Stream::Create(device), "Stream::Create");
  Allocation log;
  if (simulated_) {
    auto* set_account =
        runtime_->Symbol<decltype(gpushare_sim_set_account)>("gpushare_sim_set_account");
    CUstream_st* native = Value(stream.native(), "Stream::native");
    EXPECT_EQ(set_account(native, static_cast<uint32_t>(players_.size() + 1)), 0);
  } else {
    log = Value(allocator.Allocate(Bytes(kLogBytes)), "the log");
  }
  players_.push_back(
      std::make_unique<Player>(Player{name, std::move(tenant), std::move(device),
                                      std::move(allocator), std::move(stream), std::move(log)}));
  return *players_.back();
}

SpinKernel GpuTest::Spin(const Player& player, absl::Duration length) const {
  SpinKernel kernel;
  kernel.function = spin_;
  kernel.shape = {.grid = {static_cast<uint32_t>(sms_)}, .block = {32}, .shared = shared_alone_};
  kernel.cost_ns = static_cast<uint64_t>(absl::ToInt64Nanoseconds(length));
  kernel.cycles = static_cast<uint64_t>(absl::ToDoubleNanoseconds(length) * cycles_per_ns_);
  kernel.log = player.log.pointer();
  return kernel;
}

void GpuTest::OnClock(const std::function<void()>& body) {
  Thread thread = Value(runtime_->StartThread("test", body), "StartThread");
  thread.Join();
}

void GpuTest::Together(absl::Duration length, const std::vector<Body>& bodies) {
  ResetLogs();
  truth_ns_.assign(players_.size(), {});
  const absl::Duration start = runtime_->Now(), stop = start + length;
  Sample();
  {
    std::vector<Thread> threads;
    for (const Body& body : bodies) {
      threads.push_back(
          Value(runtime_->StartThread("tenant", [&body, stop] { body(stop); }), "StartThread"));
    }
    for (absl::Duration at = start + kSampleStep; at <= stop; at += kSampleStep) {
      runtime_->SleepUntil(at);
      Sample();
    }
    for (Thread& thread : threads) thread.Join();
  }
  for (const auto& player : players_) GPUSHARE_GPU_TEST_OK(player->stream.Synchronize());
}

void GpuTest::Backlogged(const Player& player, const SpinKernel& kernel, absl::Duration stop,
                         bool synchronize) {
  while (runtime_->Now() < stop) {
    GPUSHARE_GPU_TEST_OK(kernel.Launch(player.stream));
    if (synchronize) GPUSHARE_GPU_TEST_OK(player.stream.Synchronize());
  }
}

Timeline GpuTest::Witnessed() {
  if (simulated_) return Timeline{kSampleStep, truth_ns_};
  std::vector<std::vector<uint64_t>> logs;
  uint64_t origin =
      UINT64_MAX;  // timestamps count from 1970, which exceeds the precision of a double
  for (const auto& player : players_) {
    std::vector<uint64_t>& words = logs.emplace_back(kLogBytes / sizeof(uint64_t));
    const absl::Status copied =
        player->stream.CopyToHost(words.data(), player->log.pointer(), Bytes(kLogBytes));
    EXPECT_TRUE(copied.ok()) << copied;
    EXPECT_LE(words[0], kLogCapacity) << "the log of " << player->name << " is too small";
    words[0] = std::min<uint64_t>(words[0], kLogCapacity);
    for (size_t i = 0; i < words[0]; ++i) origin = std::min(origin, words[2 + 2 * i]);
  }
  std::vector<KernelRun> runs;
  for (size_t t = 0; t < logs.size(); ++t) {
    const auto since = [&](uint64_t stamp) { return static_cast<double>(stamp - origin); };
    for (size_t i = 0; i < logs[t][0]; ++i) {
      runs.push_back({t, since(logs[t][2 + 2 * i]), since(logs[t][3 + 2 * i])});
    }
  }
  return TimelineOf(std::move(runs), players_.size(), kSampleStep, kLaunchOverhead);
}

void GpuTest::Figure(const std::string& name, double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.6g", value);
  RecordProperty(name, text);
  std::printf("  %-40s %s\n", name.c_str(), text);
}

void GpuTest::Calibrate() {
  constexpr double kCycles = 8e6;
  Player& player = Add("calibration", "");
  ResetLogs();
  // At one cycle a nanosecond these take some 4 ms each. The first ones warm up the clock.
  const SpinKernel kernel = Spin(player, absl::Nanoseconds(kCycles));
  constexpr size_t kRuns = 60;
  for (size_t i = 0; i < kRuns; ++i) GPUSHARE_GPU_TEST_OK(kernel.Launch(player.stream));
  GPUSHARE_GPU_TEST_OK(player.stream.Synchronize());
  uint64_t words[2 + 2 * kRuns];
  GPUSHARE_GPU_TEST_OK(player.stream.CopyToHost(words, player.log.pointer(), Bytes(sizeof(words))));
  ASSERT_EQ(words[0], kRuns) << "kernels wrote no log";
  cycles_per_ns_ = kCycles / static_cast<double>(words[1 + 2 * kRuns] - words[2 * kRuns]);
  players_.clear();
}

void GpuTest::ResetLogs() {
  if (simulated_) return;
  for (const auto& player : players_) {
    const uint64_t head[2] = {0, kLogCapacity};
    GPUSHARE_GPU_TEST_OK(
        player->stream.CopyToDevice(player->log.pointer(), head, Bytes(sizeof(head))));
  }
}

void GpuTest::Sample() {
  if (!simulated_) return;
  auto* read = runtime_->Symbol<decltype(gpushare_sim_account_truth)>("gpushare_sim_account_truth");
  for (size_t t = 0; t < players_.size(); ++t) {
    gpushare_sim_truth truth{};
    EXPECT_EQ(read(0, static_cast<uint32_t>(t + 1), &truth), 0);
    truth_ns_[t].push_back(truth.used_ns);
  }
}

}  // namespace gpushare::gpu_test
