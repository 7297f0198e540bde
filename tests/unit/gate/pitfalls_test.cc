// SPDX-License-Identifier: Apache-2.0
// The ways in which obvious methods of metering and gating go wrong; docs/pitfalls.md has the list.
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/gate/engine_test.h"

namespace gpushare::gate {
namespace {

double Ms(Nanos n) { return static_cast<double>(n.count()) * 1e-6; }

class PitfallsTest : public EngineTest {
 protected:
  // Puts `account` on the tenant's stream. UsedMs() then returns the device time that was really used.
  void SetAccount(const Tenant& t, uint32_t account) { sim_->set_account(t.handle, account); }
  double UsedMs(uint32_t account) const {
    gpushare_sim_truth truth{};
    EXPECT_EQ(sim_->account_truth(0, account, &truth), 0);
    return truth.used_ns * 1e-6;
  }
  void Wait(const Tenant& t, driver::Event event) {
    const bool marked = t.gate->WaitBegins(t.stream);
    ASSERT_EQ(driver_->StreamWaitEvent(t.handle, event), Result::kSuccess);
    if (marked) t.gate->WaitEnds(t.stream);
  }
  void Rest() { clock().SleepUntil(clock().Now() + Millis(3)); }
  // Launches kernels of `cost` until `until`, on a thread of the clock.
  std::unique_ptr<base::ClockThread> Backlog(Tenant& t, Nanos cost, Time until) {
    return clock().StartThread("backlog", [this, &t, cost, until] {
      driver_->PushContext(context_);
      while (clock().Now() < until) {
        if (Launch(t, cost) != Verdict::kAdmitted) break;
      }
      Synchronize(t);
      driver_->PopContext();
    });
  }
};

// ---- Lazy loading of modules ----

class LazyLoadingTest : public PitfallsTest {
 protected:
  std::string config() const override {
    return "sms=100,overlap=serial,clock=virtual,first_launch_host=5ms,first_launch_device=3ms";
  }
};

TEST_F(LazyLoadingTest, TheFirstLaunchIsNotTakenForWhatAKernelCosts) {
  Tenant t = Make({});
  SetAccount(t, 1);
  const Time begin = clock().Now();
  ASSERT_EQ(Launch(t, Micros(50)), Verdict::kAdmitted);
  EXPECT_GT(clock().Now() - begin, Millis(5));
  Synchronize(t);
  Rest();
  // The host's 5 ms are not device time.
  EXPECT_NEAR(UsedMs(1), 3.05, 0.001);
  EXPECT_LT(Ms(t.gate->stats().measured), 3.1);
  // A few launches later neither matters any more: the charge before a launch equals the kernel's time.
  for (int i = 0; i < 40; ++i) ASSERT_EQ(Launch(t, Micros(50)), Verdict::kAdmitted);
  Synchronize(t);
  Rest();
  const Nanos before = t.gate->stats().predicted;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(Launch(t, Micros(50)), Verdict::kAdmitted);
  Synchronize(t);
  Rest();
  EXPECT_NEAR(Ms(t.gate->stats().predicted - before), 100 * 0.05, 100 * 0.05 * 0.15);
  Drop(t);
}

TEST_F(LazyLoadingTest, WhoLoadsDoesNotPayWithItsShare) {
  Tenant loading = Make({}), other = Make({});
  SetAccount(loading, 1);
  SetAccount(other, 2);
  const Time end = clock().Now() + Millis(600);
  const auto a = Backlog(loading, Micros(50), end), b = Backlog(other, Micros(200), end);
  clock().SleepUntil(end - Millis(400));
  const double loaded = UsedMs(1), others = UsedMs(2);
  clock().SleepUntil(end - Millis(10));
  const double mine = UsedMs(1) - loaded, theirs = UsedMs(2) - others;
  EXPECT_NEAR(100 * mine / (mine + theirs), 50,
              4);  // the tolerance for windows under a second: 4 pp
  a->Join();
  b->Join();
  Drop(loading);
  Drop(other);
}

// ---- Host functions ----

class HostFunctionsTest : public PitfallsTest {
 protected:
  // Puts a host function of `ms` on the stream.
  void Stall(const Tenant& t, uint64_t ms) {
    auto* const launch = reinterpret_cast<int (*)(driver::Stream, void (*)(void*), void*)>(
        driver_->Symbol("cuLaunchHostFunc"));
    spend_ = sim_->spend;
    ASSERT_EQ(launch(
                  t.handle,
                  [](void* ns) { spend_(static_cast<uint64_t>(reinterpret_cast<uintptr_t>(ns))); },
                  reinterpret_cast<void*>(static_cast<uintptr_t>(ms * 1'000'000))),
              0);
  }
  inline static decltype(&gpushare_sim_spend) spend_ = nullptr;
};

// The gate is told before and after the host function.
TEST_F(HostFunctionsTest, InTheMiddleOfABatchAreNotCharged) {
  Tenant t = Make({});
  SetAccount(t, 1);
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 10; ++i) ASSERT_EQ(Launch(t, Micros(100)), Verdict::kAdmitted);
    t.gate->StallBegins(t.stream);
    Stall(t, 5);
    t.gate->StallEnds(t.stream);
  }
  Synchronize(t);
  Rest();
  EXPECT_NEAR(UsedMs(1), 20, 0.1);
  EXPECT_NEAR(Ms(t.gate->stats().measured), UsedMs(1), 0.05 * UsedMs(1));
  Drop(t);
}

