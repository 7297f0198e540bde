// SPDX-License-Identifier: Apache-2.0
// Streams: launches, copies, order, capture. bench/share_accuracy asserts shares.
#include <numeric>

#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;

TEST_F(StreamTest, BytesGoThereAndBack) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB");
  const Allocator allocator = Must(Allocator::Create(device));
  const Stream stream = Must(Stream::Create(device));
  std::vector<uint8_t> out(1 << 20), in(1 << 20);
  std::iota(out.begin(), out.end(), uint8_t{3});
  const Bytes size(out.size());
  const Allocation a = Must(allocator.Allocate(size)), b = Must(allocator.Allocate(size));
  ASSERT_OK(stream.CopyToDevice(a.pointer(), out.data(), size));
  ASSERT_OK(stream.CopyOnDevice(b.pointer(), a.pointer(), size));
  ASSERT_OK(stream.CopyToHost(in.data(), b.pointer(), size));
  EXPECT_EQ(in, out);
  ASSERT_OK(stream.SetAsync(b.pointer() + Bytes(5), 0xab, Bytes(2)));
  ASSERT_OK(stream.CopyToHostAsync(in.data(), b.pointer(), size));
  ASSERT_OK(stream.Synchronize());
  EXPECT_EQ(in[5], 0xab);
  EXPECT_EQ(in[7], out[7]);
  const VirtualDeviceStats stats = Must(device.stats());
  EXPECT_EQ(stats.h2d.bytes, size);
  EXPECT_EQ(stats.d2h.bytes, size * 2);
  EXPECT_OK(stream.CopyToDeviceAsync(a.pointer(), nullptr, Bytes(0)));
  EXPECT_EQ(stream.CopyToDeviceAsync(a.pointer(), nullptr, Bytes(1)).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(StreamTest, LaunchesAreCountedAndMeasured) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(device));
  for (int i = 0; i < 100; ++i) ASSERT_OK(Spin(stream, absl::Microseconds(50)));
  ASSERT_OK(stream.Synchronize());
  runtime_->SleepFor(absl::Milliseconds(5));
  const VirtualDeviceStats stats = Must(device.stats());
  EXPECT_EQ(stats.compute.launches, 100u);
  // 5 ms of device time; markers are rare and not charged to the tenant.
  EXPECT_NEAR(absl::ToDoubleMilliseconds(stats.compute.measured), 5, 0.25);
}

TEST_F(StreamTest, AHostFunctionInTheMiddleIsNotCharged) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(device));
  static const auto spend = runtime_->Symbol<decltype(gpushare_sim_spend)>("gpushare_sim_spend");
  int calls = 0;
  const auto stall = [](void* count) {
    ++*static_cast<int*>(count);
    spend(3'000'000);
  };
  for (int i = 0; i < 40; ++i) {
    ASSERT_OK(Spin(stream, absl::Microseconds(50)));
    if (i % 10 == 5) ASSERT_OK(stream.LaunchHost(stall, &calls));
  }
  ASSERT_OK(stream.Synchronize());
  EXPECT_EQ(calls, 4);
  runtime_->SleepFor(absl::Milliseconds(5));
  const VirtualDeviceStats stats = Must(device.stats());
  EXPECT_EQ(stats.compute.launches, 40u);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(stats.compute.measured), 2, 0.1);
  EXPECT_EQ(stream.LaunchHost(nullptr, nullptr).code(), absl::StatusCode::kInvalidArgument);
}

// On a device that runs one kernel at a time, each has all of it.
TEST_F(StreamTest, FootprintIsTheWholeOfASerialDevice) {
  EXPECT_NEAR(Must(spin_.Footprint(*gpu_, {.grid = {1}, .block = {1}})).fraction(), 1.0, 1e-4);
}

class OverlappingStreamTest : public StreamTest {
  std::string config() const override { return "sms=100,memory=8GiB,clock=virtual"; }
};

