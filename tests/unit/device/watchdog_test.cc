// SPDX-License-Identifier: Apache-2.0
#include "gpushare/watchdog.h"

#include <vector>

#include "tests/unit/device/device_test.h"
#include "tests/unit/device/two_kernels.h"

namespace gpushare {
namespace {

class WatchdogTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    module_.emplace(Must(Module::Load(*gpu_, kTwoKernels)));
    spin_ = Must(module_->GetFunction("spin"));
    broken_ = Must(module_->GetFunction("broken"));
  }
  void TearDown() override {
    module_.reset();
    ASSERT_OK(Inject("clear"));
    DeviceTest::TearDown();
  }
  // The callback writes the reports to `told`; one thread runs at a time.
  Watchdog Watch(absl::Duration limit = absl::Milliseconds(500)) {
    return Must(Watchdog::Start(*gpu_, {.limit = limit},
                                [this](const Incident& incident) { told_.push_back(incident); }));
  }
  absl::Status Launch(const Stream& stream, const Function& kernel, absl::Duration cost,
                      uint32_t blocks = 100) const {
    return stream.Launch(kernel, {.grid = {blocks}, .block = {1024}},
                         static_cast<uint64_t>(absl::ToInt64Nanoseconds(cost)));
  }
  void Sleep(int milliseconds) { runtime_->SleepFor(absl::Milliseconds(milliseconds)); }

  std::optional<Module> module_;
  Function spin_, broken_;
  std::vector<Incident> told_;
};

TEST_F(WatchdogTest, WorkThatDoesNotEndIsToldOfOnceAndWhoWaitsBehindItNot) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  const Stream on_a = Must(Stream::Create(a)), on_b = Must(Stream::Create(b));
  const Watchdog watchdog = Watch();
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(Launch(on_a, spin_, absl::Milliseconds(1)));
    ASSERT_OK(Launch(on_b, spin_, absl::Milliseconds(1)));
  }
  ASSERT_OK(on_a.Synchronize());
  ASSERT_OK(on_b.Synchronize());
  ASSERT_OK(Launch(on_a, broken_, absl::Milliseconds(1)));  // its cost becomes known
  ASSERT_OK(on_a.Synchronize());
  ASSERT_OK(Launch(on_a, broken_, absl::Seconds(3)));
  Sleep(100);
  ASSERT_OK(Launch(on_b, spin_, absl::Milliseconds(1)));
  Sleep(300);
  EXPECT_TRUE(told_.empty());
  Sleep(1000);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].kind, Incident::Kind::kStuck);
  EXPECT_EQ(told_[0].tenant, "a");
  EXPECT_EQ(told_[0].stream, Must(on_a.native()));
  EXPECT_FALSE(told_[0].lease);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(told_[0].late), 500, 20);
  ASSERT_OK(on_b.Synchronize());
  Sleep(1000);
  EXPECT_EQ(told_.size(), 1u);
}

class OverlappingWatchdogTest : public WatchdogTest {
  std::string config() const override {
    return "sms=100,memory=8GiB,clock=virtual,h2d=10GB/s,d2h=10GB/s";
  }
};

TEST_F(OverlappingWatchdogTest, ASmallKernelIsSeenBesideOthersThatGoOn) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  const Stream on_a = Must(Stream::Create(a)), on_b = Must(Stream::Create(b));
  const Watchdog watchdog = Watch();
  ASSERT_OK(Launch(on_a, broken_, absl::Milliseconds(1), 1));
  ASSERT_OK(on_a.Synchronize());
  ASSERT_OK(Launch(on_a, broken_, absl::Seconds(2), 1));
  for (int i = 0; i < 1500 && told_.empty(); ++i) {
    ASSERT_OK(Launch(on_b, spin_, absl::Microseconds(900), 50));
    ASSERT_OK(on_b.Synchronize());
  }
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].tenant, "a");
  ASSERT_OK(on_a.Synchronize());
}

TEST_F(WatchdogTest, ALeaseIsHeldToItsHint) {
  const VirtualDevice a = MakeDevice("a", "");
  const Stream on_a = Must(Stream::Create(a));
  const Watchdog watchdog = Watch();
  Lease lease = Must(Lease::Acquire(a, {.hint = absl::Milliseconds(1), .streams = {&on_a}}));
  ASSERT_OK(Launch(on_a, spin_, absl::Seconds(2)));
  ASSERT_OK(lease.Release().status());
  Sleep(1000);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_TRUE(told_[0].lease);
  ASSERT_OK(on_a.Synchronize());
}

