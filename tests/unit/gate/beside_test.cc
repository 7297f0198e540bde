// SPDX-License-Identifier: Apache-2.0
// A high-priority service and a job whose kernels may run beside it: how much of the job runs, and by how much that
// delays the service.
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "gate/state.h"
#include "tests/unit/gate/engine_test.h"

namespace gpushare::gate {
namespace {

constexpr int kRequests = 60;

class BesideTest : public EngineTest {
 protected:
  std::string config() const override { return "sms=100,overlap=footprint,clock=virtual"; }

  void LaunchWide(const Tenant& t, int sms, Nanos cost, Time deadline = kNever) {
    const driver::LaunchShape shape = {{static_cast<unsigned>(sms), 1, 1}, {1024, 1, 1}, 0};
    const Work work = {.key = KernelKey(function_, shape),
                       .footprint = static_cast<float>(sms) / 100};
    const Admission a = t.gate->Admit(*t.stream, work, deadline);
    if (a.verdict != Verdict::kAdmitted) return;
    uint64_t ns = static_cast<uint64_t>(cost.count());
    void* params[] = {&ns};
    t.gate->Complete(a, driver_->Launch(function_, shape, t.handle, params) == Result::kSuccess);
  }

  Tenant MakeWith(const sched::TenantLimits& limits, int priority, uint32_t account) {
    Tenant t;
    t.gate = *engine_->AddTenant("t", {.limits = limits});
    EXPECT_EQ(driver_->CreateStream(&t.handle, priority), Result::kSuccess);
    t.stream = *t.gate->AddStream(t.handle);
    sim_->set_account(t.handle, account);
    return t;
  }

  struct Came {
    Nanos answered{0}, longest{0};  // over all requests
    double job_ms = 0;              // the device time that the job used meanwhile
  };
  // Sends requests of 40 kernels of 50 us each, in groups of three on a third of the device and one on all of it,
  // with 2 ms between requests. Meanwhile a job launches kernels without end: `job` returns the SMs and the length of
  // its i-th kernel.
  Came Play(double delay, const std::function<std::pair<int, Nanos>(int)>& job,
            const sched::TenantLimits& job_limits = {}) {
    Tenant service = MakeWith({.band = sched::Band::kHigh, .delay = delay}, -5, 1);
    Tenant other = MakeWith(job_limits, 0, 2);
    const auto request = [&] {
      const Time began = clock().Now();
      since_began_ = 0;
      for (int i = 0; i < 40; ++i) LaunchWide(service, i % 4 == 3 ? 100 : 33, Micros(50));
      Synchronize(service);
      const Nanos took = clock().Now() - began;
      clock().SleepUntil(clock().Now() + Millis(2));
      return took;
    };
    for (int i = 0; i < 10; ++i) request();  // the costs become known
    std::atomic<bool> stop{false};
    auto thread = clock().StartThread("job", [&] {
      driver_->PushContext(context_);
      for (int i = 0; !stop; ++i) {
        const auto [sms, cost] = job(i);
        ++since_began_;
        LaunchWide(other, sms, cost);
      }
      Synchronize(other);
      driver_->PopContext();
    });
    for (int i = 0; i < 20; ++i) request();
    gpushare_sim_truth before{}, after{};
    EXPECT_EQ(sim_->account_truth(0, 2, &before), 0);
    Came came;
    for (int i = 0; i < kRequests; ++i) {
      const Nanos took = request();
      came.answered += took;
      came.longest = std::max(came.longest, took);
    }
    EXPECT_EQ(sim_->account_truth(0, 2, &after), 0);
    came.job_ms = (after.used_ns - before.used_ns) * 1e-6;
    stop = true;
    thread->Join();
    Drop(service);
    Drop(other);
    return came;
  }

