// SPDX-License-Identifier: Apache-2.0
// Runtime, GPUs, clock, threads.
#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;

using RuntimeTest = DeviceTest;

TEST_F(RuntimeTest, SaysWhichDriverItRunsOn) {
  const RuntimeInfo info = Must(runtime_->info());
  EXPECT_TRUE(info.simulated);
  EXPECT_EQ(info.gpu_count, 2);
  EXPECT_GE(info.driver_version, 12040);
  EXPECT_THAT(info.driver_path, HasSubstr("libcuda.so.1"));
}

TEST(Runtime, WithoutADriverTheMessageNamesTheSimulatedGpu) {
  const auto runtime = Runtime::Create({.driver = "/nowhere/libcuda.so.1"});
  EXPECT_EQ(runtime.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(runtime.status().message()), HasSubstr("GPUSHARE_DRIVER=sim"));
}

TEST(Runtime, ABrokenSimulationIsRefused) {
  const auto runtime = Runtime::Create({.driver = "sim", .simulation = "flux=9"});
  EXPECT_EQ(runtime.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(runtime.status().message()), HasSubstr("flux"));
}

// Sets a variable for the duration of a test.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~ScopedEnv() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(Runtime, ABrokenSimulationInTheEnvironmentIsNamed) {
  const ScopedEnv simulation("GPUSHARE_SIM", "memry=3");
  const auto runtime = Runtime::Create({.driver = "sim"});
  EXPECT_EQ(runtime.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(runtime.status().message()),
              HasSubstr("simulated GPU: GPUSHARE_SIM: unknown key 'memry'"));
}

TEST(Runtime, ASimulationThatIsNoTextIsShownAsText) {
  const auto runtime = Runtime::Create({.driver = "sim", .simulation = "name=\xff"});
  EXPECT_EQ(runtime.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(runtime.status().message()),
              HasSubstr("bad value '\\xff' of 'name'; allowed: one printable ASCII character"));
}

TEST_F(RuntimeTest, AReserveOverTheMemoryIsRefusedWhereThatIsKnown) {
  const Runtime other = Must(Runtime::Create({.driver = "sim", .memory_reserve = GiB(9)}));
  const auto gpu = Gpu::Open(other, "0");
  EXPECT_EQ(gpu.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(gpu.status().message()),
              HasSubstr("memory_reserve: 9 GiB given, GPU 0 has 8 GiB"));
}

TEST_F(RuntimeTest, TheReserveOfTheEnvironmentIsChecked) {
  for (const char* text : {"much", "-1", "50", "1e9", "8GiB!"}) {
    const ScopedEnv reserve("GPUSHARE_MEMORY_RESERVE", text);
    const auto runtime = Runtime::Create({.driver = "sim"});
    EXPECT_EQ(runtime.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(
        std::string(runtime.status().message()),
        ::testing::AllOf(HasSubstr("GPUSHARE_MEMORY_RESERVE: '"), HasSubstr("allowed: 0B")));
  }
  const ScopedEnv reserve("GPUSHARE_MEMORY_RESERVE", "9GiB");
  const Runtime other = Must(Runtime::Create({.driver = "sim"}));
  EXPECT_THAT(std::string(Gpu::Open(other, "0").status().message()),
              HasSubstr("GPUSHARE_MEMORY_RESERVE: 9 GiB given, GPU 0 has 8 GiB"));
}

TEST_F(RuntimeTest, OpensAGpuByOrdinalUuidAndPciId) {
  const GpuProbe probe = Must(gpu_->Probe());
  for (const std::string& name : {std::string("0"), probe.uuid, probe.pci_id}) {
    const auto again = Gpu::Open(*runtime_, name);
    ASSERT_TRUE(again.ok()) << name << ": " << again.status();
    EXPECT_EQ(Must(again->Probe()).ordinal, 0);
  }
  const auto missing = Gpu::Open(*runtime_, "GPU-none");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr(probe.uuid));
  for (const char* name : {"2", "-1", "", "0x0", "99999999999999999999"}) {
    EXPECT_EQ(Gpu::Open(*runtime_, name).status().code(), absl::StatusCode::kNotFound) << name;
  }
}

TEST_F(RuntimeTest, ProbesWhatIsThereAndWhatIsNot) {
  const GpuProbe probe = Must(gpu_->Probe());
  EXPECT_EQ(probe.state, GpuProbe::State::kHealthy) << probe.reason;
  EXPECT_EQ(probe.reason, "");
  EXPECT_EQ(probe.sm_count, 100);
  EXPECT_EQ(probe.memory_total, GiB(8));
  EXPECT_LE(probe.memory_free, GiB(8));
  EXPECT_GT(probe.memory_free, GiB(7));
  const VirtualDevice device = MakeDevice("a", "memory=2GiB,compute=30%");
  EXPECT_EQ(Must(gpu_->Probe()).memory_promised, GiB(2));
  EXPECT_NEAR(Must(gpu_->Probe()).guarantees_promised.percent(), 30, 1e-9);

  const GpuProbe absent = Must(Gpu::Probe(*runtime_, "7"));
  EXPECT_EQ(absent.state, GpuProbe::State::kAbsent);
  EXPECT_THAT(absent.reason, HasSubstr("no GPU '7'"));
}

TEST_F(RuntimeTest, AGpuThatFailsSaysWhy) {
  ASSERT_OK(Inject("error call=cuMemGetInfo_v2 code=719 nth=1"));
  const GpuProbe failed = Must(gpu_->Probe());
  EXPECT_EQ(failed.state, GpuProbe::State::kFailed);
  EXPECT_THAT(failed.reason, HasSubstr("CUDA_ERROR_LAUNCH_FAILED"));
}