TEST_F(OverlappingStreamTest, FootprintIsThatOfTheShape) {
  EXPECT_NEAR(Must(spin_.Footprint(*gpu_, Whole())).fraction(), 1.0, 1e-4);
  EXPECT_NEAR(Must(spin_.Footprint(*gpu_, {.grid = {25}, .block = {64}})).fraction(), 0.25, 1e-4);
  EXPECT_NEAR(Must(spin_.Footprint(*gpu_, {.grid = {1}, .block = {1}})).fraction(), 0.01, 1e-4);
  EXPECT_FALSE(spin_.Footprint(*gpu_, {.grid = {1}, .block = {0}}).ok());
}

TEST_F(StreamTest, ACappedTenantIsHeldAndSaysHowLong) {
  const VirtualDevice device = MakeDevice("a", "cap=20%");
  const Stream stream = Must(Stream::Create(device));
  const absl::Duration begin = runtime_->Now();
  for (int i = 0; i < 400; ++i) ASSERT_OK(Spin(stream, absl::Microseconds(100)));
  ASSERT_OK(stream.Synchronize());
  // 40 ms of work at a fifth of the device, minus the 5 ms that may be saved up.
  EXPECT_NEAR(absl::ToDoubleMilliseconds(runtime_->Now() - begin), 175, 15);
  const VirtualDeviceStats stats = Must(device.stats());
  EXPECT_GT(stats.throttled, absl::Milliseconds(100));
  EXPECT_GT(stats.waits, 50u);
  EXPECT_GT(stats.wait_p99, absl::ZeroDuration());
}

TEST_F(StreamTest, ALaunchCanGiveUp) {
  const VirtualDevice device = MakeDevice("a", "cap=1%");
  const Stream stream = Must(Stream::Create(device));
  absl::Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) {
    uint64_t ns = 1'000'000;
    void* params[] = {&ns};
    status = stream.LaunchRaw(spin_.native(), Whole(), params, absl::ZeroDuration());
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("not its turn"));
}

TEST_F(StreamTest, TryingAnIdleDeviceSucceeds) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(device));
  uint64_t ns = 1000;
  void* params[] = {&ns};
  EXPECT_OK(stream.LaunchRaw(spin_.native(), Whole(), params, absl::ZeroDuration()));
}

TEST_F(StreamTest, ASuspendedTenantIsHeldUntilItIsResumed) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(device));
  ASSERT_OK(Spin(stream, absl::Microseconds(10)));
  ASSERT_OK(stream.Synchronize());
  ASSERT_OK(device.Suspend());
  EXPECT_TRUE(Must(device.stats()).suspended);
  const absl::Duration begin = runtime_->Now();
  absl::Duration launched;
  {
    Thread thread = Must(runtime_->StartThread("held", [&] {
      EXPECT_OK(Spin(stream, absl::Microseconds(10)));
      launched = runtime_->Now();
    }));
    runtime_->SleepFor(absl::Seconds(1));
    EXPECT_EQ(launched, absl::ZeroDuration());
    ASSERT_OK(device.Resume());
  }
  EXPECT_GE(launched - begin, absl::Seconds(1));
  EXPECT_LT(launched - begin, absl::Milliseconds(1010));
}

TEST_F(StreamTest, ALaunchThatTimesOutSaysThatItsDeviceIsSuspended) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(device));
  ASSERT_OK(device.Suspend());
  uint64_t ns = 1000;
  void* params[] = {&ns};
  const absl::Status status =
      stream.LaunchRaw(spin_.native(), Whole(), params, absl::Milliseconds(1));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("'a': its virtual device on GPU 0 is suspended"));
  LaunchShape shape = Whole();
  shape.timeout = absl::Milliseconds(1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(stream.Launch(spin_, shape, ns)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(stream.LaunchRaw(spin_.native(), shape, params)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(stream.LaunchCooperative(spin_, shape, ns)));
}

TEST_F(StreamTest, AnImpossibleBlockIsTheLaunchsOwnError) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(device));
  for (const uint32_t threads : {2048u, 100'000u}) {
    const absl::Status status =
        stream.Launch(spin_, {.grid = {1}, .block = {threads}}, uint64_t{1});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("cuLaunchKernel: "));
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(threads) + " x 1 x 1"));
    EXPECT_EQ(ErrorDetail::Of(status)->driver_result, 1);
  }
}

