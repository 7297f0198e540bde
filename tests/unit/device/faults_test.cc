// SPDX-License-Identifier: Apache-2.0
// Faults below or beside gpushare, and how a program learns of them: work that never ends, a driver that refuses
// markers, callbacks that throw, text with zero bytes.
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class FaultsTest : public StreamTest {
 protected:
  // Waits until work in flight is settled.
  void Wait(absl::Duration how_long) { runtime_->SleepFor(how_long); }
};

// ---- Work that never ends ----

TEST_F(FaultsTest, ClosingWaitsForWorkOfStreamsThatAreGone) {
  {
    const VirtualDevice device = MakeDevice("busy", "memory=1GiB");
    const Allocator memory = Must(Allocator::Create(device));
    EXPECT_TRUE(Must(memory.AllocateRaw(MiB(1))));  // never freed
    const Stream stream = Must(Stream::Create(device));
    EXPECT_OK(Spin(stream, absl::Seconds(2)));
  }
  module_.reset();
  const absl::Duration began = runtime_->Now();
  EXPECT_OK(gpu_->Close());
  EXPECT_GE(runtime_->Now() - began, absl::Milliseconds(1900));
  EXPECT_LE(runtime_->Now() - began, absl::Milliseconds(2100));
  EXPECT_EQ(UsedOnDevice(), 0u);
}

TEST_F(FaultsTest, ClosingGivesUpOnWorkThatNeverEndsAndNamesIt) {
  EXPECT_OK(Inject("hang kernel=spin"));
  {
    const VirtualDevice device = MakeDevice("stuck", "memory=1GiB");
    const Allocator memory = Must(Allocator::Create(device));
    EXPECT_TRUE(Must(memory.AllocateRaw(MiB(1))));
    const Stream one = Must(Stream::Create(device)), two = Must(Stream::Create(device));
    EXPECT_OK(Spin(one, absl::Microseconds(10)));
    EXPECT_OK(Spin(two, absl::Microseconds(10)));
    const Stream idle = Must(Stream::Create(device));
  }
  module_.reset();
  const absl::Duration began = runtime_->Now();
  const absl::Status closed = gpu_->Close();
  const absl::Duration took = runtime_->Now() - began;
  EXPECT_EQ(closed.code(), absl::StatusCode::kDeadlineExceeded) << closed;
  EXPECT_THAT(std::string(closed.message()),
              AllOf(StartsWith("GPU 0 is closed, and work of tenant 'stuck' "
                               "(2 streams) still runs after 5 s"),
                    HasSubstr("1 MiB that nobody freed")));
  EXPECT_GE(took, absl::Nanoseconds(GPUSHARE_CLOSE_GRACE_NS));
  EXPECT_LE(took, absl::Nanoseconds(GPUSHARE_CLOSE_GRACE_NS) + absl::Milliseconds(10));
  EXPECT_OK(Inject("clear"));
  // The GPU can be opened again while the old work still runs.
  gpu_.emplace(Must(Gpu::Open(*runtime_, "0")));
  MakeDevice("next", "memory=1GiB");
  EXPECT_OK(gpu_->Close());
}

// ---- A driver that refuses markers ----

class MarkerFaultsTest : public FaultsTest {
 protected:
  // Launches repeatedly, each time with a marker, until one is refused.
  VirtualDeviceStats Run(const VirtualDevice& device, const Stream& stream) {
    for (int i = 0; i < 50; ++i) {
      static_cast<void>(Spin(stream, absl::Microseconds(200)));
      Wait(absl::Milliseconds(1));
      const VirtualDeviceStats stats = Must(device.stats());
      if (stats.compute.markers_failed > 0) return stats;
    }
    ADD_FAILURE() << "no marker was refused";
    return Must(device.stats());
  }
};