TEST_F(HostFunctionsTest, InTheMiddleOfABatchTakeNothingFromOthers) {
  Tenant stalled = Make({}), other = Make({});
  SetAccount(stalled, 1);
  SetAccount(other, 2);
  const Time begin = clock().Now(), end = begin + Millis(600);
  const auto b = Backlog(other, Micros(100), end);
  const auto a = clock().StartThread("stalled", [&] {
    driver_->PushContext(context_);
    while (clock().Now() < end) {
      for (int i = 0; i < 10; ++i) ASSERT_EQ(Launch(stalled, Micros(100)), Verdict::kAdmitted);
      stalled.gate->StallBegins(stalled.stream);
      Stall(stalled, 5);
      stalled.gate->StallEnds(stalled.stream);
    }
    Synchronize(stalled);
    driver_->PopContext();
  });
  a->Join();
  b->Join();
  Rest();
  EXPECT_GT(UsedMs(1), 60);
  EXPECT_NEAR(Ms(stalled.gate->stats().measured), UsedMs(1), 0.05 * UsedMs(1));
  EXPECT_NEAR(Ms(other.gate->stats().measured), UsedMs(2), 0.05 * UsedMs(2));
  // The device does not count as busy while a stream waits for the host.
  EXPECT_GT(UsedMs(1) + UsedMs(2), 0.98 * 600);
  Drop(stalled);
  Drop(other);
}

// The gate need not know of a host function between two synchronizations.
TEST_F(HostFunctionsTest, BetweenSynchronisationsAreNotCharged) {
  Tenant stalled = Make({}), other = Make({});
  SetAccount(stalled, 1);
  SetAccount(other, 2);
  const Time end = clock().Now() + Millis(300);
  const auto b = Backlog(other, Micros(100), end);
  while (clock().Now() < end) {
    for (int i = 0; i < 10; ++i) ASSERT_EQ(Launch(stalled, Micros(100)), Verdict::kAdmitted);
    Synchronize(stalled);
    Stall(stalled, 5);
    Synchronize(stalled);
  }
  b->Join();
  Rest();
  EXPECT_GT(UsedMs(1), 20);
  EXPECT_NEAR(Ms(stalled.gate->stats().measured), UsedMs(1), 0.05 * UsedMs(1));
  EXPECT_NEAR(Ms(other.gate->stats().measured), UsedMs(2), 0.05 * UsedMs(2));
  Drop(stalled);
  Drop(other);
}