  int since_began_ = 0;  // the number of the job's kernels since the request began
};

double MsOf(Nanos n) { return static_cast<double>(n.count()) * 1e-6; }

std::pair<int, Nanos> Fitting(int) { return {60, Micros(40)}; }

TEST_F(BesideTest, WhatFitsRunsBesideAndDelaysByLess) {
  const Came alone = Play(0, Fitting);
  const Came beside = Play(0.03, Fitting);
  // Without the job a third of the device is busy for three quarters of a request, and the rest is idle.
  EXPECT_GT(beside.job_ms, alone.job_ms + 0.15 * MsOf(alone.answered));
  EXPECT_LE(MsOf(beside.answered), 1.03 * MsOf(alone.answered) + 1.5);
}

// Kernels as wide as the device get nothing beside the service, except within the budget.
TEST_F(BesideTest, WhatDoesNotFitWaits) {
  const auto wide = [](int) { return std::pair<int, Nanos>(100, Micros(200)); };
  const Came alone = Play(0, wide);
  const Came beside = Play(0.03, wide);
  EXPECT_LE(MsOf(beside.answered), 1.03 * MsOf(alone.answered) + 1.5);
}

// Kernels with one key: those between requests are short, which becomes the prediction, and one in each request is
// long. By the prediction they cause no delay, but they would delay each request if the measured delay did not count.
TEST_F(BesideTest, WhoseKernelsAreNotWhatIsPredictedIsLetInNoMore) {
  const double alone = MsOf(Play(0, Fitting).answered);
  for (const int which : {1, 2, 5}) {
    const auto lies = [&](int) {
      return std::pair<int, Nanos>(60, since_began_ == which ? Millis(1) : Micros(20));
    };
    const double shut = MsOf(Play(0, lies).answered);
    const double open = MsOf(Play(0.03, lies).answered);
    // The tenant's fraction, the saved-up credit (1.5 ms), and one kernel of the job.
    EXPECT_LE(open, shut + 0.03 * alone + 1.5 + 1) << which;
  }
}

TEST(BesideLaunches, AreThoseFromTheGrantUntilItsCreditIsGone) {
  // Including launch numbers that wrap around in the middle.
  for (const uint32_t first : {0u, 1000u, TenantPage::kLaunchMask - 2}) {
    const auto at = [&](uint32_t i) { return (first + i) & TenantPage::kLaunchMask; };
    const auto has = [&](const BesideLaunches& besides) {
      std::string which;
      for (uint32_t i = 0; i < 10; ++i) which += besides.Has(at(i)) ? 'x' : '.';
      return which;
    };
    BesideLaunches besides;
    besides.Synced(at(0));
    EXPECT_EQ(has(besides), "..........");
    besides.Close(at(1));  // credit that is not for work beside the service
    EXPECT_EQ(has(besides), "..........");
    besides.Open(at(2));
    EXPECT_EQ(has(besides), "..xxxxxxxx");
    besides.Synced(at(1));  // an earlier launch is not written yet
    besides.Close(at(4));
    EXPECT_EQ(has(besides), "..xx......");
    besides.Synced(at(3));
    EXPECT_EQ(has(besides), "...x......");
    besides.Open(at(
        6));  // the previous launches are not all in the books, so the launches in between count as well
    EXPECT_EQ(has(besides), "...xxxxxxx");
    besides.Close(at(7));
    besides.Close(at(9));
    EXPECT_EQ(has(besides), "...xxxx...");
    besides.Synced(at(8));
    EXPECT_EQ(has(besides), "..........");
    besides.Open(at(9));
    EXPECT_EQ(has(besides), ".........x");
  }
}

// A grant is for the kernel of the thread that asked, but any thread may spend its credit first. Here another thread
// has credit in hand and launches a kernel on all SMs in place of one that fits, and then another one.
TEST_F(BesideTest, WhoeverSpendsItsCreditIsPaidFor) {
  Tenant service = MakeWith({.band = sched::Band::kHigh, .delay = 0.03}, -5, 1);
  Tenant other = MakeWith({}, 0, 2);
  TenantState& kept = *service.stream->tenant;
  TenantState& job = *other.stream->tenant;
  Engine::Impl& engine = kept.engine;
  const auto left = [&] {
    const base::MutexLock lock(&engine.mu);
    return kept.delay_budget.Left(clock().Now());
  };
  const auto begin = [&] {
    for (int i = 0; i < 40; ++i) LaunchWide(service, 33, Micros(50));
  };
  Nanos usual{0};
  for (int i = 0; i < 40; ++i) {
    const Time began = clock().Now();
    begin();
    Synchronize(service);
    usual = clock().Now() - began;
    clock().SleepUntil(clock().Now() + Millis(2));
    for (int j = 0; j < 4; ++j) LaunchWide(other, 100, Micros(200));
    Synchronize(other);
    clock().SleepUntil(clock().Now() + Millis(2));
  }
  EXPECT_GE(left(), Micros(1400));  // the most that can be saved up

  for (const bool beside : {true, false}) {
    const Nanos before = left();
    const uint64_t launched = other.gate->stats().launches;
    const Time began = clock().Now();
    begin();
    {
      const Section section(engine);
      const Time now = clock().Now();
      EXPECT_TRUE(engine.arbiter.Closed(sched::Band::kNormal, now));
      const Nanos credit(2 * static_cast<int64_t>(job.page.ChargeNs(220'000)));
      engine.GiveCredit(job, credit, engine.arbiter.Charge(job.id, credit, now), now, beside);
    }
    const Time at_once = clock().Now();
    LaunchWide(other, 100, Micros(200), at_once);
    LaunchWide(other, 100, Micros(200), at_once);
    Synchronize(service);
    const Nanos late = clock().Now() - began - usual;
    Synchronize(other);
    clock().SleepUntil(clock().Now() + Millis(2));
    EXPECT_GE(late, Micros(100));
    // The request itself earns some budget.
    const Nanos paid = before - left();
    if (beside) {
      EXPECT_EQ(other.gate->stats().launches, launched + 2);
      EXPECT_GE(paid, 3 * late / 4);
    } else {
      EXPECT_LE(paid, Nanos(0));
    }
  }
  Drop(service);
  Drop(other);
}

// The cap holds, even for work beside the service.
TEST_F(BesideTest, ACapHoldsBeside) {
  sched::TenantLimits limits;
  limits.cap = 0.1;
  const Came came = Play(0.03, Fitting, limits);
  EXPECT_LE(came.job_ms, 0.105 * (MsOf(came.answered) + 2 * kRequests) + 5);
  EXPECT_GE(came.job_ms, 0.08 * (MsOf(came.answered) + 2 * kRequests));
}

}  // namespace
}  // namespace gpushare::gate