TEST_F(StreamTest, AnImpossibleGridIsToldAsItWasGiven) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(device));
  ASSERT_OK(stream.Launch(spin_, Whole(), uint64_t{1}));  // its footprint is not checked first
  const struct {
    uint32_t x, y;
    const char* told;
  } cases[] = {{0, 1, "a grid of 0 x 1 x 1 blocks of 32 x 1 x 1 threads with 0 bytes"},
               {1u << 31, 1, "a grid of 2147483648 x 1 x 1 blocks"},
               {1, 65536, "a grid of 1 x 65536 x 1 blocks"}};
  for (const auto& [x, y, told] : cases) {
    const absl::Status status = stream.Launch(spin_, {.grid = {x, y}, .block = {32}}, uint64_t{1});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(told));
    EXPECT_EQ(ErrorDetail::Of(status)->driver_result, 1);
  }
}

TEST_F(StreamTest, LimitedCopiesKeepToTheirBandwidth) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB,h2d=1GB/s");
  const Allocator allocator = Must(Allocator::Create(device));
  const Stream stream = Must(Stream::Create(device));
  std::vector<uint8_t> host(100'000'000);
  const Bytes size(host.size());
  const Allocation there = Must(allocator.Allocate(size));
  absl::Duration begin = runtime_->Now();
  const uint64_t before = Calls("cuMemcpyHtoDAsync_v2");
  ASSERT_OK(stream.CopyToDevice(there.pointer(), host.data(), size));
  // 100 MB at 1 GB/s, minus the 10 ms that may be saved up and the last piece.
  EXPECT_NEAR(absl::ToDoubleMilliseconds(runtime_->Now() - begin), 90, 11);
  EXPECT_GE(Calls("cuMemcpyHtoDAsync_v2") - before, 12u);  // pieces of at most 8 MiB
  EXPECT_LE(Calls("cuMemcpyHtoDAsync_v2") - before, 25u);  // and at least 4
  EXPECT_EQ(Must(device.stats()).h2d.bytes, size);
  EXPECT_GT(Must(device.stats()).h2d.throttled, absl::Milliseconds(50));
  // The other direction has no limit, and the copy is one piece.
  begin = runtime_->Now();
  ASSERT_OK(stream.CopyToHost(host.data(), there.pointer(), size));
  EXPECT_LT(runtime_->Now() - begin, absl::Milliseconds(12));
  EXPECT_EQ(Calls("cuMemcpyDtoHAsync_v2"), 1u);
}

// Native allocations that are captured become nodes of the graph, whose memory the device takes when it is launched.
class GraphMemoryOfStreamsTest : public StreamTest {
 protected:
  void UseNatively(const Stream& stream, Bytes bytes) {
    auto* const allocate =
        runtime_->Symbol<int(unsigned long long*, size_t, void*)>("cuMemAllocAsync");
    auto* const give_back = runtime_->Symbol<int(unsigned long long, void*)>("cuMemFreeAsync");
    unsigned long long pointer = 0;
    ASSERT_EQ(allocate(&pointer, static_cast<size_t>(bytes.count()), Must(stream.native())), 0);
    ASSERT_EQ(give_back(pointer, Must(stream.native())), 0);
  }
  // What the virtual device is charged; used_() is what the GPU has handed out.
  uint64_t Charged(const VirtualDevice& device) {
    return static_cast<uint64_t>(Must(device.stats()).memory.used.count());
  }
};