TEST_F(MarkerFaultsTest, ARefusedQueryIsCountedAndTold) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(device));
  EXPECT_OK(Spin(stream, absl::Microseconds(200)));
  EXPECT_OK(stream.Synchronize());
  Wait(absl::Milliseconds(2));
  EXPECT_EQ(Must(device.stats()).compute.markers_failed, 0u);
  EXPECT_THAT(Must(device.stats()).compute.driver_error, IsEmpty());

  EXPECT_OK(Inject("error call=cuEventQuery code=999 nth=1"));
  const VirtualDeviceStats stats = Run(device, stream);
  EXPECT_EQ(stats.compute.markers_failed, 1u);
  EXPECT_THAT(stats.compute.driver_error, StartsWith("cuEventQuery: CUDA_ERROR_UNKNOWN"));
  // One refusal does not mean that the GPU is lost, and the charge for the launch is settled.
  EXPECT_EQ(Must(gpu_->Probe()).state, GpuProbe::State::kHealthy);
  EXPECT_OK(stream.Synchronize());
}

TEST_F(MarkerFaultsTest, ARefusedStampIsCountedAndTold) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(device));
  for (const char* call : {"cuEventElapsedTime_v2", "cuEventElapsedTime"}) {
    EXPECT_OK(Inject("error call="s + call + " code=999 nth=1"));
  }
  const VirtualDeviceStats stats = Run(device, stream);
  EXPECT_THAT(stats.compute.driver_error, StartsWith("cuEventElapsedTime: CUDA_ERROR_UNKNOWN"));
}

TEST_F(MarkerFaultsTest, ARefusedRecordIsCountedAndTold) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(device));
  EXPECT_OK(Inject("error call=cuEventRecord code=999"));
  const VirtualDeviceStats stats = Run(device, stream);
  EXPECT_THAT(stats.compute.driver_error, StartsWith("cuEventRecord: CUDA_ERROR_UNKNOWN"));
  EXPECT_OK(Inject("clear"));
}