// A thread that waits for its lease's work within the lease never gets to release it.
TEST_F(WatchdogTest, ALeaseThatIsHeldOnIsToldOf) {
  const VirtualDevice a = MakeDevice("a", "");
  const Stream on_a = Must(Stream::Create(a));
  const Watchdog watchdog = Watch();
  Lease lease = Must(Lease::Acquire(a, {.maximum = absl::Milliseconds(100), .streams = {&on_a}}));
  Sleep(500);
  EXPECT_TRUE(told_.empty());
  Sleep(200);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_TRUE(told_[0].lease);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(told_[0].late), 500, 20);
  Sleep(1000);
  EXPECT_EQ(told_.size(), 1u);
}

TEST_F(WatchdogTest, AGraphThatDoesNotEndIsToldOf) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  const Stream on_a = Must(Stream::Create(a)), on_b = Must(Stream::Create(b));
  ASSERT_OK(on_a.BeginCapture());
  ASSERT_OK(Launch(on_a, broken_, absl::Milliseconds(1)));
  const Graph graph = Must(on_a.EndCapture());
  for (int i = 0; i < 40; ++i) {  // its cost becomes known, and it is a long one
    ASSERT_OK(on_a.LaunchGraph(graph));
    ASSERT_OK(Launch(on_b, spin_, absl::Milliseconds(1)));
  }
  ASSERT_OK(on_a.Synchronize());
  ASSERT_OK(on_b.Synchronize());
  const Watchdog watchdog = Watch();
  ASSERT_OK(Inject("hang kernel=broken"));
  ASSERT_OK(on_a.LaunchGraph(graph));
  ASSERT_OK(
      on_a.Yield());  // records a marker behind it, like Synchronize(), which would never return
  Sleep(2000);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].tenant, "a");
}

// Work that was stuck before a watchdog began is reported by it too.
TEST_F(WatchdogTest, EachWatchdogIsToldAnew) {
  const VirtualDevice a = MakeDevice("a", "");
  const Stream on_a = Must(Stream::Create(a));
  ASSERT_OK(Launch(on_a, spin_, absl::Milliseconds(1)));
  ASSERT_OK(on_a.Synchronize());
  ASSERT_OK(Launch(on_a, spin_, absl::Seconds(3)));
  for (int i = 1; i <= 2; ++i) {
    const Watchdog watchdog = Watch();
    Sleep(1000);
    EXPECT_EQ(told_.size(), static_cast<size_t>(i));
  }
  ASSERT_OK(on_a.Synchronize());
}

TEST_F(WatchdogTest, TheCallbackMaySuspendTheTenant) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  const Stream on_a = Must(Stream::Create(a)), on_b = Must(Stream::Create(b));
  const Watchdog watchdog =
      Must(Watchdog::Start(*gpu_, {.limit = absl::Milliseconds(200)},
                           [&a](const Incident&) { EXPECT_OK(a.Suspend()); }));
  ASSERT_OK(Launch(on_a, spin_, absl::Milliseconds(1)));
  ASSERT_OK(on_a.Synchronize());
  ASSERT_OK(Launch(on_a, spin_, absl::Milliseconds(600)));
  Sleep(400);
  EXPECT_EQ(on_a.LaunchRaw(spin_.native(), Whole(), nullptr, absl::Milliseconds(1)).code(),
            absl::StatusCode::kDeadlineExceeded);
  ASSERT_OK(Launch(on_b, spin_, absl::Milliseconds(1)));
  ASSERT_OK(on_b.Synchronize());
}

TEST_F(WatchdogTest, ALostContextIsToldOfForEachWhoHadWorkInFlight) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", ""), c = MakeDevice("c", "");
  const Stream on_a = Must(Stream::Create(a)), on_b = Must(Stream::Create(b)),
               on_c = Must(Stream::Create(c));
  const Watchdog watchdog = Watch();
  ASSERT_OK(Launch(on_c, spin_, absl::Milliseconds(1)));
  ASSERT_OK(on_c.Synchronize());
  Sleep(20);
  ASSERT_OK(Inject("illegal_address kernel=broken"));
  ASSERT_OK(Launch(on_a, broken_, absl::Milliseconds(2)));
  ASSERT_OK(Launch(on_b, spin_, absl::Milliseconds(2)));
  Sleep(50);
  std::vector<std::string> suspects;
  for (const Incident& incident : told_) {
    EXPECT_EQ(incident.kind, Incident::Kind::kFault);
    EXPECT_EQ(incident.driver_result, 700);  // CUDA_ERROR_ILLEGAL_ADDRESS
    suspects.push_back(incident.tenant);
  }
  EXPECT_THAT(suspects, ::testing::UnorderedElementsAre("a", "b"));
}