TEST_F(GraphMemoryOfStreamsTest, IsChargedWhileTheGraphExists) {
  const VirtualDevice device = MakeDevice("a", "memory=256MiB");
  const Stream stream = Must(Stream::Create(device));
  const uint64_t before = used_(0);
  {
    ASSERT_OK(stream.BeginCapture());
    UseNatively(stream, MiB(100));
    const Graph graph = Must(stream.EndCapture());
    EXPECT_EQ(Charged(device), uint64_t{128} << 20);  // units of 32 MiB
    ASSERT_OK(stream.LaunchGraph(graph));
    ASSERT_OK(stream.Synchronize());
    EXPECT_EQ(used_(0) - before, Charged(device));
  }
  EXPECT_EQ(Charged(device), 0u);
  EXPECT_EQ(used_(0), before);
}

TEST_F(GraphMemoryOfStreamsTest, IsRefusedWhereThereIsNoRoomForIt) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Stream stream = Must(Stream::Create(device));
  ASSERT_OK(stream.BeginCapture());
  UseNatively(stream, MiB(200));
  const absl::Status refused = stream.EndCapture().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("memory"));
  EXPECT_EQ(Charged(device), 0u);
  // Memory that the graph uses again counts once.
  ASSERT_OK(stream.BeginCapture());
  for (int i = 0; i < 5; ++i) UseNatively(stream, MiB(40));
  const Graph graph = Must(stream.EndCapture());
  EXPECT_EQ(Charged(device), uint64_t{64} << 20);
}

TEST_F(StreamTest, GraphsKeepToTheBandwidthOfCopies) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB,h2d=1GB/s,d2h=1GB/s");
  const Allocator allocator = Must(Allocator::Create(device));
  const Stream stream = Must(Stream::Create(device));
  std::vector<uint8_t> host(10'000'000);
  const Bytes size(host.size());
  const Allocation there = Must(allocator.Allocate(size));
  ASSERT_OK(stream.BeginCapture());
  ASSERT_OK(stream.CopyToDeviceAsync(there.pointer(), host.data(), size));
  ASSERT_OK(stream.CopyToHostAsync(host.data(), there.pointer(), Bytes(1000)));
  const Graph graph = Must(stream.EndCapture());
  EXPECT_EQ(Must(device.stats()).h2d.bytes, Bytes(0));
  const absl::Duration begin = runtime_->Now();
  for (int i = 0; i < 10; ++i) ASSERT_OK(stream.LaunchGraph(graph));
  // 100 MB at 1 GB/s, minus the 10 ms that may be saved up; the last one is a debt.
  EXPECT_NEAR(absl::ToDoubleMilliseconds(runtime_->Now() - begin), 85, 6);
  EXPECT_EQ(Must(device.stats()).h2d.bytes, Bytes(100'000'000));
  EXPECT_EQ(Must(device.stats()).d2h.bytes, Bytes(10'000));
  // A launch that is not admitted in time is undone, and reports the limit that held it.
  const absl::Status late = stream.LaunchGraph(graph.native(), absl::Milliseconds(1));
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()), HasSubstr("'h2d'"));
  EXPECT_EQ(Must(device.stats()).h2d.bytes, Bytes(100'000'000));
  EXPECT_EQ(Must(device.stats()).d2h.bytes, Bytes(10'000));
}

TEST_F(StreamTest, BesideAnotherTenantLargeCopiesGoInPieces) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB,weight=1");
  const Allocator allocator = Must(Allocator::Create(device));
  const Stream stream = Must(Stream::Create(device));
  std::vector<uint8_t> host(64 << 20, 7), back(64 << 20);
  const Bytes size(host.size());
  const Allocation there = Must(allocator.Allocate(size));
  ASSERT_OK(stream.CopyToDevice(there.pointer(), host.data(), size));
  EXPECT_EQ(Calls("cuMemcpyHtoDAsync_v2"), 1u);
  {
    const VirtualDevice other = MakeDevice("b", "memory=1GiB,weight=2");
    ASSERT_OK(stream.CopyToDevice(there.pointer(), host.data(), size));
    EXPECT_EQ(Calls("cuMemcpyHtoDAsync_v2"), 1u + 32u);  // of 2 MiB: it has half of the weight
    ASSERT_OK(stream.CopyToHost(back.data(), there.pointer(), size));
    EXPECT_EQ(Calls("cuMemcpyDtoHAsync_v2"), 32u);
    EXPECT_EQ(back, host);
  }
  ASSERT_OK(stream.CopyToHost(back.data(), there.pointer(), size));
  EXPECT_EQ(Calls("cuMemcpyDtoHAsync_v2"), 33u);
  EXPECT_EQ(Must(device.stats()).h2d.bytes, size * 2);
}