TEST_F(MarkerFaultsTest, ALostContextShowsInTheProbeAndInTheStatistics) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(device));
  EXPECT_OK(Inject("illegal_address kernel=spin"));
  const VirtualDeviceStats stats = Run(device, stream);
  EXPECT_THAT(stats.compute.driver_error, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_THAT(stats.compute.driver_error, StartsWith("cu"));
  const GpuProbe probe = Must(gpu_->Probe());
  EXPECT_EQ(probe.state, GpuProbe::State::kFailed);
  EXPECT_THAT(probe.reason, AllOf(StartsWith("cuEvent"), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS")));
  EXPECT_OK(Inject("clear"));
}

// ---- Callbacks that throw ----

TEST_F(FaultsTest, AReclaimThatThrowsFailsTheAllocationAlone) {
  const VirtualDevice device = MakeDevice("a", "memory=10MiB");
  int calls = 0;
  AllocatorOptions options;
  options.over_quota = OverQuota::kReclaim;
  options.reclaim = [&](Bytes, Bytes) -> bool {
    if (++calls == 1) throw std::runtime_error("the cache is on fire");
    throw 7;
  };
  const Allocator memory = Must(Allocator::Create(device, options));
  const Allocation held = Must(memory.Allocate(MiB(8)));
  absl::Status status = memory.Allocate(MiB(8)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "allocator: 'reclaim' threw an exception: the cache is on fire");
  status = memory.Allocate(MiB(8)).status();
  EXPECT_EQ(status.message(), "allocator: 'reclaim' threw what is no std::exception");
  EXPECT_EQ(calls, 2);
  // The next call reports its own error.
  EXPECT_EQ(memory.Allocate(Bytes(0)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_OK(memory.Allocate(MiB(2)).status());
}

TEST_F(FaultsTest, AReclaimThatThrowsEndsTheWaitToo) {
  const VirtualDevice device = MakeDevice("a", "memory=10MiB");
  std::optional<Allocator> memory;
  AllocatorOptions options;
  options.over_quota = OverQuota::kReclaim;
  int calls = 0;
  options.reclaim = [&](Bytes, Bytes) -> bool {
    if (++calls == 1) throw std::runtime_error("the cache is on fire");
    return false;
  };
  memory.emplace(Must(Allocator::Create(device, options)));
  const Allocator plain = Must(Allocator::Create(device));
  std::optional<Allocation> held = Must(plain.Allocate(MiB(8)));
  // A free that comes after the timeout does not help it.
  const absl::Duration began = runtime_->Now();
  Thread frees = Must(runtime_->StartThread("frees", [&] {
    runtime_->SleepFor(absl::Milliseconds(10));
    held.reset();
  }));
  const absl::Status status =
      memory->Allocate(MiB(8), AllocateOptions{.timeout = absl::Seconds(1)}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(status.message(), HasSubstr("the cache is on fire"));
  EXPECT_LT(runtime_->Now() - began, absl::Milliseconds(10));
  EXPECT_EQ(calls, 1);
  // A callback that gives up without throwing makes the allocation wait.
  const Allocation served =
      Must(memory->Allocate(MiB(8), AllocateOptions{.timeout = absl::Seconds(1)}));
  EXPECT_EQ(calls, 2);
  frees.Join();
}

TEST_F(FaultsTest, WhatOneAllocatorsReclaimThrewIsNotAnothersAnswer) {
  const VirtualDevice device = MakeDevice("a", "memory=10MiB");
  const Allocator plain = Must(Allocator::Create(device));
  const Allocation held = Must(plain.Allocate(MiB(8)));
  const Allocator inner =
      Must(Allocator::Create(device, {.over_quota = OverQuota::kReclaim,
                                      .reclaim = [](Bytes, Bytes) -> bool { throw 7; }}));
  absl::Status within;
  AllocatorOptions options;
  options.over_quota = OverQuota::kReclaim;
  options.reclaim = [&](Bytes, Bytes) {
    within = inner.Allocate(MiB(8)).status();  // like a cache that moves its contents
    return false;
  };
  const Allocator outer = Must(Allocator::Create(device, options));
  EXPECT_TRUE(absl::IsResourceExhausted(outer.Allocate(MiB(8)).status()));
  EXPECT_EQ(within.code(), absl::StatusCode::kInternal);
  // An allocation through the C interface calls the callback too, and nobody handles its exception.
  gpushare_device_ptr pointer = 0;
  EXPECT_EQ(gpushare_alloc(inner.handle(), MiB(8).count(), &pointer), GPUSHARE_RESOURCE_EXHAUSTED);
  EXPECT_TRUE(absl::IsResourceExhausted(plain.Allocate(MiB(8)).status()));
}

using FaultsDeathTest = FaultsTest;
TEST_F(FaultsDeathTest, AThreadThatThrowsEndsTheProgramWithItsMessage) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        absl::StatusOr<Thread> thread =
            runtime_->StartThread("bad", [] { throw std::runtime_error("the body is on fire"); });
        thread->Join();
      },
      "the body is on fire");
}

// ---- Text with zero bytes ----

TEST_F(FaultsTest, TextWithAZeroByteIsRefusedByField) {
  const auto refused = [](const absl::Status& status, const std::string& field) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(std::string(status.message()), StartsWith(field)) << field;
  };
  refused(Tenant::Create(*runtime_, {.name = "a\0b"s}).status(),
          "tenant name: byte 1 of 3 is zero");
  refused(Tenant::Create(*runtime_, {.name = "a", .labels = {{"k\0"s, "v"}}}).status(),
          "tenant labels: a key: byte 1 of 2 is zero");
  refused(Tenant::Create(*runtime_, {.name = "a", .labels = {{"k", "v\0v"s}}}).status(),
          "tenant labels: a value: byte 1 of 3 is zero");
  refused(MakeTenant("b").label("k\0"s).status(), "tenant label: ");
  refused(Gpu::Open(*runtime_, "0\0"s).status(), "GPU name: ");
  refused(Gpu::Probe(*runtime_, "0\0"s).status(), "GPU name: ");
  refused(module_->GetFunction("spin\0"s).status(), "kernel name: ");
  refused(Runtime::Create({.driver = "sim\0"s}).status(), "driver: ");
  refused(Runtime::Create({.driver = "sim", .simulation = "sms=1\0"s}).status(), "simulation: ");
  refused(runtime_->StartThread("t\0"s, [] {}).status(), "thread name: ");
  refused(VirtualDeviceSpec{.policy = "weight\0"s}.Validate(), "spec field 'policy'");
  refused(VirtualDeviceSpec::Parse("policy=weight\0,weight=1"s).status(), "spec field 'policy'");
}

}  // namespace
}  // namespace gpushare
