// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using LeaseTest = StreamTest;

TEST_F(LeaseTest, CoversLaunchesPastGpushare) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(device));
  Lease lease = Must(Lease::Acquire(device, {.hint = absl::Milliseconds(1), .streams = {&stream}}));
  for (int i = 0; i < 10; ++i) ASSERT_OK(Spin(stream, absl::Microseconds(100)));
  const auto result = lease.Release();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->overrun);
  ASSERT_OK(stream.Synchronize());
  runtime_->SleepFor(absl::Milliseconds(5));
  // The lease is charged, and not the launches in it.
  const VirtualDeviceStats stats = Must(device.stats());
  EXPECT_LE(stats.compute.launches, 1u);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(stats.compute.measured), 1.0, 0.2);
  EXPECT_EQ(lease.Release().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(LeaseTest, NestsForTheSameTenantAndRefusesAnother) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  Lease outer = Must(Lease::Acquire(a, {.exclusive = true}));
  {
    Lease inner = Must(Lease::Acquire(a));
    EXPECT_EQ(Lease::Acquire(b).status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_OK(inner.Release().status());
    // The outer lease is still held.
    EXPECT_EQ(Lease::Acquire(b).status().code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_OK(outer.Release().status());
  EXPECT_OK(Lease::Acquire(b).status());
}

// A library takes a lease for its own streams, within its caller's lease.
TEST_F(LeaseTest, OneWithinAnotherIsMeasuredOnItsStreamsToTheLastOfThem) {
  for (const bool outer_first : {false, true}) {
    SCOPED_TRACE(outer_first);
    const VirtualDevice device = MakeDevice(outer_first ? "a" : "b", "");
    const VirtualDevice other = MakeDevice(outer_first ? "c" : "d", "");
    const Stream stream = Must(Stream::Create(device)), of_library = Must(Stream::Create(device));
    Lease outer = Must(Lease::Acquire(device, {.streams = {&stream}}));
    ASSERT_OK(Spin(stream, absl::Milliseconds(5)));
    ASSERT_OK(stream.Synchronize());
    Lease inner = Must(Lease::Acquire(device, {.streams = {&of_library, &stream}}));
    ASSERT_OK(Spin(of_library, absl::Milliseconds(50)));
    ASSERT_OK(of_library.Synchronize());
    const LeaseResult first = Must((outer_first ? outer : inner).Release());
    // The thread still holds a lease, which still covers its streams.
    EXPECT_EQ(Lease::Acquire(other).status().code(), absl::StatusCode::kFailedPrecondition);
    ASSERT_OK(Spin(of_library, absl::Milliseconds(20)));
    const LeaseResult last = Must((outer_first ? inner : outer).Release());
    const LeaseResult& of_outer = outer_first ? first : last;
    EXPECT_GE(of_outer.held, absl::Milliseconds(55));
    EXPECT_OK(Lease::Acquire(other).status());
    ASSERT_OK(of_library.Synchronize());
    runtime_->SleepFor(absl::Milliseconds(5));
    const VirtualDeviceStats stats = Must(device.stats());
    EXPECT_LE(stats.compute.launches, 2u);  // the lease counts once on each of its streams
    EXPECT_NEAR(absl::ToDoubleMilliseconds(stats.compute.measured), 75, 2);
    // After the last lease, launches are held and charged individually again.
    ASSERT_OK(Spin(of_library, absl::Milliseconds(10)));
    ASSERT_OK(of_library.Synchronize());
    runtime_->SleepFor(absl::Milliseconds(5));
    EXPECT_NEAR(absl::ToDoubleMilliseconds(Must(device.stats()).compute.measured), 85, 2);
  }
}

TEST_F(LeaseTest, OneWithinAnotherIsCountedByThread) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  const Stream stream = Must(Stream::Create(a));
  Lease outer = Must(Lease::Acquire(a));
  Lease first = Must(Lease::Acquire(a, {.streams = {&stream}})), second = Must(Lease::Acquire(a));
  EXPECT_OK(outer.Release().status());
  {
    Thread thread =
        Must(runtime_->StartThread("other", [&] { EXPECT_OK(first.Release().status()); }));
  }
  EXPECT_EQ(Lease::Acquire(b).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_OK(second.Release().status());
  EXPECT_OK(Lease::Acquire(b).status());
}

TEST_F(LeaseTest, OfNoThreadStandsBesideOthers) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  Lease of_a = Must(Lease::Acquire(a, {.any_thread = true}));
  Lease of_b = Must(Lease::Acquire(b, {.any_thread = true}));
  Lease mine = Must(Lease::Acquire(a));
  EXPECT_EQ(Lease::Acquire(b).status().code(), absl::StatusCode::kFailedPrecondition);
  // Releasing a lease that is not bound to a thread does not affect the thread's own lease.
  EXPECT_OK(of_a.Release().status());
  EXPECT_EQ(Lease::Acquire(b).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_OK(mine.Release().status());
  EXPECT_OK(of_b.Release().status());
  EXPECT_OK(Lease::Acquire(b).status());
}

TEST_F(LeaseTest, IsReleasedByAnyThread) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  Lease lease = Must(Lease::Acquire(a));
  {
    Thread thread =
        Must(runtime_->StartThread("other", [&] { EXPECT_OK(lease.Release().status()); }));
  }
  EXPECT_OK(Lease::Acquire(b).status());  // this thread does not hold a lease any more
}

TEST_F(LeaseTest, AnOverrunIsReported) {
  const VirtualDevice device = MakeDevice("a", "");
  Lease lease = Must(
      Lease::Acquire(device, {.hint = absl::Microseconds(50), .maximum = absl::Microseconds(100)}));
  runtime_->SleepFor(absl::Milliseconds(3));
  const LeaseResult result = Must(lease.Release());
  EXPECT_TRUE(result.overrun);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(result.held), 3, 0.1);
}

TEST_F(LeaseTest, GivesUpAtItsDeadline) {
  const VirtualDevice device = MakeDevice("a", "");
  ASSERT_OK(device.Suspend());
  const absl::Duration begin = runtime_->Now();
  const absl::Status late = Lease::Acquire(device, {.timeout = absl::Milliseconds(20)}).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()),
              ::testing::HasSubstr("'a': its virtual device on GPU 0 is suspended"));
  EXPECT_NEAR(absl::ToDoubleMilliseconds(runtime_->Now() - begin), 20, 1);
  ASSERT_OK(device.Resume());
  EXPECT_OK(Lease::Acquire(device).status());
  const VirtualDevice other = MakeDevice("b", "");
  Lease held = Must(Lease::Acquire(device, {.exclusive = true, .any_thread = true}));
  const absl::Status beside = Lease::Acquire(other, {.timeout = absl::Milliseconds(20)}).status();
  EXPECT_EQ(beside.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(beside.message()),
              ::testing::HasSubstr("'b' on GPU 0: no lease before the deadline, "));
  EXPECT_THAT(std::string(beside.message()), ::testing::HasSubstr("'timeout'"));
}