// A tenant is a suspect if its marker reveals the fault, even with nothing else in flight; so is the holder of a
// lease.
TEST_F(WatchdogTest, WhoFindsItOutAndWhoHoldsALeaseAreSuspects) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  const Stream on_a = Must(Stream::Create(a)), on_b = Must(Stream::Create(b));
  ASSERT_OK(Launch(on_a, broken_, absl::Microseconds(10)));
  ASSERT_OK(on_a.Synchronize());
  Sleep(20);
  const Watchdog watchdog = Watch();
  Lease lease = Must(Lease::Acquire(b, {.any_thread = true}));
  ASSERT_OK(Inject("illegal_address kernel=broken"));
  ASSERT_OK(Launch(on_a, broken_, absl::Microseconds(10)));
  EXPECT_FALSE(on_a.Synchronize().ok());
  Sleep(50);
  std::vector<std::string> suspects;
  for (const Incident& incident : told_) suspects.push_back(incident.tenant);
  EXPECT_THAT(suspects, ::testing::UnorderedElementsAre("a", "b"));
  EXPECT_EQ(Watchdog::Start(*gpu_, {}, [](const Incident&) {}).status().code(),
            absl::StatusCode::kAborted);
}

TEST_F(WatchdogTest, AWatchdogMovedOverEndsTheOldOne) {
  Watchdog watchdog = Watch();
  const Gpu other = Must(Gpu::Open(*runtime_, "1"));
  watchdog = Must(Watchdog::Start(other, {}, [](const Incident&) {}));
  EXPECT_OK(Watchdog::Start(*gpu_, {}, [](const Incident&) {}).status());
}

TEST_F(WatchdogTest, OneAGpuAndNoNonsense) {
  {
    const Watchdog first = Watch();
    EXPECT_EQ(Watchdog::Start(*gpu_, {}, [](const Incident&) {}).status().code(),
              absl::StatusCode::kAlreadyExists);
  }
  const Watchdog again = Watch();
  for (const absl::Duration limit : {absl::ZeroDuration(), absl::Milliseconds(99)}) {
    EXPECT_EQ(Watchdog::Start(*gpu_, {.limit = limit}, [](const Incident&) {}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(Watchdog::Start(*gpu_, {.limit = absl::ZeroDuration()}, [](const Incident&) {})
                .status()
                .message(),
            "watchdog: a limit of 0 or less given, 100ms or more allowed");
  EXPECT_EQ(Watchdog::Start(*gpu_, {}, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(gpushare_watchdog_stop(nullptr), GPUSHARE_INVALID_ARGUMENT);
}

// In its own callback it would wait for itself.
TEST_F(WatchdogTest, IsNotStoppedFromItsCallback) {
  const VirtualDevice a = MakeDevice("a", "");
  const Stream on_a = Must(Stream::Create(a));
  struct Seen {
    gpushare_watchdog watchdog = nullptr;
    gpushare_status status = GPUSHARE_OK;
  } seen;
  gpushare_watchdog_options options = {};
  options.struct_size = sizeof(options);
  options.limit_ns = 100'000'000;
  options.context = &seen;
  options.callback = [](void* context, const gpushare_incident*) {
    auto* const own = static_cast<Seen*>(context);
    own->status = gpushare_watchdog_stop(own->watchdog);
  };
  ASSERT_EQ(gpushare_watchdog_start(gpu_->handle(), &options, &seen.watchdog), GPUSHARE_OK);
  ASSERT_OK(Launch(on_a, spin_, absl::Milliseconds(1)));
  ASSERT_OK(on_a.Synchronize());
  ASSERT_OK(Launch(on_a, spin_, absl::Milliseconds(400)));
  ASSERT_OK(on_a.Synchronize());
  EXPECT_EQ(seen.status, GPUSHARE_FAILED_PRECONDITION);
  EXPECT_EQ(gpushare_watchdog_stop(seen.watchdog), GPUSHARE_OK);
}

}  // namespace
}  // namespace gpushare