TEST_F(StreamTest, ACopyThatTheDriverRefusesIsNotCharged) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB,h2d=10MB/s");
  const Allocator allocator = Must(Allocator::Create(device));
  const Stream stream = Must(Stream::Create(device));
  const std::vector<uint8_t> host(8 << 20);
  const Allocation there = Must(allocator.Allocate(MiB(1)));
  EXPECT_FALSE(stream.CopyToDevice(DevicePtr(0x1234567), host.data(), MiB(8)).ok());
  EXPECT_EQ(Must(device.stats()).h2d.bytes, Bytes(0));
  const absl::Duration begin = runtime_->Now();
  ASSERT_OK(stream.CopyToDevice(there.pointer(), host.data(), Bytes(1000)));
  EXPECT_LT(runtime_->Now() - begin, absl::Milliseconds(10));  // paying the debt would take 839 ms
}

// No piece is copied if the driver would refuse another one, as with unmodified programs.
TEST_F(StreamTest, ACopyBeyondItsAllocationIsRefusedWhole) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB,h2d=100GB/s");
  const Allocator allocator = Must(Allocator::Create(device));
  const Stream stream = Must(Stream::Create(device));
  const std::vector<uint8_t> host(64 << 20);
  const Allocation there = Must(allocator.Allocate(MiB(16)));
  EXPECT_FALSE(stream.CopyToDevice(there.pointer(), host.data(), MiB(64)).ok());
  EXPECT_EQ(Calls("cuMemcpyHtoDAsync_v2"), 1u);
  EXPECT_EQ(Must(device.stats()).h2d.bytes, Bytes(0));
}

TEST_F(StreamTest, EventsOrderStreams) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream first = Must(Stream::Create(device)), second = Must(Stream::Create(device));
  const Event begin = Must(Event::Create(device, true)), end = Must(Event::Create(device, true));
  ASSERT_OK(first.Record(begin));
  ASSERT_OK(Spin(first, absl::Milliseconds(3)));
  ASSERT_OK(first.Record(end));
  EXPECT_FALSE(Must(end.Done()));
  ASSERT_OK(second.Wait(end));
  ASSERT_OK(second.Synchronize());
  EXPECT_TRUE(Must(end.Done()));
  ASSERT_OK(end.Synchronize());
  EXPECT_NEAR(absl::ToDoubleMilliseconds(Must(end.Since(begin))), 3, 0.1);
}

TEST_F(StreamTest, WhileCapturingNothingIsHeldOrChargedOrMarked) {
  const VirtualDevice device = MakeDevice("a", "cap=1%");
  const Stream stream = Must(Stream::Create(device));
  const absl::Duration start = runtime_->Now();
  ASSERT_OK(stream.BeginCapture());
  const uint64_t records = Calls("cuEventRecord");
  for (int i = 0; i < 50; ++i) ASSERT_OK(Spin(stream, absl::Milliseconds(10)));
  EXPECT_EQ(Calls("cuEventRecord"), records);
  const Graph graph = Must(stream.EndCapture());
  EXPECT_LT(runtime_->Now() - start, absl::Milliseconds(5));
  EXPECT_EQ(Must(device.stats()).compute.launches, 0u);
  // The graph is charged when it runs, as one command.
  ASSERT_OK(device.Resize("cap=100%"));
  ASSERT_OK(stream.LaunchGraph(graph));
  ASSERT_OK(stream.Synchronize());
  runtime_->SleepFor(absl::Milliseconds(5));
  const VirtualDeviceStats stats = Must(device.stats());
  EXPECT_EQ(stats.compute.launches, 1u);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(stats.compute.measured), 500, 10);
}

