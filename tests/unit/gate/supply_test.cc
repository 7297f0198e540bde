// SPDX-License-Identifier: Apache-2.0
// Device time that comes from outside: when work in flight ends, and when handed-out time is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "tests/unit/gate/engine_test.h"

namespace gpushare::gate {
namespace {

class GivenTime final : public Supply {
 public:
  Answer Tell(const Report& report, Time) override {
    if (report.outstanding > Nanos(0)) (report.ends == kNever ? guesses : predictions)++;
    outstanding = report.outstanding.count();
    ended = report.ended;
    return {.open = open, .bounded = bounded, .ended = evicted};
  }
  std::atomic<int> guesses{0}, predictions{0};  // reports of work in flight
  std::atomic<bool> open{true}, bounded{true}, evicted{false};
  // From the last report.
  std::atomic<int64_t> outstanding{0};
  std::atomic<Time> ended{};
};

class SuppliedTimeTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    EngineOptions options;
    options.supply = given;
    MakeEngine(options);
  }
  // How many kernels of unknown cost are admitted in a row.
  int Unknown(const sched::TenantLimits& limits) {
    TenantOptions options;
    options.limits = limits;
    Tenant t = Make(options);
    int launched = 0;
    while (launched < 50 && Launch(t, Millis(5), clock().Now() + Millis(1)) == Verdict::kAdmitted) {
      ++launched;
    }
    Drop(t);
    return launched;
  }

  const std::shared_ptr<GivenTime> given = std::make_shared<GivenTime>();
};

TEST_F(SuppliedTimeTest, WhoWaitsWhenItEndsIsRefusedAndWhoComesLater) {
  Tenant t = Make({});
  EXPECT_EQ(Launch(t, Micros(50)), Verdict::kAdmitted);
  Synchronize(t);
  given->open = false;
  EXPECT_EQ(Launch(t, Micros(50), clock().Now() + Millis(1)), Verdict::kDeadline);
  Verdict waited = Verdict::kAdmitted;
  auto waiter = clock().StartThread("waits", [&] {
    driver_->PushContext(context_);
    waited = Launch(t, Micros(50));
    driver_->PopContext();
  });
  clock().SleepUntil(clock().Now() + Millis(3));
  given->evicted = true;
  const Time ended = clock().Now();
  engine_->Supplied();
  waiter->Join();
  EXPECT_EQ(waited, Verdict::kEnded);
  EXPECT_LT(clock().Now() - ended, Millis(1));
  EXPECT_EQ(Launch(t, Micros(50)), Verdict::kEnded);
  EXPECT_EQ(t.gate->AcquireLease({}).status().code(), absl::StatusCode::kCancelled);
  Drop(t);
}

// The giver of the time waits for the real end only if the cost was hardly measured yet.
TEST_F(SuppliedTimeTest, WhenWhatIsInFlightEndsIsNotSaidWhereItsCostIsAGuess) {
  Tenant t = Make({});
  for (int i = 0; i < 2; ++i) {  // each launched by itself: two of them settle the cost of a kernel
    given->guesses = given->predictions = 0;
    ASSERT_EQ(Launch(t, Micros(500)), Verdict::kAdmitted);
    clock().SleepUntil(clock().Now() + Micros(100));
    engine_->Supplied();
    EXPECT_GT(given->guesses, 0);
    Synchronize(t);
  }
  for (int i = 0; i < 20; ++i) {  // until the cost is known after any four kernels like it
    ASSERT_EQ(Launch(t, Micros(500)), Verdict::kAdmitted);
    Synchronize(t);
  }
  given->guesses = given->predictions = 0;
  ASSERT_EQ(Launch(t, Micros(500)), Verdict::kAdmitted);
  clock().SleepUntil(clock().Now() + Micros(100));
  engine_->Supplied();
  EXPECT_EQ(given->guesses, 0);
  EXPECT_GT(given->predictions, 0);
  Drop(t);
}

// The tenant is removed before its kernel ends, so nobody settles the kernel.
TEST_F(SuppliedTimeTest, WhoIsGoneLeavesNoGuessBehind) {
  Tenant known = Make({});
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(Launch(known, Micros(500)), Verdict::kAdmitted);
    Synchronize(known);
  }
  Tenant gone = Make({});
  ASSERT_EQ(Launch(gone, Millis(1)), Verdict::kAdmitted);
  engine_->RemoveTenant(gone.gate);
  driver_->SynchronizeStream(gone.handle);
  driver_->DestroyStream(gone.handle);
  clock().SleepUntil(clock().Now() + Millis(2));
  given->guesses = given->predictions = 0;
  ASSERT_EQ(Launch(known, Micros(500)), Verdict::kAdmitted);
  clock().SleepUntil(clock().Now() + Micros(100));
  engine_->Supplied();
  EXPECT_EQ(given->guesses, 0);
  EXPECT_GT(given->predictions, 0);
  Drop(known);
}

// Other processes wait for its work in flight and for the end of that: both are reported at once.
TEST_F(SuppliedTimeTest, WhoNeedsNoGrantSaysWhatItHasBegunAndWhenThatWasOver) {
  given->bounded = false;
  Tenant t = Make({.limits = {.band = sched::Band::kHigh}});
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(Launch(t, Micros(50)), Verdict::kAdmitted);
    Synchronize(t);
  }
  for (int i = 0; i < 5; ++i) {
    clock().SleepUntil(clock().Now() + Millis(1));
    ASSERT_EQ(given->outstanding.load(), 0);
    const Time begin = clock().Now();
    ASSERT_EQ(Launch(t, Micros(50)), Verdict::kAdmitted);
    EXPECT_GT(given->outstanding.load(), 0) << "nobody is told before it is launched";
    // Nobody waits for the work, and no launch follows: 30 us after the launch a marker is recorded behind it, and
    // the unspent part of the grant is given back.
    while (given->outstanding > 0 && clock().Now() < begin + Millis(1)) {
      clock().SleepUntil(clock().Now() + Micros(5));
    }
    EXPECT_LE(clock().Now() - begin, Micros(80));
    EXPECT_GE(given->ended.load(), begin + Micros(50));
    EXPECT_LE(given->ended.load(), begin + Micros(60));
  }
  Drop(t);
}

// Work that is admitted before it is measured would exceed a cap that another process keeps for this tenant.
TEST_F(SuppliedTimeTest, HighPriorityHasFewKernelsOfUnknownCostInFlightWhereTimeIsCounted) {
  sched::TenantLimits high;
  high.band = sched::Band::kHigh;
  EXPECT_LE(Unknown(high), 2);
  given->bounded = false;
  EXPECT_EQ(Unknown(high), 50);
  EXPECT_LE(Unknown({}), 2);
}

}  // namespace
}  // namespace gpushare::gate