TEST_F(HostFunctionsTest, BetweenSynchronisationsAreNotChargedAlone) {
  Tenant t = Make({});
  SetAccount(t, 1);
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 10; ++i) ASSERT_EQ(Launch(t, Micros(100)), Verdict::kAdmitted);
    Synchronize(t);
    Stall(t, 5);
    Synchronize(t);
  }
  Rest();
  EXPECT_NEAR(UsedMs(1), 20, 0.1);
  EXPECT_NEAR(Ms(t.gate->stats().measured), UsedMs(1), 0.05 * UsedMs(1));
  Drop(t);
}

// ---- Capture ----

TEST_F(PitfallsTest, AGlobalCaptureGoesOnBesideTheReconciler) {
  Tenant capturing = Make({}), other = Make({});
  const Time end = clock().Now() + Millis(40);
  const auto b = Backlog(other, Micros(50), end);
  clock().SleepUntil(clock().Now() + Millis(5));
  auto* const begin =
      reinterpret_cast<int (*)(driver::Stream, int)>(driver_->Symbol("cuStreamBeginCapture_v2"));
  auto* const nodes_of =
      reinterpret_cast<int (*)(driver::Graph, void**, size_t*)>(driver_->Symbol("cuGraphGetNodes"));
  constexpr int kGlobal = 0, kLaunches = 50;
  const Nanos before = other.gate->stats().measured;
  ASSERT_EQ(begin(capturing.handle, kGlobal), 0);
  for (int i = 0; i < kLaunches; ++i) {
    ASSERT_EQ(Launch(capturing, Micros(50)), Verdict::kAdmitted);
    clock().SleepUntil(clock().Now() + Micros(300));
  }
  driver::Graph graph = nullptr;
  ASSERT_EQ(driver_->EndCapture(capturing.handle, &graph), Result::kSuccess);
  // The other tenant's markers were recorded, seen and measured meanwhile ...
  EXPECT_GT(other.gate->stats().measured - before, Millis(13));
  // ... and none of them is in the program's graph.
  size_t nodes = 0;
  ASSERT_EQ(nodes_of(graph, nullptr, &nodes), 0);
  EXPECT_EQ(nodes, size_t{kLaunches});
  driver_->DestroyGraph(graph);
  b->Join();
  EXPECT_EQ(driver_->SynchronizeStream(other.handle), Result::kSuccess);
  Drop(capturing);
  Drop(other);
}

// ---- Streams that wait for each other ----

TEST_F(PitfallsTest, AHeldTenantWhoseStreamsWaitForEachOtherGetsOn) {
  TenantOptions capped;
  capped.limits.cap = 0.1;
  Tenant first = Make(capped);
  Tenant second = first;  // another stream of the same tenant
  ASSERT_EQ(driver_->CreateStream(&second.handle, 0), Result::kSuccess);
  second.stream = *first.gate->AddStream(second.handle);
  driver::Event event = nullptr;
  ASSERT_EQ(driver_->CreateEvent(&event, /*timing=*/false), Result::kSuccess);
  const Time begin = clock().Now();
  for (int i = 0; i < 400; ++i) {
    ASSERT_EQ(Launch(first, Micros(100)), Verdict::kAdmitted);
    ASSERT_EQ(driver_->RecordEvent(event, first.handle), Result::kSuccess);
    ASSERT_EQ(driver_->StreamWaitEvent(second.handle, event), Result::kSuccess);
    ASSERT_EQ(Launch(second, Micros(100)), Verdict::kAdmitted);
    ASSERT_EQ(driver_->RecordEvent(event, second.handle), Result::kSuccess);
    ASSERT_EQ(driver_->StreamWaitEvent(first.handle, event), Result::kSuccess);
  }
  Synchronize(first);
  Synchronize(second);
  // 80 ms of work at a tenth of the device, minus the 5 ms that may be saved up.
  EXPECT_LT(Ms(clock().Now() - begin), 790);
  Rest();
  EXPECT_NEAR(Ms(first.gate->stats().measured), 80, 0.05 * 80);
  driver_->DestroyEvent(event);
  first.gate->RemoveStream(second.stream);
  driver_->DestroyStream(second.handle);
  Drop(first);
}

