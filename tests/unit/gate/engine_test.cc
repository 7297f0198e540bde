// SPDX-License-Identifier: Apache-2.0
// The engine on the simulated GPU's virtual clock. bench/share_accuracy asserts shares and caps; this file tests what
// happens at the gate.
#include "tests/unit/gate/engine_test.h"

#include <thread>
#include <vector>

#include "gate/graph_kernels.h"

namespace gpushare::gate {
namespace {

TEST_F(EngineTest, MeasuresWhatATenantUsedAlone) {
  Tenant t = Make({});
  for (int i = 0; i < 200; ++i) ASSERT_EQ(Launch(t, Micros(50)), Verdict::kAdmitted);
  Synchronize(t);
  clock().SleepUntil(clock().Now() + Millis(2));
  const GateStats stats = t.gate->stats();
  EXPECT_EQ(stats.launches, 200u);
  // Each marker takes a microsecond of the stream, which is not the tenant's use.
  EXPECT_NEAR(static_cast<double>(stats.measured.count()), 200 * 50e3, 0.03 * 200 * 50e3);
  EXPECT_GT(stats.markers, 10u);
  EXPECT_LT(stats.markers, 200u);
  Drop(t);
}

// Another thread's marker would be recorded before the kernel, so a kernel of a millisecond would seem to have taken
// no time.
TEST_F(EngineTest, WhatIsBetweenTheGateAndTheDriverIsNotMarkedByOthers) {
  Tenant t = Make({}), other = t;
  ASSERT_EQ(driver_->CreateStream(&other.handle, 0), Result::kSuccess);
  other.stream = *t.gate->AddStream(other.handle);
  const driver::LaunchShape narrow = {{50, 1, 1}, {1024, 1, 1}, 0};
  const auto launch = [&](const Tenant& on, const driver::LaunchShape& shape, uint64_t ns) {
    void* params[] = {&ns};
    return driver_->Launch(function_, shape, on.handle, params) == Result::kSuccess;
  };
  const Admission late = t.gate->Admit(*t.stream, {KernelKey(function_, Shape())});
  const Admission meanwhile = other.gate->Admit(*other.stream, {KernelKey(function_, narrow)});
  t.gate->Complete(meanwhile, launch(other, narrow, 50'000));
  t.gate->Complete(late, launch(t, Shape(), 1'000'000));
  for (Tenant* each : {&t, &other}) Synchronize(*each);
  clock().SleepUntil(clock().Now() + Millis(5));
  const GateStats before = t.gate->stats();
  EXPECT_NEAR(static_cast<double>(before.measured.count()), 1.05e6, 0.02e6);
  // The next kernel is charged what the previous one took.
  ASSERT_EQ(Launch(t, Millis(1)), Verdict::kAdmitted);
  Synchronize(t);
  clock().SleepUntil(clock().Now() + Millis(5));
  const Nanos charged = t.gate->stats().predicted - before.predicted;
  EXPECT_NEAR(static_cast<double>(charged.count()), 1e6, 0.1e6);
  t.gate->RemoveStream(other.stream);
  driver_->DestroyStream(other.handle);
  Drop(t);
}

TEST_F(EngineTest, ACappedTenantWaitsAndTheWaitIsCounted) {
  TenantOptions options;
  options.limits.cap = 0.1;
  Tenant t = Make(options);
  const Time begin = clock().Now();
  for (int i = 0; i < 400; ++i) ASSERT_EQ(Launch(t, Micros(100)), Verdict::kAdmitted);
  Synchronize(t);
  // 40 ms of work at a tenth of the device, minus the 5 ms that may be saved up.
  const double took = static_cast<double>((clock().Now() - begin).count());
  EXPECT_NEAR(took, 350e6, 25e6);
  const GateStats stats = t.gate->stats();
  EXPECT_GT(stats.waits, 100u);
  EXPECT_GT(stats.throttled, Millis(250));
  EXPECT_GT(stats.WaitQuantile(0.99), stats.WaitQuantile(0.01));
  Drop(t);
}

TEST_F(EngineTest, ADeadlineEndsAWait) {
  TenantOptions options;
  options.limits.cap = 0.01;
  options.limits.cap_depth = Micros(100);
  Tenant t = Make(options);
  Verdict verdict = Verdict::kAdmitted;
  Time deadline{};
  for (int i = 0; i < 100 && verdict == Verdict::kAdmitted; ++i) {
    deadline = clock().Now() + Millis(1);
    verdict = Launch(t, Micros(500), deadline);
  }
  EXPECT_EQ(verdict, Verdict::kDeadline);
  EXPECT_GE(clock().Now(), deadline);
  EXPECT_LT(clock().Now(), deadline + Micros(200));
  EXPECT_EQ(Launch(t, Micros(500)),
            Verdict::kAdmitted);  // without the wait for a marker it is held for its full time
  Drop(t);
}

TEST_F(EngineTest, WithoutTimeToWaitItIsAskedOnce) {
  Tenant t = Make({});
  EXPECT_EQ(Launch(t, Micros(50), clock().Now()), Verdict::kAdmitted);
  LeaseRequest request;
  request.deadline = clock().Now();
  absl::StatusOr<uint64_t> lease = t.gate->AcquireLease(request);
  EXPECT_TRUE(lease.ok()) << lease.status();
  if (lease.ok()) t.gate->ReleaseLease(*lease);
  t.gate->Suspend();
  EXPECT_EQ(Launch(t, Micros(50), clock().Now()), Verdict::kDeadline);
  t.gate->Resume();
  Drop(t);
}

TEST_F(EngineTest, SuspendHoldsAndResumeLetsGo) {
  Tenant t = Make({});
  ASSERT_EQ(Launch(t, Micros(50)), Verdict::kAdmitted);
  t.gate->Suspend();
  EXPECT_EQ(Launch(t, Micros(50), clock().Now() + Millis(5)), Verdict::kDeadline);
  auto later = clock().StartThread("resume", [&] {
    clock().SleepUntil(clock().Now() + Millis(3));
    t.gate->Resume();
  });
  const Time begin = clock().Now();
  EXPECT_EQ(Launch(t, Micros(50)), Verdict::kAdmitted);
  EXPECT_GE(clock().Now() - begin, Millis(3));
  EXPECT_LT(clock().Now() - begin, Millis(4));
  later->Join();
  Drop(t);
}

TEST_F(EngineTest, OfAThreadThatIsNotRegisteredTheCapHoldsAllTheSame) {
  Tenant t = Make({.limits = {.cap = 0.25}});
  sim_->thread_leave();
  const Time begin = clock().Now();
  for (int i = 0; i < 400; ++i) {
    ASSERT_EQ(Launch(t, Micros(500)), Verdict::kAdmitted);
    const Time left = clock().Now();
    if (i % 100 == 0) std::this_thread::yield();
    EXPECT_EQ(clock().Now(),
              left);  // computing takes no time on the clock, however long the engine waits
  }
  driver_->SynchronizeStream(t.handle);
  const double seconds = static_cast<double>((clock().Now() - begin).count()) / 1e9;
  EXPECT_NEAR(seconds, 0.79, 0.02);  // 5 ms pass at once
  sim_->thread_enter("test");
  Drop(t);
}

TEST_F(EngineTest, ARemovedTenantsWaitersLeave) {
  Tenant t = Make({});
  t.gate->Suspend();
  Verdict verdict = Verdict::kAdmitted;
  auto waiter = clock().StartThread("waiter", [&] {
    driver_->PushContext(context_);
    verdict = Launch(t, Micros(50));
    driver_->PopContext();
  });
  clock().SleepUntil(clock().Now() + Millis(1));
  engine_->RemoveTenant(t.gate);
  waiter->Join();
  EXPECT_EQ(verdict, Verdict::kSuspended);
  driver_->DestroyStream(t.handle);
}

TEST_F(EngineTest, ACapturingStreamIsNotMarked) {
  Tenant t = Make({});
  for (int i = 0; i < 20; ++i) ASSERT_EQ(Launch(t, Micros(100)), Verdict::kAdmitted);
  Synchronize(t);
  ASSERT_EQ(driver_->BeginCapture(t.handle), Result::kSuccess);
  const uint64_t before = sim_->calls("cuEventRecord");
  for (int i = 0; i < 20; ++i) ASSERT_EQ(Launch(t, Micros(100)), Verdict::kAdmitted);
  t.gate->Synchronizing(t.stream);
  EXPECT_EQ(sim_->calls("cuEventRecord"), before);
  driver::Graph graph = nullptr;
  ASSERT_EQ(driver_->EndCapture(t.handle, &graph), Result::kSuccess);  // the capture is complete
  driver_->DestroyGraph(graph);
  Drop(t);
}

// Kernels whose cost is settled are charged what they took when the host takes longer for a launch than the device, and no marker
// tells when one ended.
TEST_F(EngineTest, WhoLeavesTheDeviceIdleBetweenLaunchesPaysForThemAllTheSame) {
  struct Case {
    Nanos kernel, gap;
    bool evenly;  // else every second launch follows its predecessor at once
  };
  uint64_t ns = 0;
  for (const Case& c : {Case{Micros(30), Micros(50), true}, Case{Micros(30), Micros(50), false},
                        Case{Micros(10), Micros(50), false}, Case{Micros(5), Micros(50), false},
                        Case{Micros(10), Micros(20), true}}) {
    TenantOptions options;
    options.limits.cap = 0.99;
    Tenant t = Make(options);
    ns = static_cast<uint64_t>(c.kernel.count());
    void* params[] = {&ns};
    const auto launch = [&](int times, Nanos gap) {
      for (int i = 0; i < times; ++i) {
        const Admission a = t.gate->Admit(*t.stream, {KernelKey(function_, Shape())});
        ASSERT_EQ(a.verdict, Verdict::kAdmitted);
        t.gate->Complete(a,
                         driver_->Launch(function_, Shape(), t.handle, params) == Result::kSuccess);
        clock().SleepUntil(clock().Now() + (c.evenly ? gap : i % 2 * 2 * gap));
      }
    };
    launch(100, Nanos(0));
    Synchronize(t);
    clock().SleepUntil(clock().Now() + Millis(5));
    const Nanos before = t.gate->stats().measured;
    launch(1000, c.gap);
    Synchronize(t);
    clock().SleepUntil(clock().Now() + Millis(5));
    const double charged = static_cast<double>((t.gate->stats().measured - before).count());
    EXPECT_NEAR(charged / (1000 * static_cast<double>(ns)), 1, 0.03)
        << c.kernel << " " << c.gap << " " << c.evenly;
    Drop(t);
  }
}

// A kernel that takes longer than before, and still ends before the next launch.
TEST_F(EngineTest, WhoLeavesTheDeviceIdleIsMeasuredNowAndThen) {
  TenantOptions options;
  options.limits.cap = 0.99;
  Tenant t = Make(options);
  const auto launch = [&](int times, Nanos kernel, Nanos gap) {
    uint64_t ns = static_cast<uint64_t>(kernel.count());
    void* params[] = {&ns};
    for (int i = 0; i < times; ++i) {
      const Admission a = t.gate->Admit(*t.stream, {KernelKey(function_, Shape())});
      ASSERT_EQ(a.verdict, Verdict::kAdmitted);
      t.gate->Complete(a,
                       driver_->Launch(function_, Shape(), t.handle, params) == Result::kSuccess);
      clock().SleepUntil(clock().Now() + gap);
    }
  };
  launch(100, Micros(10), Nanos(0));
  Synchronize(t);
  launch(3000, Micros(30), Micros(50));
  Synchronize(t);
  clock().SleepUntil(clock().Now() + Millis(5));
  const Nanos before = t.gate->stats().measured;
  launch(1000, Micros(30), Micros(50));
  Synchronize(t);
  clock().SleepUntil(clock().Now() + Millis(5));
  EXPECT_NEAR(static_cast<double>((t.gate->stats().measured - before).count()), 30e6, 2e6);
  Drop(t);
}

// The cost of a kernel has changed, and the host keeps the device idle in between. Whatever it waits for, and whichever of its
// launches goes by credit in hand, each kernel is measured now and then.
TEST_F(EngineTest, WhatIsOnlySeenToBeOverIsMeasuredNowAndThen) {
  struct Step {
    unsigned blocks;
    Nanos kernel, gap;
    bool waits;
  };
  struct Case {
    const char* name;
    Nanos before;
    std::vector<Step> steps;
  };
  const Case cases[] = {
      {"waits after each", Micros(10), {{100, Micros(30), Micros(50), true}}},
      {"waits after each, and is shorter now", Micros(30), {{100, Micros(10), Micros(50), true}}},
      {"waits after every third",
       Micros(10),
       {{100, Micros(10), Micros(50), false},
        {99, Micros(30), Micros(50), false},
        {98, Micros(30), Micros(50), true}}},
      {"no call for a silence", Micros(10), {{100, Micros(500), Millis(2), false}}},
  };
  for (const Case& c : cases) {
    TenantOptions options;
    options.limits.cap = 0.99;
    Tenant t = Make(options);
    const auto launch = [&](const Step& step, Nanos kernel, Nanos gap) {
      driver::LaunchShape shape = Shape();
      shape.grid.x = step.blocks;
      uint64_t ns = static_cast<uint64_t>(kernel.count());
      void* params[] = {&ns};
      const Admission a = t.gate->Admit(*t.stream, {KernelKey(function_, shape)});
      ASSERT_EQ(a.verdict, Verdict::kAdmitted);
      t.gate->Complete(a, driver_->Launch(function_, shape, t.handle, params) == Result::kSuccess);
      clock().SleepUntil(clock().Now() + gap);
      if (gap > Nanos(0) && step.waits) Synchronize(t);
    };
    const auto play = [&](int times) {
      for (int i = 0; i < times; ++i) {
        for (const Step& step : c.steps) launch(step, step.kernel, step.gap);
      }
    };
    for (int i = 0; i < 100; ++i) {
      for (const Step& step : c.steps) launch(step, c.before, Nanos(0));
    }
    Synchronize(t);
    play(1500);
    Synchronize(t);
    const Nanos before = t.gate->view().charged;
    play(500);
    Synchronize(t);
    clock().SleepUntil(clock().Now() + Millis(5));
    double took = 0;
    for (const Step& step : c.steps) took += 500 * static_cast<double>(step.kernel.count());
    EXPECT_NEAR(static_cast<double>((t.gate->view().charged - before).count()) / took, 1, 0.03)
        << c.name;
    Drop(t);
  }
}

// With CUDA_LAUNCH_BLOCKING each marker finds its stream idle, and the driver's call has taken as long as the kernel.
TEST_F(EngineTest, WhoseLaunchesReturnAfterTheKernelPaysForIt) {
  EngineOptions engine;
  engine.blocking_launches = true;
  MakeEngine(engine);
  Tenant t = Make({.limits = {.cap = 0.5}});
  const auto play = [&](int times) {
    for (int i = 0; i < times; ++i) {
      const Admission a = t.gate->Admit(*t.stream, {KernelKey(function_, Shape())});
      ASSERT_EQ(a.verdict, Verdict::kAdmitted);
      uint64_t ns = 1'000'000;
      void* params[] = {&ns};
      const Result launched = driver_->Launch(function_, Shape(), t.handle, params);
      driver_->SynchronizeStream(t.handle);
      t.gate->Complete(a, launched == Result::kSuccess);
    }
  };
  play(100);
  const Time begin = clock().Now();
  const Nanos before = t.gate->view().charged;
  play(500);
  EXPECT_NEAR(static_cast<double>((t.gate->view().charged - before).count()) / 500e6, 1, 0.02);
  EXPECT_NEAR(500e6 / static_cast<double>((clock().Now() - begin).count()), 0.5, 0.02);
  Drop(t);
}

// The host takes longer for a launch than the device. So each marker finds that its kernel has ended, and tells no more than
// that the kernel was not longer than predicted.
TEST_F(EngineTest, KernelsThatEndBeforeTheNextLaunchAreNotMeasuredOneByOneForever) {
  TenantOptions options;
  options.limits.cap = 0.9;
  Tenant t = Make(options);
  int launched = 0;
  const auto launch = [&](int times) {
    for (const int end = launched + times; launched < end; ++launched) {
      driver::LaunchShape shape = Shape();
      shape.grid.x = static_cast<unsigned>(97 + launched % 4);  // four kernels in turn
      const Admission a = t.gate->Admit(*t.stream, {KernelKey(function_, shape)});
      ASSERT_EQ(a.verdict, Verdict::kAdmitted);
      uint64_t ns = 1000;
      void* params[] = {&ns};
      t.gate->Complete(a, driver_->Launch(function_, shape, t.handle, params) == Result::kSuccess);
      clock().SleepUntil(clock().Now() + Micros(5));
    }
  };
  launch(100);
  Synchronize(t);
  const uint64_t before = sim_->calls("cuEventRecord");
  const Nanos charged = t.gate->stats().measured;
  launch(400);
  EXPECT_LT(sim_->calls("cuEventRecord") - before, 40u);
  Synchronize(t);
  EXPECT_NEAR(static_cast<double>((t.gate->stats().measured - charged).count()), 400 * 1000.0,
              150e3);
  Drop(t);
}

TEST_F(EngineTest, ALeaseIsMeasuredAndHoldsOthersOff) {
  Tenant a = Make({}), b = Make({});
  LeaseRequest request;
  request.hint = Millis(2);
  request.exclusive = true;
  request.streams = {a.stream};
  absl::StatusOr<uint64_t> lease = a.gate->AcquireLease(request);
  ASSERT_TRUE(lease.ok()) << lease.status();
  uint64_t ns = 2'000'000;
  void* params[] = {&ns};
  ASSERT_EQ(driver_->Launch(function_, Shape(), a.handle, params), Result::kSuccess);
  EXPECT_EQ(Launch(b, Micros(10), clock().Now() + Micros(500)), Verdict::kDeadline);
  a.gate->ReleaseLease(*lease);
  driver_->SynchronizeStream(a.handle);
  clock().SleepUntil(clock().Now() + Millis(1));
  EXPECT_NEAR(static_cast<double>(a.gate->stats().measured.count()), 2e6, 0.05e6);
  EXPECT_EQ(Launch(b, Micros(10)), Verdict::kAdmitted);
  Drop(a);
  Drop(b);
}

TEST_F(EngineTest, CopiesKeepToTheirRate) {
  TenantOptions options;
  options.h2d_bytes_per_s = 1e9;
  Tenant t = Make(options);
  const Time begin = clock().Now();
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(t.gate->AdmitCopy(CopyDirection::kHostToDevice, 4 << 20), Verdict::kAdmitted);
  }
  const double took = static_cast<double>((clock().Now() - begin).count()) * 1e-9;
  EXPECT_NEAR(took, 100 * 4.194304e6 / 1e9, 0.02);
  // The other direction has no limit.
  const Time other = clock().Now();
  ASSERT_EQ(t.gate->AdmitCopy(CopyDirection::kDeviceToHost, 1 << 30), Verdict::kAdmitted);
  EXPECT_LT(clock().Now() - other, Micros(10));
  EXPECT_EQ(t.gate->stats().copy_bytes[0], 400u << 20);
  Drop(t);
}

TEST_F(EngineTest, HighPriorityTakesOpenGrantsBack) {
  TenantOptions high;
  high.limits.band = sched::Band::kHigh;
  Tenant service = Make(high), batch = Make({});
  for (int i = 0; i < 5; ++i) ASSERT_EQ(Launch(batch, Micros(20)), Verdict::kAdmitted);
  ASSERT_EQ(Launch(service, Micros(500)), Verdict::kAdmitted);
  const Time begin = clock().Now();
  EXPECT_EQ(Launch(batch, Micros(20), begin + Micros(300)), Verdict::kDeadline);
  Synchronize(service);
  EXPECT_EQ(Launch(batch, Micros(20), clock().Now() + Millis(1)), Verdict::kAdmitted);
  Drop(service);
  Drop(batch);
}

// The only tenant gets grants of 2 ms, which would keep another that comes waiting.
TEST_F(EngineTest, WhatTheOnlyTenantWasGrantedIsTakenBackWhenAnotherComes) {
  Tenant a = Make({});
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(Launch(a, Micros(20)), Verdict::kAdmitted);
    Synchronize(a);
  }
  ASSERT_EQ(Launch(a, Micros(20)), Verdict::kAdmitted);  // it has a grant now
  Tenant b = Make({});
  int admitted = 0;
  while (admitted < 90 && Launch(a, Micros(20), clock().Now()) == Verdict::kAdmitted) ++admitted;
  // The window of 200 us, and the time in which the host launched them.
  EXPECT_LT(admitted, 30);
  Synchronize(a);
  for (Tenant* each : {&a, &b}) Drop(*each);
}

TEST_F(EngineTest, ALostDeviceIsSurvived) {
  Tenant t = Make({});
  ASSERT_EQ(Launch(t, Micros(50)), Verdict::kAdmitted);
  Synchronize(t);
  char error[256] = "";
  ASSERT_EQ(sim_->inject("illegal_address kernel=spin", error, sizeof error), 0) << error;
  for (int i = 0; i < 10; ++i) {
    if (Launch(t, Micros(50), clock().Now() + Seconds(1)) != Verdict::kAdmitted) break;
  }
  EXPECT_NE(driver_->SynchronizeStream(t.handle), Result::kSuccess);
  sim_->inject("clear", error, sizeof error);
  t.gate->RemoveStream(t.stream);
  engine_->RemoveTenant(t.gate);
}

// ---- What goes wrong around a launch ----

TEST_F(EngineTest, RefusedLaunchesAreNotCharged) {
  Tenant refused = Make({}), other = Make({});
  const driver::LaunchShape impossible{{1, 1, 1}, {1024, 1, 1}, 300u << 10};
  for (int i = 0; i < 100; ++i) {
    const Admission a =
        refused.gate->Admit(*refused.stream, {KernelKey(function_, impossible)}, kNever);
    ASSERT_EQ(a.verdict, Verdict::kAdmitted);
    uint64_t ns = 1000;
    void* params[] = {&ns};
    const Result r = driver_->Launch(function_, impossible, refused.handle, params);
    ASSERT_NE(r, Result::kSuccess);
    refused.gate->Complete(a, false);
  }
  clock().SleepUntil(clock().Now() + Millis(5));
  EXPECT_EQ(refused.gate->view().outstanding, Nanos(0));
  // The launches that the books had seen before cost no more than the error of a marker.
  EXPECT_LT(refused.gate->view().charged, Micros(50));
  // The other tenant's work does not suffer.
  const Time begin = clock().Now();
  for (int i = 0; i < 500; ++i) ASSERT_EQ(Launch(other, Micros(40)), Verdict::kAdmitted);
  Synchronize(other);
  EXPECT_LT(clock().Now() - begin, Millis(21));
  Drop(refused);
  Drop(other);
}

TEST_F(EngineTest, AnExclusiveCommandLetsOthersInWhenItEnds) {
  Tenant a = Make({}), b = Make({});
  for (int i = 0; i < 4; ++i) Launch(b, Micros(20));
  Synchronize(b);
  const Admission alone =
      a.gate->Admit(*a.stream, {KernelKey(function_, Shape()), Work::Kind::kCooperative}, kNever);
  uint64_t ns = 300'000;
  void* params[] = {&ns};
  const Result r = driver_->Launch(function_, Shape(), a.handle, params);
  a.gate->Complete(alone, r == Result::kSuccess);
  // The stream's owner makes no further calls.
  const Time begin = clock().Now();
  ASSERT_EQ(Launch(b, Micros(20)), Verdict::kAdmitted);
  EXPECT_LT(clock().Now() - begin, Micros(400));
  EXPECT_GT(clock().Now() - begin, Micros(200));
  Drop(a);
  Drop(b);
}

TEST_F(EngineTest, AStreamGoesWhileAnotherThreadMarksIt) {
  Tenant t = Make({}), other = Make({});
  const auto churn = clock().StartThread("churn", [&] {
    driver_->PushContext(context_);
    for (int i = 0; i < 300; ++i) {
      Tenant mine = t;
      EXPECT_EQ(driver_->CreateStream(&mine.handle, 0), Result::kSuccess);
      mine.stream = *t.gate->AddStream(mine.handle);
      Launch(mine, Micros(5));
      t.gate->RemoveStream(mine.stream);
      EXPECT_EQ(driver_->DestroyStream(mine.handle), Result::kSuccess);
    }
    driver_->PopContext();
  });
  for (int i = 0; i < 1000; ++i) Launch(t, Micros(5));
  churn->Join();
  Synchronize(t);
  clock().SleepUntil(clock().Now() + Millis(5));
  EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
  // The books contain nothing for which a request for the whole device would wait.
  const Time begin = clock().Now();
  const Admission alone = other.gate->Admit(
      *other.stream, {KernelKey(function_, Shape()), Work::Kind::kCooperative}, kNever);
  EXPECT_LT(clock().Now() - begin, Millis(1));
  other.gate->Complete(alone, false);
  Drop(t);
  Drop(other);
}

TEST_F(EngineTest, CopiesWithoutALimitAreNoDebt) {
  Tenant t = Make({});
  ASSERT_EQ(t.gate->AdmitCopy(CopyDirection::kHostToDevice, 1u << 30), Verdict::kAdmitted);
  TenantOptions limited;
  limited.h2d_bytes_per_s = 100e6;
  t.gate->Update(limited);
  clock().SleepUntil(clock().Now() + Millis(20));
  const Time begin = clock().Now();
  ASSERT_EQ(t.gate->AdmitCopy(CopyDirection::kHostToDevice, 1u << 20), Verdict::kAdmitted);
  EXPECT_LT(clock().Now() - begin, Millis(1));
  Drop(t);
}

TEST_F(EngineTest, ALeaseHintHasABound) {
  Tenant t = Make({});
  LeaseRequest request;
  request.hint = kLongestHint + Nanos(1);
  request.maximum = 2 * request.hint;
  EXPECT_EQ(t.gate->AcquireLease(request).status().code(), absl::StatusCode::kInvalidArgument);
  request.hint = kLongestHint;
  absl::StatusOr<uint64_t> lease = t.gate->AcquireLease(request);
  ASSERT_TRUE(lease.ok()) << lease.status();
  t.gate->ReleaseLease(*lease);
  Drop(t);
}

TEST_F(EngineTest, AnExclusiveLeaseHoldsOthersOffAsLongAsItIsHeld) {
  Tenant a = Make({}), b = Make({});
  for (int i = 0; i < 4; ++i) Launch(b, Micros(20));
  Synchronize(b);
  LeaseRequest request;
  request.exclusive = true;
  request.streams = {a.stream};
  absl::StatusOr<uint64_t> lease = a.gate->AcquireLease(request);
  ASSERT_TRUE(lease.ok()) << lease.status();
  Time in{};
  const auto thread = clock().StartThread("b", [&] {
    driver_->PushContext(context_);
    Launch(b, Micros(20));
    in = clock().Now();
    driver_->PopContext();
  });
  clock().SleepUntil(clock().Now() + Millis(300));
  // The tenant's own launches on other streams do not wait for it.
  Tenant own = a;
  driver_->CreateStream(&own.handle, 0);
  own.stream = *a.gate->AddStream(own.handle);
  const Time begin = clock().Now();
  ASSERT_EQ(Launch(own, Micros(20)), Verdict::kAdmitted);
  EXPECT_LT(clock().Now() - begin, Micros(100));
  const Time released = clock().Now();
  a.gate->ReleaseLease(*lease);
  thread->Join();
  EXPECT_GE(in, released);
  EXPECT_LT(in - released, Millis(1));
  a.gate->RemoveStream(own.stream);
  Drop(a);
  Drop(b);
}

TEST_F(EngineTest, AtMostTwoUnknownCommandsAreInFlightWhateverTheThreads) {
  Tenant t = Make({}), other = Make({});
  Launch(other, Micros(10));
  int in_flight = 0, most = 0;
  std::vector<std::unique_ptr<base::ClockThread>> threads;
  for (uint32_t i = 0; i < 10; ++i) {
    threads.push_back(clock().StartThread("t" + std::to_string(i), [&, i] {
      driver_->PushContext(context_);
      Tenant mine = t;
      driver_->CreateStream(&mine.handle, 0);
      mine.stream = *t.gate->AddStream(mine.handle);
      const driver::LaunchShape shape{{100 + i, 1, 1}, {1024, 1, 1}, 0};
      const Admission a = t.gate->Admit(*mine.stream, {KernelKey(function_, shape)}, kNever);
      most = std::max(most, ++in_flight);
      uint64_t ns = 300'000;
      void* params[] = {&ns};
      const Result r = driver_->Launch(function_, shape, mine.handle, params);
      t.gate->Complete(a, r == Result::kSuccess);
      driver_->SynchronizeStream(mine.handle);
      --in_flight;
      t.gate->RemoveStream(mine.stream);
      driver_->PopContext();
    }));
  }
  for (const auto& thread : threads) thread->Join();
  EXPECT_LE(most, 2);
  EXPECT_GT(t.gate->stats().waits, 0u);
  Drop(t);
  Drop(other);
}

// One thread wants the device exclusively, the other does not; neither takes back the other's grant.
TEST_F(EngineTest, ThreadsOfATenantWithDifferentRequestsAllGetOn) {
  Tenant t = Make({}), other = Make({});
  std::vector<std::unique_ptr<base::ClockThread>> threads;
  int done = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    threads.push_back(clock().StartThread("t" + std::to_string(i), [&, i] {
      driver_->PushContext(context_);
      Tenant mine = i < 3 ? t : other;
      driver_->CreateStream(&mine.handle, 0);
      mine.stream = *mine.gate->AddStream(mine.handle);
      for (int n = 0; n < 300; ++n) {
        const Work::Kind kind = i == 0 ? Work::Kind::kCooperative : Work::Kind::kKernel;
        const Admission a = mine.gate->Admit(*mine.stream, {KernelKey(function_, Shape()), kind});
        uint64_t ns = 10'000 + 7 * i;
        void* params[] = {&ns};
        const Result r = driver_->Launch(function_, Shape(), mine.handle, params);
        mine.gate->Complete(a, r == Result::kSuccess);
        ++done;
      }
      mine.gate->Synchronizing(mine.stream);
      driver_->SynchronizeStream(mine.handle);
      mine.gate->RemoveStream(mine.stream);
      driver_->PopContext();
    }));
  }
  clock().SleepUntil(clock().Now() + Seconds(2));
  EXPECT_EQ(done, 4 * 300);
  for (const auto& thread : threads) thread->Join();
  Drop(t);
  Drop(other);
}

TEST_F(EngineTest, HighPriorityDoesNotWaitEvenForWhatIsUnknown) {
  TenantOptions options;
  options.limits.band = sched::Band::kHigh;
  Tenant high = Make(options), other = Make({});
  for (uint32_t i = 0; i < 20; ++i) {
    const driver::LaunchShape shape{{100 + i, 1, 1}, {1024, 1, 1}, 0};
    const Admission a = high.gate->Admit(*high.stream, {KernelKey(function_, shape)}, kNever);
    uint64_t ns = 300'000;
    void* params[] = {&ns};
    high.gate->Complete(a,
                        driver_->Launch(function_, shape, high.handle, params) == Result::kSuccess);
  }
  EXPECT_EQ(high.gate->stats().waits, 0u);
  Drop(high);
  Drop(other);
}

// A thread that sleeps at the gate behind a high tenant's kernel is woken ahead of time, by the measured wake-up
// latency, so that it launches when the grace of 30 us is over: neither before nor one wake-up later.
TEST_F(EngineTest, WhoSleepsBehindAHighTenantLaunchesWhenTheGraceIsOver) {
  Tenant high = Make({.limits = {.band = sched::Band::kHigh}}), low = Make({});
  ASSERT_NO_FATAL_FAILURE(LearnCosts(low, high));
  std::vector<double> after_us;
  for (int i = 0; i < 60; ++i) {
    ASSERT_EQ(Launch(high, Millis(1)), Verdict::kAdmitted);
    high.gate->StallBegins(high.stream);
    Time launched{};
    const auto other = clock().StartThread("low", [&] {
      driver_->PushContext(context_);
      EXPECT_EQ(Launch(low, Micros(20)), Verdict::kAdmitted);
      launched = clock().Now();
      driver_->PopContext();
    });
    ASSERT_EQ(driver_->SynchronizeStream(high.handle), Result::kSuccess);
    const Time ended = clock().Now();  // plus the time to return from the driver
    other->Join();
    after_us.push_back(static_cast<double>((launched - ended).count()) * 1e-3);
    Synchronize(low);
  }
  for (size_t i = 50; i < after_us.size(); ++i) {
    EXPECT_GE(after_us[i], 20) << i;
    EXPECT_LE(after_us[i], 36) << i;
  }
  EXPECT_GE(after_us[0], 45) << "nothing was known of wake-ups";
  Drop(high);
  Drop(low);
}

// A high tenant that launches now and then and waits for nothing: the marker behind a launch shows that it is over,
// before the tenant launches next.
TEST_F(EngineTest, WhatAHighTenantThatNeverSynchronisesLeavesIsTheOthers) {
  Tenant high = Make({.limits = {.band = sched::Band::kHigh}}), low = Make({});
  ASSERT_NO_FATAL_FAILURE(LearnCosts(low, high));
  constexpr Nanos kEach = Micros(300), kTakes = Micros(100), kLow = Micros(20), kSpan = Millis(60);
  std::atomic<bool> over{false};
  int launched = 0;
  const auto other = clock().StartThread("low", [&] {
    driver_->PushContext(context_);
    while (!over) {
      if (Launch(low, kLow, clock().Now() + Millis(5)) == Verdict::kAdmitted) ++launched;
    }
    driver_->PopContext();
  });
  const Time begin = clock().Now();
  for (Time next = begin; next < begin + kSpan; next += kEach) {
    clock().SleepUntil(next);
    ASSERT_EQ(Launch(high, kTakes), Verdict::kAdmitted);
  }
  over = true;
  other->Join();
  Synchronize(high);
  Synchronize(low);
  // Of each 300 us the high tenant has 100. The grace, and the time to see that the work is over, go to nobody.
  EXPECT_GE(launched * kLow, kSpan * 2 / 3 * 6 / 10);
  EXPECT_LE(launched * kLow, kSpan * 2 / 3);
  Drop(high);
  Drop(low);
}

// Likewise when several threads of a tenant launch: a thread that passes without having slept does not count as a
// wake-up.
TEST_F(EngineTest, ThreadsThatLaunchInTurnsDoNotHideWhatAWakeUpTakes) {
  Tenant high = Make({.limits = {.band = sched::Band::kHigh}}), low = Make({});
  ASSERT_NO_FATAL_FAILURE(LearnCosts(low, high));
  double mean_us = 0;
  for (int i = 0; i < 60; ++i) {
    ASSERT_EQ(Launch(high, Millis(1)), Verdict::kAdmitted);
    high.gate->StallBegins(high.stream);
    std::atomic<int64_t> first{INT64_MAX};
    std::vector<std::unique_ptr<base::ClockThread>> others;
    for (int n = 0; n < 2; ++n) {
      others.push_back(clock().StartThread("low", [&] {
        driver_->PushContext(context_);
        for (int m = 0; m < 4; ++m) {
          EXPECT_EQ(Launch(low, Micros(70)), Verdict::kAdmitted);
          const int64_t now = clock().Now().time_since_epoch().count();
          if (now < first) first = now;
        }
        driver_->PopContext();
      }));
    }
    ASSERT_EQ(driver_->SynchronizeStream(high.handle), Result::kSuccess);
    const Time ended = clock().Now();
    for (auto& thread : others) thread->Join();
    if (i >= 30)
      mean_us +=
          (static_cast<double>(first) - static_cast<double>(ended.time_since_epoch().count())) *
          1e-3 / 30;
    Synchronize(low);
  }
  EXPECT_GE(mean_us, 20);
  EXPECT_LE(mean_us, 36);
  Drop(high);
  Drop(low);
}

// A marker closes a graph of 400 us that runs in turns with another tenant's kernels. When the last of these ends,
// half of the graph is over. The engine looks at the marker when the remaining half is due, and not a whole graph
// later. Until then a tenant that waits for the window would wait beside an idle device.
TEST_F(EngineTest, WhatRunsInTurnsIsSeenToEndWhenItDoes) {
  Tenant a = Make({}), b = Make({});
  const auto graph = [&] {
    const gate::Work work{.key = 99, .kind = Work::Kind::kGraph, .parts = 8};
    const Admission admission = a.gate->Admit(*a.stream, work);
    ASSERT_EQ(admission.verdict, Verdict::kAdmitted);
    for (int i = 0; i < 8; ++i) {
      uint64_t ns = 50'000;
      void* params[] = {&ns};
      ASSERT_EQ(driver_->Launch(function_, Shape(), a.handle, params), Result::kSuccess);
    }
    a.gate->Complete(admission, true);
  };
  for (int i = 0; i < 30; ++i) {  // until their costs are settled
    graph();
    Synchronize(a);
    for (int n = 0; n < 4; ++n) ASSERT_EQ(Launch(b, Micros(50)), Verdict::kAdmitted);
    Synchronize(b);
  }
  graph();
  a.gate->StallBegins(a.stream);  // records the marker
  for (int n = 0; n < 4; ++n) ASSERT_EQ(Launch(b, Micros(50)), Verdict::kAdmitted);
  b.gate->StallBegins(b.stream);
  ASSERT_EQ(driver_->SynchronizeStream(b.handle), Result::kSuccess);
  ASSERT_GT(a.gate->view().outstanding, Micros(100));
  ASSERT_EQ(driver_->SynchronizeStream(a.handle), Result::kSuccess);
  clock().SleepUntil(clock().Now() + Micros(20));
  EXPECT_EQ(a.gate->view().outstanding, Nanos(0));
  Drop(a);
  Drop(b);
}

TEST_F(EngineTest, APersistentKernelIsChargedByTime) {
  TenantOptions capped;
  capped.limits.cap = 0.2;
  Tenant t = Make(capped);
  Launch(t, Seconds(1));
  clock().SleepUntil(clock().Now() + Millis(500));
  // Half a second of the device, minus the lag of the books.
  EXPECT_NEAR(static_cast<double>(t.gate->stats().measured.count()), 500e6, 20e6);
  EXPECT_LT(t.gate->view().cap_tokens, -Millis(350));
  Synchronize(t);
  clock().SleepUntil(clock().Now() + Millis(2));
  EXPECT_NEAR(static_cast<double>(t.gate->stats().measured.count()), 1000e6, 2e6);
  EXPECT_NEAR(static_cast<double>(t.gate->view().charged.count()), 1000e6, 2e6);
  Drop(t);
}

class OverlapTest : public EngineTest {
 protected:
  std::string config() const override { return "sms=100,overlap=footprint,clock=virtual"; }