TEST_F(RuntimeTest, SchedulerOptionsCountAtTheFirstOpening) {
  SchedulerOptions options = SchedulerOptions::Throughput();
  options.window = absl::Microseconds(300);
  const Gpu second = Must(Gpu::Open(*runtime_, "1", options));
  EXPECT_EQ(Must(second.scheduler()).min_commands, 8);
  EXPECT_EQ(Must(second.scheduler()).window, absl::Microseconds(300));
  // Options that are not given keep their defaults.
  EXPECT_EQ(Must(second.scheduler()).grant, Must(gpu_->scheduler()).grant);
  EXPECT_OK(Gpu::Open(*runtime_, "1").status());
  EXPECT_OK(Gpu::Open(*runtime_, "1", options).status());
  EXPECT_EQ(Gpu::Open(*runtime_, "1", SchedulerOptions()).status().code(),
            absl::StatusCode::kInvalidArgument);
  options.idle_budget = 0.9;
  const auto refused = Gpu::Open(*runtime_, "1", options);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("'idle_budget': 0.9 given, 0 to 0.5"));
}

// As scheduler.h, gpushare.h and docs/tuning.md state them.
TEST_F(RuntimeTest, SchedulerOptionsThatAreNotGiven) {
  const SchedulerOptions defaults = Must(gpu_->scheduler());
  EXPECT_EQ(defaults, (SchedulerOptions{.window = absl::Microseconds(240),
                                        .min_commands = 2,
                                        .grant = absl::Microseconds(50),
                                        .anticipation = absl::Microseconds(15),
                                        .spin = absl::Microseconds(200),
                                        .idle_budget = 0.015,
                                        .low_band_floor = 0,
                                        .high_grace = absl::Microseconds(30),
                                        .high_band_window = absl::Microseconds(80),
                                        .high_band_min_commands = 1}));
}

TEST_F(RuntimeTest, SchedulerOptionsCanBeExactlyZero) {
  const Gpu second = Must(Gpu::Open(*runtime_, "1", {.idle_budget = 0, .low_band_floor = 0}));
  EXPECT_EQ(Must(second.scheduler()).idle_budget, 0);
  EXPECT_EQ(Must(second.scheduler()).low_band_floor, 0);
  EXPECT_NE(Must(gpu_->scheduler()).idle_budget, 0);
  // Opening it again with the options in force succeeds.
  EXPECT_OK(Gpu::Open(*runtime_, "1", Must(second.scheduler())).status());
  EXPECT_EQ(Gpu::Open(*runtime_, "1", SchedulerOptions()).status().code(),
            absl::StatusCode::kInvalidArgument);
  // A zero that is out of range does not count as "not given".
  const auto refused = Gpu::Open(*runtime_, "1", {.anticipation = absl::ZeroDuration()});
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("'anticipation': 0ns given, 1us to 10ms allowed"));
  EXPECT_FALSE(Gpu::Open(*runtime_, "1", {.min_commands = 0}).ok());
}

TEST_F(RuntimeTest, ThreadsShareTheVirtualClock) {
  const absl::Duration begin = runtime_->Now();
  std::vector<int> order;
  std::vector<Thread> threads;
  for (int i = 3; i > 0; --i) {
    threads.push_back(Must(runtime_->StartThread("sleeper", [&, i] {
      runtime_->SleepFor(absl::Seconds(i));
      order.push_back(i);  // one thread of the clock runs at a time
    })));
  }
  for (Thread& thread : threads) thread.Join();
  EXPECT_THAT(order, ::testing::ElementsAre(1, 2, 3));
  EXPECT_GE(runtime_->Now() - begin, absl::Seconds(3));
  EXPECT_LT(runtime_->Now() - begin, absl::Milliseconds(3010));
}

TEST_F(RuntimeTest, ParentsMayGoFirst) {
  Tenant tenant = MakeTenant("a");
  std::optional<VirtualDevice> device = Must(VirtualDevice::Create(*gpu_, tenant, "memory=1GiB"));
  std::optional<Stream> stream = Must(Stream::Create(*device));
  Allocator allocator = Must(Allocator::Create(*device));
  device.reset();
  gpu_.reset();
  runtime_.reset();
  Allocation memory = Must(allocator.Allocate(MiB(1)));
  EXPECT_OK(stream->SetAsync(memory.pointer(), 7, memory.size()));
  unsigned char byte = 0;
  EXPECT_OK(stream->CopyToHost(&byte, memory.pointer(), Bytes(1)));
  EXPECT_EQ(byte, 7);
}

TEST_F(RuntimeTest, ADestroyedRuntimeAttributesNothingToNobody) {
  runtime_.reset();
  const auto pointer = gpu_->Allocate(MiB(1));
  EXPECT_EQ(pointer.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RuntimeTest, WhatIsLeftAllocatedIsFreedWithTheGpu) {
  {
    const VirtualDevice device = MakeDevice("a", "memory=1GiB");
    const Allocator allocator = Must(Allocator::Create(device));
    Must(allocator.AllocateRaw(MiB(100)));
  }
  EXPECT_GE(UsedOnDevice(), MiB(100).count());
  gpu_.reset();
  EXPECT_LT(UsedOnDevice(), MiB(100).count());
}

TEST_F(RuntimeTest, StatusNamesAndVersions) {
  EXPECT_STREQ(gpushare_status_name(GPUSHARE_RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED");
  EXPECT_STREQ(gpushare_status_name(static_cast<gpushare_status>(20)), "NO_SUCH_STATUS");
  EXPECT_EQ(gpushare_abi_version(), static_cast<uint32_t>(GPUSHARE_ABI_VERSION));
  EXPECT_STRNE(gpushare_version(), "");
}

}  // namespace
}  // namespace gpushare