TEST_F(PitfallsTest, StreamsThatWaitForEachOtherAreMeasuredBesideOthers) {
  Tenant first = Make({}), other = Make({});
  Tenant second = first;
  ASSERT_EQ(driver_->CreateStream(&second.handle, 0), Result::kSuccess);
  second.stream = *first.gate->AddStream(second.handle);
  SetAccount(first, 1);
  SetAccount(second, 1);
  SetAccount(other, 2);
  driver::Event event = nullptr;
  ASSERT_EQ(driver_->CreateEvent(&event, /*timing=*/false), Result::kSuccess);
  const Time end = clock().Now() + Millis(300);
  const auto b = Backlog(other, Micros(150), end);
  while (clock().Now() < end) {
    ASSERT_EQ(Launch(first, Micros(100)), Verdict::kAdmitted);
    ASSERT_EQ(driver_->RecordEvent(event, first.handle), Result::kSuccess);
    Wait(second, event);
    ASSERT_EQ(Launch(second, Micros(100)), Verdict::kAdmitted);
    ASSERT_EQ(driver_->RecordEvent(event, second.handle), Result::kSuccess);
    Wait(first, event);
  }
  Synchronize(first);
  Synchronize(second);
  b->Join();
  Rest();
  EXPECT_GT(UsedMs(1), 100);
  EXPECT_NEAR(Ms(first.gate->stats().measured), UsedMs(1), 0.05 * UsedMs(1));
  EXPECT_NEAR(Ms(other.gate->stats().measured), UsedMs(2), 0.05 * UsedMs(2));
  driver_->DestroyEvent(event);
  first.gate->RemoveStream(second.stream);
  driver_->DestroyStream(second.handle);
  Drop(first);
  Drop(other);
}

// ---- Kernels that are not what was predicted ----

TEST_F(PitfallsTest, AMispredictedGiantLeavesADebtAndNotStarvation) {
  Tenant giant = Make({}), other = Make({});
  SetAccount(giant, 1);
  SetAccount(other, 2);
  const Time begin = clock().Now();
  const auto b = Backlog(other, Micros(100), begin + Millis(3400));
  const auto a = clock().StartThread("giant", [&] {
    driver_->PushContext(context_);
    while (clock().Now() < begin + Millis(200)) Launch(giant, Micros(50));
    Launch(giant, Millis(400));  // the same key, so it is predicted to take 50 us
    while (clock().Now() < begin + Millis(3400)) Launch(giant, Micros(50));
    Synchronize(giant);
    driver_->PopContext();
  });
  clock().SleepUntil(begin + Millis(700));
  const double giant_then = UsedMs(1), other_then = UsedMs(2);
  EXPECT_GT(giant_then, 450);
  // The debt is being paid: the other tenant has most of the next 600 ms ...
  clock().SleepUntil(begin + Millis(1300));
  EXPECT_GT(UsedMs(2) - other_then, UsedMs(1) - giant_then);
  // ... and in the end both have had the same, and continue so.
  clock().SleepUntil(begin + Millis(2300));
  EXPECT_NEAR(100 * UsedMs(1) / (UsedMs(1) + UsedMs(2)), 50, 2);
  const double giant_paid = UsedMs(1), other_paid = UsedMs(2);
  clock().SleepUntil(begin + Millis(3300));
  const double mine = UsedMs(1) - giant_paid, theirs = UsedMs(2) - other_paid;
  EXPECT_NEAR(100 * mine / (mine + theirs), 50, 1);
  a->Join();
  b->Join();
  Drop(giant);
  Drop(other);
}