TEST_F(StreamTest, WhatIsInFlightWhenACaptureBeginsIsMeasured) {
  const VirtualDevice device = MakeDevice("a", "cap=90%");
  const Stream stream = Must(Stream::Create(device));
  for (int i = 0; i < 200; ++i) ASSERT_OK(Spin(stream, absl::Microseconds(10)));
  ASSERT_OK(stream.Synchronize());
  runtime_->SleepFor(absl::Milliseconds(5));
  const auto before = Must(device.stats()).compute;
  for (int i = 0; i < 3; ++i) {  // predicted to take 10 us
    ASSERT_OK(Spin(stream, absl::Milliseconds(3)));
  }
  ASSERT_OK(stream.BeginCapture());
  runtime_->SleepFor(absl::Milliseconds(20));
  ASSERT_OK(stream.EndCapture().status());
  runtime_->SleepFor(absl::Milliseconds(5));
  const auto after = Must(device.stats()).compute;
  EXPECT_NEAR(absl::ToDoubleMilliseconds(after.measured - before.measured), 9, 0.3);
}

TEST_F(StreamTest, ACaptureThatSpreadsThroughAnEventIsSeen) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream first = Must(Stream::Create(device)), second = Must(Stream::Create(device));
  const Event fork = Must(Event::Create(device)), join = Must(Event::Create(device));
  ASSERT_OK(first.BeginCapture());
  ASSERT_OK(first.Record(fork));
  ASSERT_OK(second.Wait(fork));
  ASSERT_OK(Spin(second, absl::Microseconds(10)));  // captured into the graph
  ASSERT_OK(second.Record(join));
  ASSERT_OK(first.Wait(join));
  const Graph graph = Must(first.EndCapture());
  EXPECT_EQ(Must(device.stats()).compute.launches, 0u);
  ASSERT_OK(first.LaunchGraph(graph));
  ASSERT_OK(first.Synchronize());
  EXPECT_EQ(Must(device.stats()).compute.launches, 1u);
}

TEST_F(StreamTest, ABrokenCaptureLeavesTheStreamUsable) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(device));
  EXPECT_FALSE(stream.EndCapture().ok());
  ASSERT_OK(stream.BeginCapture());
  EXPECT_FALSE(stream.BeginCapture().ok());
  EXPECT_FALSE(stream.Synchronize().ok());  // not allowed while capturing
  static_cast<void>(stream.EndCapture());
  EXPECT_OK(Spin(stream, absl::Microseconds(10)));
  EXPECT_OK(stream.Synchronize());
  EXPECT_EQ(Must(device.stats()).compute.launches, 1u);
}

// While a capture is active, each launch and copy on any stream asks the driver whether its stream captures.
TEST_F(StreamTest, AStreamThatGoesInMidCaptureLeavesNoTrace) {
  const VirtualDevice device = MakeDevice("a", "");
  const Allocator allocator = Must(Allocator::Create(device));
  const Allocation memory = Must(allocator.Allocate(MiB(1)));
  const Stream stream = Must(Stream::Create(device));
  unsigned char byte = 0;
  const auto asked = [&] {
    const uint64_t before = Calls("cuStreamIsCapturing");
    EXPECT_OK(stream.CopyToDeviceAsync(memory.pointer(), &byte, Bytes(1)));
    return Calls("cuStreamIsCapturing") - before;
  };
  EXPECT_EQ(asked(), 0u);
  {
    const Stream captured = Must(Stream::Create(device));
    ASSERT_OK(captured.BeginCapture());
    EXPECT_EQ(asked(), 1u);
  }
  EXPECT_EQ(asked(), 0u);
  // A capture that was begun without gpushare and ended through it was never counted.
  const Stream other = Must(Stream::Create(device));
  auto* const begin = runtime_->Symbol<int(CUstream_st*, int)>("cuStreamBeginCapture_v2");
  ASSERT_NE(begin, nullptr);
  ASSERT_EQ(begin(Must(other.native()), 1), 0);
  ASSERT_OK(other.EndCapture().status());
  EXPECT_EQ(asked(), 0u);
  ASSERT_OK(other.BeginCapture());
  EXPECT_EQ(asked(), 1u);
  ASSERT_OK(other.EndCapture().status());
  EXPECT_EQ(asked(), 0u);
}

