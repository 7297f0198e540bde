// SPDX-License-Identifier: Apache-2.0
// Device time that comes from outside: when it ends, and when what is handed out is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "tests/unit/gate/engine_test.h"

namespace gpushare::gate {
namespace {

class GivenTime final : public Supply {
 public:
  Answer Tell(const Report&, Time) override {
    return {.open = open, .bounded = bounded, .ended = ended};
  }
  std::atomic<bool> open{true}, bounded{true}, ended{false};
};

class SuppliedTimeTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    EngineOptions options;
    options.supply = given;
    MakeEngine(options);
  }
  // How many kernels that nobody knows are let through one after another.
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
  given->ended = true;
  const Time ended = clock().Now();
  engine_->Supplied();
  waiter->Join();
  EXPECT_EQ(waited, Verdict::kEnded);
  EXPECT_LT(clock().Now() - ended, Millis(1));
  EXPECT_EQ(Launch(t, Micros(50)), Verdict::kEnded);
  EXPECT_EQ(t.gate->AcquireLease({}).status().code(), absl::StatusCode::kCancelled);
  Drop(t);
}

// A cap that another process keeps for this one is passed by all that is let through before it is measured.
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