TEST_F(PitfallsTest, NobodyDrainsOnAKernelThatNeverEnds) {
  Tenant persistent = Make({}), other = Make({});
  ASSERT_EQ(Launch(other, Micros(50)), Verdict::kAdmitted);
  Synchronize(other);
  const Time begin = clock().Now();
  ASSERT_EQ(Launch(persistent, Seconds(5)), Verdict::kAdmitted);
  clock().SleepUntil(begin + Millis(10));
  // A cooperative launch waits for the device to drain, but not for ever.
  const Admission alone = other.gate->Admit(
      *other.stream, {KernelKey(function_, Shape()), Work::Kind::kCooperative}, begin + Seconds(2));
  EXPECT_EQ(alone.verdict, Verdict::kAdmitted);
  EXPECT_LT(clock().Now() - begin, Millis(200));
  if (alone.verdict == Verdict::kAdmitted) other.gate->Complete(alone, false);
  Drop(persistent);
  Drop(other);
}

TEST_F(PitfallsTest, AHighCommandThatNeverEndsDoesNotCloseTheGateForEver) {
  TenantOptions options;
  options.limits.band = sched::Band::kHigh;
  Tenant high = Make(options), other = Make({});
  ASSERT_EQ(Launch(other, Micros(50)), Verdict::kAdmitted);
  Synchronize(other);
  const Time begin = clock().Now();
  ASSERT_EQ(Launch(high, Seconds(2)), Verdict::kAdmitted);
  clock().SleepUntil(begin + Millis(10));
  EXPECT_EQ(Launch(other, Micros(50), begin + Seconds(1)), Verdict::kAdmitted);
  EXPECT_LT(clock().Now() - begin, Millis(200));
  Drop(high);
  Drop(other);
}

class SmallPersistentTest : public PitfallsTest {
 protected:
  std::string config() const override { return "sms=100,overlap=footprint,clock=virtual"; }
};

TEST_F(SmallPersistentTest, OthersGetOnBesideAPersistentKernelOfOneSm) {
  Tenant persistent = Make({}), other = Make({});
  const driver::LaunchShape one{{1, 1, 1}, {1024, 1, 1}, 0};
  const Time begin = clock().Now();
  const Admission a = persistent.gate->Admit(
      *persistent.stream, {KernelKey(function_, one), Work::Kind::kKernel, 0.01f});
  ASSERT_EQ(a.verdict, Verdict::kAdmitted);
  uint64_t ns = 2'000'000'000;
  void* params[] = {&ns};
  persistent.gate->Complete(
      a, driver_->Launch(function_, one, persistent.handle, params) == Result::kSuccess);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(Launch(other, Micros(200)), Verdict::kAdmitted);
  Synchronize(other);
  // On 99 SMs each kernel takes two waves; the gate costs hardly anything.
  EXPECT_LT(Ms(clock().Now() - begin), 1000 * 0.4 * 1.05);
  Drop(persistent);
  Drop(other);
}

// ---- Programs that prevent markers ----

// The kernels were short before. The program launches one and then makes no calls while the gate waits for it.
TEST_F(PitfallsTest, WhoFallsSilentAfterEachKernelKeepsToItsCap) {
  TenantOptions options;
  options.limits.cap = 0.1;
  Tenant t = Make(options);
  SetAccount(t, 1);
  for (int i = 0; i < 50; ++i) ASSERT_EQ(Launch(t, Micros(50)), Verdict::kAdmitted);
  Synchronize(t);
  Rest();
  const double before = UsedMs(1);
  const Time begin = clock().Now();
  while (clock().Now() < begin + Seconds(2)) {
    ASSERT_EQ(Launch(t, Millis(5)), Verdict::kAdmitted);
    clock().SleepUntil(clock().Now() + Millis(4));
  }
  // A tenth of 2 s, the saved-up credit, and one kernel.
  EXPECT_LT(UsedMs(1) - before, 200 + 5 + 5);
  EXPECT_GT(UsedMs(1) - before, 150);
  Rest();
  EXPECT_NEAR(Ms(t.gate->stats().measured), UsedMs(1), 0.03 * UsedMs(1));
  Drop(t);
}