TEST_F(LeaseTest, ChecksItsOptions) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  const Stream on_b = Must(Stream::Create(b));
  for (const LeaseOptions& options :
       {LeaseOptions{.hint = absl::Seconds(2)}, LeaseOptions{.hint = absl::Seconds(-1)},
        LeaseOptions{.timeout = absl::Seconds(-1)}, LeaseOptions{.streams = {&on_b}},
        LeaseOptions{.streams = {nullptr}}}) {
    EXPECT_EQ(Lease::Acquire(a, options).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_OK(Lease::Acquire(a).status());
}

TEST_F(LeaseTest, TheMaximumThatIsNotGivenCoversTheHint) {
  const VirtualDevice device = MakeDevice("a", "");
  gpushare_lease_options options = {};
  options.struct_size = sizeof(options);
  options.hint_ns = 2'000'000'000;
  options.timeout_ns = GPUSHARE_FOREVER;
  gpushare_lease lease = nullptr;
  EXPECT_EQ(gpushare_lease_acquire(device.handle(), &options, &lease), GPUSHARE_OK)
      << gpushare_last_message();
  EXPECT_EQ(gpushare_lease_release(lease, nullptr), GPUSHARE_OK);
  options.hint_ns = 61'000'000'000;
  EXPECT_EQ(gpushare_lease_acquire(device.handle(), &options, &lease), GPUSHARE_INVALID_ARGUMENT);
  EXPECT_THAT(gpushare_last_message(), ::testing::HasSubstr("a hint above 0 and up to 60s"));
}

TEST_F(LeaseTest, AReleaseThatIsRefusedHasNotReleased) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  gpushare_lease_options options = {};
  options.struct_size = sizeof(options);
  gpushare_lease lease = nullptr;
  ASSERT_EQ(gpushare_lease_acquire(a.handle(), &options, &lease), GPUSHARE_OK);
  gpushare_lease_result result = {};  // without its size
  EXPECT_EQ(gpushare_lease_release(lease, &result), GPUSHARE_INVALID_ARGUMENT);
  EXPECT_THAT(gpushare_last_message(), ::testing::HasSubstr("struct_size"));
  EXPECT_EQ(Lease::Acquire(b).status().code(),
            absl::StatusCode::kFailedPrecondition);  // still held
  result.struct_size = sizeof(result);
  EXPECT_EQ(gpushare_lease_release(lease, &result), GPUSHARE_OK);
  EXPECT_OK(Lease::Acquire(b).status());
}

}  // namespace
}  // namespace gpushare