TEST_F(StreamTest, AForeignStreamIsAdoptedAndLeftAlive) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  auto* create = runtime_->Symbol<int(CUstream_st**, unsigned)>("cuStreamCreate");
  auto* query = runtime_->Symbol<int(CUstream_st*)>("cuStreamQuery");
  CUstream_st* native = nullptr;
  ASSERT_EQ(create(&native, 1), 0);
  {
    const Stream stream = Must(Stream::Bind(a, native));
    EXPECT_EQ(Stream::Bind(b, native).status().code(), absl::StatusCode::kAlreadyExists);
    ASSERT_OK(Spin(stream, absl::Microseconds(10)));
    ASSERT_OK(stream.Synchronize());
    EXPECT_EQ(Must(a.stats()).compute.launches, 1u);
  }
  EXPECT_EQ(query(native), 0);  // still there
  const Stream again = Must(Stream::Bind(b, native));
  EXPECT_OK(Spin(again, absl::Microseconds(10)));
}

TEST_F(StreamTest, TheLegacyStreamIsGatedToo) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream legacy = Must(Stream::Bind(device, nullptr));
  ASSERT_OK(Spin(legacy, absl::Microseconds(10)));
  ASSERT_OK(legacy.Synchronize());
  EXPECT_EQ(Must(device.stats()).compute.launches, 1u);
}

TEST_F(StreamTest, CooperativeLaunchesRun) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(device));
  ASSERT_OK(stream.LaunchCooperative(spin_, Whole(), uint64_t{10'000}));
  ASSERT_OK(stream.Synchronize());
  EXPECT_EQ(Must(device.stats()).compute.launches, 1u);
}

TEST_F(StreamTest, AThreadWithAnotherContextGetsItBack) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB");
  const Stream stream = Must(Stream::Create(device));
  auto* create = runtime_->Symbol<int(CUctx_st**, unsigned, int)>("cuCtxCreate_v2");
  auto* current = runtime_->Symbol<int(CUctx_st**)>("cuCtxGetCurrent");
  auto* destroy = runtime_->Symbol<int(CUctx_st*)>("cuCtxDestroy_v2");
  CUctx_st *own = nullptr, *now = nullptr;
  ASSERT_EQ(create(&own, 0, 1), 0);  // on the other GPU, and current
  EXPECT_OK(Spin(stream, absl::Microseconds(10)));
  EXPECT_OK(stream.Synchronize());
  EXPECT_OK(Must(Allocator::Create(device)).Allocate(MiB(1)).status());
  ASSERT_EQ(current(&now), 0);
  EXPECT_EQ(now, own);
  EXPECT_EQ(destroy(own), 0);
}

// Launches 65 times. By the last one the cost is settled, and there is credit for more.
template <typename Launch>
void LaunchUntilKnown(const Stream& stream, const Launch& launch) {
  for (int i = 0; i < 64; ++i) {
    ASSERT_OK(launch());
    if (i % 8 == 7) ASSERT_OK(stream.Synchronize());
  }
  ASSERT_OK(launch());
}

// A known and paid launch only needs the driver's call. If that is refused since no context is current any more, the
// call is repeated in the stream's own context, and the launch is charged once.
TEST_F(StreamTest, AKnownLaunchIsTriedAgainWhereNoContextIsCurrent) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB");
  const Stream stream = Must(Stream::Create(device));
  const auto launch = [&] { return Spin(stream, absl::Microseconds(10)); };
  ASSERT_NO_FATAL_FAILURE(LaunchUntilKnown(stream, launch));
  auto* set = runtime_->Symbol<int(CUctx_st*)>("cuCtxSetCurrent");
  ASSERT_EQ(set(nullptr), 0);
  const uint64_t calls = Calls("cuLaunchKernel"), asked = Calls("cuCtxGetCurrent");
  EXPECT_OK(launch());
  EXPECT_EQ(Calls("cuLaunchKernel"), calls + 2);
  EXPECT_GT(Calls("cuCtxGetCurrent"), asked);
  EXPECT_OK(launch());
  EXPECT_EQ(Calls("cuLaunchKernel"), calls + 3);
  ASSERT_OK(stream.Synchronize());
  runtime_->SleepFor(absl::Milliseconds(5));
  const VirtualDeviceStats stats = Must(device.stats());
  EXPECT_EQ(stats.compute.launches, 67u);
  EXPECT_NEAR(absl::ToDoubleMicroseconds(stats.compute.measured), 670, 40);
}