// The reconciler marks the stream just when the program begins to capture it.
TEST_F(PitfallsTest, ASilentTenantThatBeginsACaptureGetsItWhole) {
  Tenant t = Make({});
  for (int i = 0; i < 50; ++i) ASSERT_EQ(Launch(t, Micros(50)), Verdict::kAdmitted);
  Synchronize(t);
  Rest();
  int early = 0, late = 0;
  for (Nanos after = Micros(990); after < Micros(2300); after += Nanos(130)) {
    const Time launched = clock().Now();
    ASSERT_EQ(Launch(t, Micros(50)), Verdict::kAdmitted);
    const uint64_t started = sim_->calls("cuEventRecord");
    clock().SleepUntil(launched + after);
    ASSERT_EQ(driver_->BeginCapture(t.handle), Result::kSuccess);
    (sim_->calls("cuEventRecord") == started ? early : late) += 1;
    uint64_t ns = 50'000;
    void* params[] = {&ns};
    ASSERT_EQ(driver_->Launch(function_, Shape(), t.handle, params), Result::kSuccess);
    clock().SleepUntil(clock().Now() + Micros(50));
    driver::Graph graph = nullptr;
    ASSERT_EQ(driver_->EndCapture(t.handle, &graph), Result::kSuccess) << Ms(after);
    driver_->DestroyGraph(graph);
    Synchronize(t);
    Rest();
  }
  EXPECT_GT(early, 0);
  EXPECT_GT(late, 0);
  Drop(t);
}

// Several launches of one grant, on several streams.
TEST_F(PitfallsTest, WorkOfASilentTenantIsMeasured) {
  Tenant t = Make({}), other = Make({});
  Tenant second = t;
  ASSERT_EQ(driver_->CreateStream(&second.handle, 0), Result::kSuccess);
  second.stream = *t.gate->AddStream(second.handle);
  SetAccount(t, 1);
  SetAccount(second, 1);
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(Launch(t, Micros(5)), Verdict::kAdmitted);
    ASSERT_EQ(Launch(second, Micros(5)), Verdict::kAdmitted);
  }
  Synchronize(t);
  Synchronize(second);
  Rest();
  const double before = UsedMs(1);
  const Nanos measured = t.gate->stats().measured;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Launch(t, Millis(10)), Verdict::kAdmitted);
    ASSERT_EQ(Launch(second, Millis(10)), Verdict::kAdmitted);
  }
  clock().SleepUntil(clock().Now() + Millis(80));
  EXPECT_NEAR(UsedMs(1) - before, 60, 0.1);
  EXPECT_NEAR(Ms(t.gate->stats().measured - measured), 60, 0.03 * 60);
  t.gate->RemoveStream(second.stream);
  driver_->DestroyStream(second.handle);
  Drop(t);
  Drop(other);
}

// The gate has admitted the launch, and its thread is held up before the driver call. The marker finds the stream
// idle, so nothing can be learnt from it.
TEST_F(PitfallsTest, ALaunchThatTakesTheHostLongIsNotTakenForAShortKernel) {
  Tenant t = Make({});
  for (int i = 0; i < 50; ++i) ASSERT_EQ(Launch(t, Millis(5)), Verdict::kAdmitted);
  Synchronize(t);
  Rest();
  for (int i = 0; i < 10; ++i) {
    const Admission a = t.gate->Admit(*t.stream, {KernelKey(function_, Shape())});
    ASSERT_EQ(a.verdict, Verdict::kAdmitted);
    clock().SleepUntil(clock().Now() + Millis(4));
    uint64_t ns = 5'000'000;
    void* params[] = {&ns};
    t.gate->Complete(a, driver_->Launch(function_, Shape(), t.handle, params) == Result::kSuccess);
    Synchronize(t);
    Rest();
  }
  EXPECT_NEAR(Ms(t.gate->view().charged), 60 * 5, 0.02 * 60 * 5);
  Drop(t);
}

