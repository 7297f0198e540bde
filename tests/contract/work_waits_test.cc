// SPDX-License-Identifier: Apache-2.0
// Waits of the host, and held work that others may be waiting for: nothing is held for ever.
#include "tests/contract/work_bed.h"

namespace gpushare::work {
namespace {

class WaitsTest : public WorkTest {
 protected:
  void SetUp() override {
    WorkTest::SetUp();
    ASSERT_CU(cu_->MemAlloc(&flag_, 4));
    ASSERT_CU(cu_->MemsetD8(flag_, 0, 4));
    wait_value_ = reinterpret_cast<ValueCall>(driver_->Symbol("cuStreamWaitValue32_v2"));
    write_value_ = reinterpret_cast<ValueCall>(driver_->Symbol("cuStreamWriteValue32_v2"));
  }
  CUresult WaitForFlag(const Tenant& t) {
    return calls_->HostWait(t.payer(), t.stream, [&] {
      return wait_value_(t.stream, flag_, 1, CU_STREAM_WAIT_VALUE_EQ);
    });
  }
  CUevent NewEvent() {
    CUevent event = nullptr;
    EXPECT_CU(cu_->EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
  }
  // A tenant that has spent its cap for more than a second ahead.
  Tenant& InDebt() {
    Tenant& t = Add({.limits = {.cap = 0.01}});
    EXPECT_CU(Spin(t, Millis(30)));
    EXPECT_CU(calls_->StreamSynchronize(t.payer(), t.stream));
    Rest();
    return t;
  }
  using ValueCall = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
  ValueCall wait_value_ = nullptr, write_value_ = nullptr;
  CUdeviceptr flag_ = 0;
};

TEST_F(WaitsTest, HostFunctionsAndCallbacksAreNotChargedAndKeepNobodyWaiting) {
  const Tenant &stalled = Weighing(1), &other = Weighing(1);
  static decltype(&gpushare_sim_spend) spend;
  spend = sim_->spend;
  const Time end = In(Millis(600));
  const auto b = Thread([&] {
    while (clock().Now() < end) ASSERT_CU(Spin(other, Micros(100)));
  });
  const auto a = Thread([&] {
    for (int round = 0; clock().Now() < end; ++round) {
      for (int i = 0; i < 10; ++i) ASSERT_CU(Spin(stalled, Micros(100)));
      if (round % 2 == 0) {
        ASSERT_CU(calls_->LaunchHostFunc(
            stalled.payer(), stalled.stream, [](void*) { spend(5'000'000); }, nullptr));
      } else {
        ASSERT_CU(calls_->StreamAddCallback(
            stalled.payer(), stalled.stream, [](CUstream, CUresult, void*) { spend(5'000'000); },
            nullptr, 0));
      }
      ASSERT_CU(calls_->StreamSynchronize(stalled.payer(), stalled.stream));
    }
  });
  a->Join();
  b->Join();
  Rest(Millis(20));
  EXPECT_NEAR(MeasuredMs(stalled), UsedMs(1), 0.05 * UsedMs(1) + 1);
  EXPECT_GT(UsedMs(2), 0.75 * 600);
}

// Each waits for the other's event in turn, beside a third tenant that keeps the device busy.
TEST_F(WaitsTest, StreamsOfTwoTenantsThatWaitForEachOtherGetOn) {
  const Tenant &a = Weighing(1), &b = Weighing(1), &busy = Weighing(8);
  const CUevent from_a = NewEvent(), from_b = NewEvent();
  const Time end = In(Millis(300));
  int rounds = 0;
  const auto third = Thread([&] {
    while (clock().Now() < end) ASSERT_CU(Spin(busy, Micros(500)));
  });
  const auto pair = Thread([&] {
    for (; clock().Now() < end; ++rounds) {
      ASSERT_CU(Spin(a, Micros(50)));
      ASSERT_CU(cu_->EventRecord(from_a, a.stream));
      ASSERT_CU(calls_->StreamWaitEvent(b.payer(), b.stream, from_a, 0));
      ASSERT_CU(Spin(b, Micros(50)));
      ASSERT_CU(cu_->EventRecord(from_b, b.stream));
      ASSERT_CU(calls_->StreamWaitEvent(a.payer(), a.stream, from_b, 0));
      if (rounds % 7 == 0) {
        uint64_t ns = 20'000;
        void* params[] = {&ns};
        ASSERT_CU(calls_->LaunchCooperativeKernel(b.payer(), spin_, 100, 1, 1, 1024, 1, 1, 0,
                                                  b.stream, params));
      }
    }
  });
  pair->Join();
  third->Join();
  EXPECT_GT(rounds, 20);
  EXPECT_EQ(a.gate->stats().held_past_bound + b.gate->stats().held_past_bound, 0u);
}

// B's stream waits for a write of A that is behind a kernel which the gate would hold for seconds.
TEST_F(WaitsTest, WhatMayBeWaitedForPassesAtTheBoundAndIsCharged) {
  const Tenant &a = InDebt(), &b = Weighing(1);
  ASSERT_CU(WaitForFlag(b));
  ASSERT_CU(Spin(b, Micros(100)));
  const double charged = Ms(a.gate->view().charged);
  const Time began = clock().Now();
  ASSERT_CU(Spin(a, Millis(1)));
  const double held = Ms(clock().Now() - began);
  EXPECT_GE(held, 19);
  EXPECT_LT(held, 60);
  ASSERT_CU(write_value_(a.stream, flag_, 1, 0));
  ASSERT_CU(calls_->StreamSynchronize(b.payer(), b.stream));
  Rest();
  EXPECT_NEAR(UsedMs(b.account), 0.1, 0.01);
  EXPECT_EQ(a.gate->stats().held_past_bound, 1u);
  EXPECT_GT(Ms(a.gate->view().charged) - charged, 0.9);
  // Nobody waits any more, so work over the cap is held as usual.
  const Time then = clock().Now();
  ASSERT_CU(Spin(a, Millis(1)));
  EXPECT_GT(clock().Now() - then, Seconds(1));
}

// A faked wait gives an accomplice only a command now and then.
TEST_F(WaitsTest, AnImpostorGainsLittle) {
  const Tenant &a = InDebt(), &b = Weighing(1);
  ASSERT_CU(WaitForFlag(b));
  const double before = UsedMs(a.account);
  const Time end = In(Millis(400));
  std::vector<std::unique_ptr<base::ClockThread>> threads;
  std::vector<CUstream> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(NewStream(a));
  for (int i = 0; i < 4; ++i) {
    threads.push_back(Thread([&, i] {
      while (clock().Now() < end) ASSERT_CU(Spin(a, Micros(200), streams[static_cast<size_t>(i)]));
    }));
  }
  clock().SleepUntil(end);
  // They pass after 20 ms, and then after 40, 80 and 160 ms more.
  EXPECT_EQ(a.gate->stats().held_past_bound, 4u);
  EXPECT_NEAR(UsedMs(a.account) - before, 4 * 0.2, 0.01);
  ASSERT_CU(write_value_(NewStream(b), flag_, 1, 0));
  a.gate->Update({.limits = {.cap = 1}});
  for (const auto& thread : threads) thread->Join();
}

// Long commands, one after the other: the host is silent while one runs, and yet the bound is not reset.
TEST_F(WaitsTest, AnImpostorWithLongCommandsGainsNoMore) {
  const Tenant &a = InDebt(), &b = Weighing(1);
  ASSERT_CU(WaitForFlag(b));
  const double before = UsedMs(a.account);
  const Time began = clock().Now(), end = began + Seconds(20);
  const auto thread = Thread([&] {
    while (clock().Now() < end) {
      ASSERT_CU(Spin(a, Millis(500)));
      ASSERT_CU(calls_->StreamSynchronize(a.payer(), a.stream));
    }
  });
  clock().SleepUntil(end);
  // The first passes at 20 ms, the next 5 s after its end, and one 10 s after the end of that.
  EXPECT_EQ(a.gate->stats().held_past_bound, 3u);
  EXPECT_NEAR(UsedMs(a.account) - before, 3 * 500, 1);
  ASSERT_CU(write_value_(NewStream(b), flag_, 1, 0));
  a.gate->Update({.limits = {.cap = 1}});
  thread->Join();
}

// A command that passed does not end until another one does: the other passes as well.
TEST_F(WaitsTest, ACommandInFlightThatWaitsForAHeldOneIsNoDeadlock) {
  const Tenant &a = InDebt(), &b = Weighing(1);
  ASSERT_CU(WaitForFlag(b));
  const CUstream second = NewStream(a);
  const Time began = clock().Now();
  ASSERT_CU(Spin(a, Seconds(2)));
  ASSERT_CU(Spin(a, Millis(1), second));
  EXPECT_LT(clock().Now() - began, Millis(100));
  ASSERT_CU(write_value_(NewStream(b), flag_, 1, 0));
}

TEST_F(WaitsTest, APayerMayBoundItsHoldsUnlessItIsSuspended) {
  const Tenant& t = InDebt();
  uint64_t ns = 100'000;
  void* params[] = {&ns};
  const auto launch = [&] {
    return calls_->LaunchKernel({.gates = &t.gates, .longest_hold = Millis(5)}, spin_, 100, 1, 1,
                                1024, 1, 1, 0, t.stream, params, nullptr);
  };
  const Time began = clock().Now();
  ASSERT_CU(launch());
  EXPECT_NEAR(Ms(clock().Now() - began), 5, 0.5);
  EXPECT_EQ(t.gate->stats().held_past_bound, 1u);
  t.gate->Suspend();
  const auto resume = Thread([&] {
    clock().SleepUntil(In(Millis(40)));
    t.gate->Resume();
  });
  const Time then = clock().Now();
  ASSERT_CU(launch());
  EXPECT_GE(clock().Now() - then, Millis(40));
  resume->Join();
}

TEST_F(WaitsTest, SynchronisingCallsAreForwardedAndMarked) {
  const Tenant& t = Weighing(1);
  Weighing(1);
  const CUevent event = NewEvent();
  const auto work = [&] {
    for (int i = 0; i < 10; ++i) EXPECT_CU(Spin(t, Micros(100)));
  };
  const std::function<CUresult()> waits[] = {
      [&] { return calls_->StreamSynchronize(t.payer(), t.stream); },
      [&] { return calls_->CtxSynchronize(t.payer()); },
      [&] {
        EXPECT_CU(cu_->EventRecord(event, t.stream));
        return calls_->EventSynchronize(t.payer(), event);
      },
      [&] {
        CUdeviceptr pointer = 0;
        EXPECT_CU(cu_->MemAlloc(&pointer, 1 << 20));
        return calls_->Blocking(t.payer(), [&] { return cu_->MemFree(pointer); });
      },
      [&] {
        char host = 0;
        return calls_->MemcpyDtoH(t.payer(), &host, flag_, 1);
      }};
  for (const auto& wait : waits) {
    for (int i = 0; i < 3; ++i) {
      work();
      ASSERT_CU(wait());
    }
    Rest();
    EXPECT_NEAR(MeasuredMs(t), UsedMs(1), 0.03 * UsedMs(1) + 0.05);
  }
  // All work passes whether or not the gate is suspended.
  t.gate->Suspend();
  EXPECT_CU(calls_->CtxSynchronize(t.payer()));
  t.gate->Resume();
  EXPECT_EQ(calls_->EventSynchronize(t.payer(), nullptr), cu_->EventSynchronize(nullptr));
}

}  // namespace
}  // namespace gpushare::work