// A launch that is finally refused has no effect, and returns the same as one that is not known.
TEST_F(StreamTest, AKnownLaunchThatIsRefusedIsNotCharged) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB");
  const Stream stream = Must(Stream::Create(device));
  std::optional<Module> module = Must(Module::Load(*gpu_, kPtx));
  const Function spin = Must(module->GetFunction("spin"));
  const auto launch = [&] { return stream.Launch(spin, Whole(), uint64_t{10'000}); };
  ASSERT_NO_FATAL_FAILURE(LaunchUntilKnown(stream, launch));
  ASSERT_OK(stream.Synchronize());
  ASSERT_OK(Spin(stream, absl::Microseconds(10)));
  module.reset();
  for (int i = 0; i < 3; ++i) {
    const absl::Status refused = launch();
    EXPECT_EQ(refused.code(), absl::StatusCode::kNotFound) << refused;
    EXPECT_THAT(std::string(refused.message()), ::testing::StartsWith("cuLaunchKernel: "));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("of a module of the stream's GPU"));
  }
  ASSERT_OK(Spin(stream, absl::Microseconds(10)));
  ASSERT_OK(stream.Synchronize());
  runtime_->SleepFor(absl::Milliseconds(5));
  const VirtualDeviceStats stats = Must(device.stats());
  EXPECT_EQ(stats.compute.launches, 67u);
  EXPECT_NEAR(absl::ToDoubleMicroseconds(stats.compute.measured), 670, 40);
}

TEST_F(StreamTest, YieldingGivesBackAndGoesOn) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(device));
  for (int i = 0; i < 10; ++i) {
    ASSERT_OK(Spin(stream, absl::Microseconds(10)));
    ASSERT_OK(stream.Yield());
  }
  ASSERT_OK(stream.Synchronize());
  EXPECT_EQ(Must(device.stats()).compute.launches, 10u);
}

TEST_F(StreamTest, SharesFollowWeights) {
  // Two backlogged tenants, 3:1, with kernels of different length.
  const VirtualDevice a = MakeDevice("a", "weight=3"), b = MakeDevice("b", "weight=1");
  const Stream on_a = Must(Stream::Create(a)), on_b = Must(Stream::Create(b));
  ASSERT_EQ(account_(Must(on_a.native()), 1), 0);
  ASSERT_EQ(account_(Must(on_b.native()), 2), 0);
  const absl::Duration end = runtime_->Now() + absl::Milliseconds(400);
  const auto work = [&](const Stream& stream, absl::Duration cost) {
    return [&, cost] {
      while (runtime_->Now() < end) ASSERT_OK(Spin(stream, cost));
      ASSERT_OK(stream.Synchronize());
    };
  };
  {
    Thread first = Must(runtime_->StartThread("a", work(on_a, absl::Microseconds(14))));
    Thread second = Must(runtime_->StartThread("b", work(on_b, absl::Microseconds(200))));
  }
  gpushare_sim_truth truth_a, truth_b;
  ASSERT_EQ(truth_(0, 1, &truth_a), 0);
  ASSERT_EQ(truth_(0, 2, &truth_b), 0);
  // Over 0.4 s from a cold start, within 2 percentage points.
  EXPECT_NEAR(truth_a.used_ns / (truth_a.used_ns + truth_b.used_ns), 0.75, 0.02);
}

}  // namespace
}  // namespace gpushare