// ---- Many streams ----

// A tenant with a cap that launches kernels on ever another stream.
struct ManyStreams {
  Nanos kernel;
  int streams;
  int at_once;  // launches on a stream before the next one's turn
};
class ManyStreamsTest : public PitfallsTest, public ::testing::WithParamInterface<ManyStreams> {};

// Most markers are recorded when the kernels before them have long ended. Such a marker must not make kernels of other streams
// seem to have waited, or they are taken to be shorter than they are: the tenant had up to 100 % of the device.
TEST_P(ManyStreamsTest, KeepTheCap) {
  const ManyStreams& p = GetParam();
  TenantOptions options;
  options.limits.cap = 0.1;
  Tenant t = Make(options);
  std::vector<Tenant> all = {t};
  while (static_cast<int>(all.size()) < p.streams) {
    Tenant& more = all.emplace_back(t);
    ASSERT_EQ(driver_->CreateStream(&more.handle, 0), Result::kSuccess);
    more.stream = *t.gate->AddStream(more.handle);
  }
  for (const Tenant& each : all) SetAccount(each, 1);
  const auto run = [&](Nanos time) {
    const Time end = clock().Now() + time;
    while (clock().Now() < end) {
      for (Tenant& each : all) {
        for (int i = 0; i < p.at_once; ++i) {
          ASSERT_EQ(Launch(each, p.kernel), Verdict::kAdmitted);
        }
      }
    }
  };
  run(Millis(100));  // the saved-up credit is used, the cost is known
  const double used = UsedMs(1);
  const Time begin = clock().Now();
  run(Millis(1000));
  const double percent = 100 * (UsedMs(1) - used) / Ms(clock().Now() - begin);
  EXPECT_LT(percent, 10.5);
  EXPECT_GT(percent, 8.5);
  driver_->SynchronizeContext();
  for (size_t i = 1; i < all.size(); ++i) {
    t.gate->RemoveStream(all[i].stream);
    driver_->DestroyStream(all[i].handle);
  }
  Drop(t);
}

INSTANTIATE_TEST_SUITE_P(
    All, ManyStreamsTest,
    ::testing::Values(ManyStreams{Micros(1), 4, 1}, ManyStreams{Micros(1), 4, 8},
                      ManyStreams{Micros(1), 16, 1}, ManyStreams{Micros(1), 100, 1},
                      ManyStreams{Micros(1), 100, 8}, ManyStreams{Micros(3), 100, 1},
                      ManyStreams{Micros(3), 100, 8}, ManyStreams{Micros(3), 500, 1},
                      ManyStreams{Micros(5), 500, 1}, ManyStreams{Micros(10), 100, 1}),
    [](const ::testing::TestParamInfo<ManyStreams>& each) {
      return std::to_string(each.param.streams) + "_of_" +
             std::to_string(each.param.kernel.count() / 1000) + "us_" +
             std::to_string(each.param.at_once) + "_at_once";
    });

// ---- Drains ----

TEST_F(PitfallsTest, DrainsAreForwardedWhateverTheGateHolds) {
  Tenant t = Make({});
  ASSERT_EQ(Launch(t, Millis(5)), Verdict::kAdmitted);
  t.gate->Suspend();
  const Time begin = clock().Now();
  Synchronize(t);  // ends when the device is done, not earlier, and is not held
  EXPECT_NEAR(Ms(clock().Now() - begin), 5, 0.1);
  t.gate->Resume();
  Drop(t);
}

}  // namespace
}  // namespace gpushare::gate