  // Whether it needed a grant.
  bool Put(Tenant& t, const Work& work, int kernels, unsigned sms, Nanos cost) {
    const Admission admission = t.gate->Admit(*t.stream, work);
    EXPECT_EQ(admission.verdict, Verdict::kAdmitted);
    uint64_t ns = static_cast<uint64_t>(cost.count());
    void* params[] = {&ns};
    for (int i = 0; i < kernels; ++i) {
      EXPECT_EQ(driver_->Launch(function_, {{sms, 1, 1}, {1024, 1, 1}, 0}, t.handle, params),
                Result::kSuccess);
    }
    t.gate->Complete(admission, true);
    return admission.timed;
  }
  // Launches commands of 50 us on `sms` SMs, each beside a kernel on the other SMs. The part of them that needed a grant of its own.
  double GrantsPerCommand(Work::Kind kind, unsigned sms) {
    constexpr int kLearnt = 200, kCounted = 200;
    const uint32_t kernels = kind == Work::Kind::kGraph ? 2 : 1;
    const Work work{
        .key = 79, .kind = kind, .footprint = static_cast<float>(sms) / 100, .parts = kernels};
    Tenant t = Make({}), other = Make({});
    int granted = 0;
    for (int i = 0; i < kLearnt + kCounted; ++i) {
      const bool asked = Put(t, work, static_cast<int>(kernels), sms, Micros(50) / kernels);
      granted += i >= kLearnt && asked ? 1 : 0;
      Put(other, {.key = 78, .footprint = static_cast<float>(100 - sms) / 100}, 1, 100 - sms,
          Micros(100));
    }
    Drop(t);
    Drop(other);
    return static_cast<double>(granted) / kCounted;
  }
  // Launches a graph of two kernels of 50 us on a fifth of the SMs, whose instantiation was not seen, each time beside a kernel of
  // 100 us on the other SMs.
  void Play(Tenant& graphs, Tenant& kernels, int launches) {
    for (int i = 0; i < launches; ++i) {
      Put(graphs, {.key = 77, .kind = Work::Kind::kGraph, .parts = 0}, 2, 20, Micros(50));
      Put(kernels, {.key = 78, .footprint = 0.8f}, 1, 80, Micros(100));
    }
    Synchronize(graphs);
    Synchronize(kernels);
  }
  // What they are charged, as a part of what they take alone.
  double Charged(Tenant& graphs, Tenant& kernels) {
    constexpr int kLaunches = 1000;
    const Nanos from = graphs.gate->stats().measured;
    Play(graphs, kernels, kLaunches);
    return static_cast<double>((graphs.gate->stats().measured - from).count()) /
           (kLaunches * 100e3);
  }
};

// Three kernels of 12 us side by side, on a fifth of the SMs each, are what one kernel on three fifths is. That each of them takes
// as long as the graph does not make the graph three times as long.
TEST_F(OverlapTest, AShortGraphWithBranchesIsNotAsLongAsItsKernelsTogether) {
  const auto charged = [&](bool launched_before) {
    MakeEngine({});
    GraphKernels kernels;
    int executable = 0;
    kernels.Put(&executable, {.kernels = {{81, 0.2f}, {82, 0.2f}, {83, 0.2f}},
                              .edges = std::vector<driver::GraphEdge>()});
    Tenant graphs = Make({}), others = Make({});
    for (uint64_t key = 81; key <= 83 && launched_before; ++key) {
      for (int i = 0; i < 4; ++i) {
        Put(graphs, {.key = key, .footprint = 0.2f}, 1, 20, Micros(12));
        Synchronize(graphs);
      }
    }
    const Nanos before = graphs.gate->stats().measured;
    constexpr int kLaunches = 500;
    for (int i = 0; i < kLaunches; ++i) {
      Put(graphs,
          {.key = 79,
           .kind = Work::Kind::kGraph,
           .footprint = 1,
           .parts = 3,
           .kernels = &kernels,
           .executable = &executable},
          1, 60, Micros(12));
      Put(others, {.key = 78, .footprint = 0.8f}, 1, 80, Micros(12));
    }
    Synchronize(graphs);
    Synchronize(others);
    const Nanos all = graphs.gate->stats().measured - before;
    Drop(graphs);
    Drop(others);
    return static_cast<double>(all.count()) / (kLaunches * 12e3);
  };
  const double known = charged(true), unknown = charged(false);
  EXPECT_NEAR(known, unknown, 0.1 * unknown);
}

// Each of these graphs is charged more than half of a grant. Two that leave SMs free get one grant; kernels, and graphs that fill
// the device, get one each.
TEST_F(OverlapTest, TwoShortGraphsThatLeaveSmsFreeShareAGrant) {
  struct Case {
    Work::Kind kind;
    unsigned sms;
    double grants;
  };
  for (const Case& c : {Case{Work::Kind::kGraph, 60, 0.5}, Case{Work::Kind::kKernel, 60, 1},
                        Case{Work::Kind::kGraph, 95, 1}}) {
    // Long enough that neither tenant counts as alone while the other waits.
    EngineOptions options;
    options.arbiter.active_grace = Millis(10);
    MakeEngine(options);
    EXPECT_NEAR(GrantsPerCommand(c.kind, c.sms), c.grants, 0.05) << c.sms;
  }
}

// The graph has a fifth of the device, which a study finds out by how early the other kernels end. Outside a study it might do
// something else, so a tenant with a cap is charged what its graph takes alone.
TEST_F(OverlapTest, AGraphThatNobodySawIsChargedWhatItHoldsUnlessThereIsACap) {
  Tenant a = Make({}), b = Make({});
  Play(a, b, 2000);
  EXPECT_NEAR(Charged(a, b), 0.2, 0.1);
  TenantOptions capped;
  capped.limits.cap = 0.99;
  a.gate->Update(capped);
  EXPECT_NEAR(Charged(a, b), 1, 0.05);
  Drop(a);
  Drop(b);
}

// Nor is there a study while there is a cap.
TEST_F(OverlapTest, AGraphOfATenantWithACapIsChargedWhatItTakesAlone) {
  TenantOptions capped;
  capped.limits.cap = 0.99;
  Tenant a = Make(capped), b = Make({});
  Play(a, b, 2000);
  EXPECT_NEAR(Charged(a, b), 1, 0.05);
  Drop(a);
  Drop(b);
}

// The cap may also be the parent's, and may be set after a study.
TEST_F(OverlapTest, AGraphOfATenantWhoseParentHasACapIsChargedWhatItTakesAlone) {
  Tenant parent = Make({});
  Tenant a = Make({}, &parent), b = Make({});
  Play(a, b, 1500);
  parent.gate->Update({.limits = {.cap = 0.99}});
  Play(a, b, 500);
  EXPECT_NEAR(Charged(a, b), 1, 0.05);
  Drop(a);
  Drop(b);
  Drop(parent);
}

}  // namespace
}  // namespace gpushare::gate
