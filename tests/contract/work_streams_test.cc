// SPDX-License-Identifier: Apache-2.0
// The streams of programs: adopted on first use, whatever kind they are and however they end.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/contract/work_bed.h"

namespace gpushare::work {
namespace {

class StreamsTest : public WorkTest {
 protected:
  void ExpectMeasured(const Tenant& tenant, double part) {
    Rest();
    EXPECT_NEAR(MeasuredMs(tenant), UsedMs(tenant.account), part * UsedMs(tenant.account));
  }

  // Creates a context beside the fixture's, leaves it current, and loads the kernel in it.
  void MakeContext(CUcontext* made, CUfunction* spin) {
    auto* const create = reinterpret_cast<CUresult (*)(CUcontext*, unsigned, CUdevice)>(
        driver_->Symbol("cuCtxCreate_v2"));
    ASSERT_CU(create(made, 0, 0));
    CUmodule module = nullptr;
    ASSERT_CU(cu_->ModuleLoadData(&module, kPtx));
    ASSERT_CU(cu_->ModuleGetFunction(spin, module, "spin"));
  }
  CUresult End(CUcontext context) {
    return calls_->ContextEnds(context, [&] { return cu_->CtxDestroy(context); });
  }
  CUresult Reset(const Tenant& t) {
    return calls_->PrimaryContextEnds(t.payer(), 0, [&] { return cu_->DevicePrimaryCtxReset(0); });
  }
};

TEST_F(StreamsTest, TheLegacyStreamIsHeldAndMeasured) {
  const Tenant& t = Add({.limits = {.cap = 0.5}});
  sim_->set_account(nullptr, t.account);
  const Time began = clock().Now();
  for (int i = 0; i < 400; ++i) {
    ASSERT_CU(Spin(t, Micros(100), i % 2 == 0 ? nullptr : CU_STREAM_LEGACY));
  }
  ASSERT_CU(calls_->StreamSynchronize(t.payer(), nullptr));
  EXPECT_NEAR(Ms(clock().Now() - began), 70, 3);  // 40 ms at a half, minus the saved-up credit
  EXPECT_EQ(UsedMs(t.account), 40);
  ExpectMeasured(t, 0.03);
}

TEST_F(StreamsTest, PerThreadStreamsAreOneAThread) {
  const Tenant &a = Weighing(3), &b = Weighing(1);
  const Time end = In(Millis(600));
  const auto work = [&](const Tenant& tenant, Nanos cost) {
    return Thread([&, cost] {
      sim_->set_account(CU_STREAM_PER_THREAD, tenant.account);
      while (clock().Now() < end) ASSERT_CU(Spin(tenant, cost, CU_STREAM_PER_THREAD));
      ASSERT_CU(calls_->StreamSynchronize(tenant.payer(), CU_STREAM_PER_THREAD));
      calls_->ThreadEnds();
    });
  };
  // Two threads of one tenant: a thread cannot mark the work that it finds open on the other thread's stream.
  const auto first = work(a, Micros(50)), second = work(a, Micros(80)), third = work(b, Micros(60));
  first->Join();
  second->Join();
  third->Join();
  EXPECT_NEAR(100 * UsedMs(a.account) / (UsedMs(a.account) + UsedMs(b.account)), 75, 3);
  EXPECT_EQ(a.gate->stats().markers_failed + b.gate->stats().markers_failed, 0u);
  ExpectMeasured(a, 0.05);
  ExpectMeasured(b, 0.05);
}

// A program's own thread-local objects may launch when they are destroyed, after the layer's state of the thread has
// gone.
class StreamsThreadsTest : public StreamsTest {
 protected:
  // On a virtual clock, a thread that waits for another thread's end would keep its turn of the clock.
  std::string config() const override { return "sms=100,memory=4GiB,clock=wall"; }
};

TEST_F(StreamsThreadsTest, WhatAThreadsLastObjectsLaunchIsForgottenWithIt) {
  struct AtTheEnd {
    ~AtTheEnd() {
      if (launch) launch();
    }
    std::function<void()> launch;
  };
  const Tenant& t = Weighing(1);
  const int before = Streams::threads();
  const uint64_t launches = t.gate->stats().launches;
  for (int i = 0; i < 3; ++i) {
    const auto launch = [&] {
      EXPECT_CU(Spin(t, Micros(10), t.stream));
      EXPECT_CU(Spin(t, Micros(10), CU_STREAM_PER_THREAD));
      EXPECT_GT(Streams::threads(), before);
    };
    const std::function<void()> at_the_end = [&] {
      EXPECT_CU(cu_->CtxPushCurrent(context_));
      launch();
    };
    Thread([&] {
      static thread_local AtTheEnd end;
      end.launch = at_the_end;
      launch();
    })->Join();
  }
  ASSERT_CU(cu_->CtxSynchronize());
  EXPECT_EQ(t.gate->stats().launches - launches, 12u);
  EXPECT_EQ(Streams::threads(), before);
}

// Some programs create a stream for each request, in all more than a tenant can have at once, beside streams that
// stay.
TEST_F(StreamsTest, PlacesOfStreamsThatEndedAreUsedAgain) {
  const Tenant& t = Weighing(1);
  const auto make = [&] {
    CUstream stream = nullptr;
    EXPECT_CU(cu_->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    EXPECT_EQ(calls_->DeviceOf(t.payer(), stream),
              0);  // from here on the stream belongs to the tenant
    return stream;
  };
  constexpr int kMost = 0xffff, kAtOnce = 100;
  std::vector<CUstream> others;
  for (int i = 0; i < kAtOnce; ++i) others.push_back(make());
  for (int i = 0; i < kMost; ++i) {
    const size_t place = static_cast<size_t>(i % kAtOnce);
    ASSERT_CU(calls_->StreamDestroy(others[place]));
    others[place] = make();
  }
  // Each of them is measured like any other stream.
  for (const CUstream stream : others) ASSERT_CU(Spin(t, Micros(50), stream));
  for (const CUstream stream : others) ASSERT_CU(calls_->StreamSynchronize(t.payer(), stream));
  Rest();
  EXPECT_EQ(t.gate->stats().launches, static_cast<uint64_t>(kAtOnce));
  EXPECT_NEAR(MeasuredMs(t), kAtOnce * 0.05, 0.25);
  for (const CUstream stream : others) EXPECT_CU(calls_->StreamDestroy(stream));
}

// Only its own thread can mark a per-thread stream. When a thread launches and then makes no calls for long, its
// kernels are charged as predicted. Then as many of its next kernels get markers at once, so that their real time
// becomes known.
TEST_F(StreamsTest, APerThreadStreamThatIsNeverWaitedForKeepsItsCap) {
  for (const int burst : {1, 3}) {
    const Tenant& t = Add({.limits = {.cap = 0.1}});
    double used = 0;
    Thread([&] {
      const CUstream mine = CU_STREAM_PER_THREAD;
      sim_->set_account(mine, t.account);
      for (int i = 0; i < 200; ++i) ASSERT_CU(Spin(t, Micros(10), mine));  // makes the kernel known
      ASSERT_CU(calls_->StreamSynchronize(t.payer(), mine));
      const auto share = [&](Nanos length) {
        const double before = UsedMs(t.account);
        const Time began = clock().Now(), end = began + length;
        while (clock().Now() < end) {
          for (int i = 0; i < burst; ++i) ASSERT_CU(Spin(t, Millis(5), mine));
          clock().SleepUntil(
              In(Millis(5 * burst + 5)));  // the kernel has ended when the thread returns
        }
        used = (UsedMs(t.account) - before) / Ms(clock().Now() - began);
      };
      share(Seconds(1));
      EXPECT_LT(used, 0.2)
          << burst;  // until the new cost is known; it would be a half if it were never found out
      share(Seconds(4));
      EXPECT_NEAR(used, 0.1, 0.01) << burst;
      calls_->ThreadEnds();
    })->Join();
  }
}

// No marker can be recorded on a stream while it captures: the work in flight gets its marker before.
TEST_F(StreamsTest, WhatIsInFlightWhenACaptureBeginsIsMeasured) {
  for (const bool joins : {true, false}) {
    const Tenant& t = Add({.limits = {.cap = 0.9}});
    const CUstream captured = joins ? NewStream(t) : t.stream;
    for (int i = 0; i < 200; ++i) ASSERT_CU(Spin(t, Micros(10)));
    ASSERT_CU(calls_->StreamSynchronize(t.payer(), t.stream));
    Rest();
    const double before = MeasuredMs(t), used = UsedMs(t.account);
    for (int i = 0; i < 3; ++i) ASSERT_CU(Spin(t, Millis(3)));  // predicted to take 10 us
    ASSERT_CU(calls_->StreamBeginCapture(captured, [&] {
      return cu_->StreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED);
    }));
    if (joins) {
      CUevent event = nullptr;
      ASSERT_CU(cu_->EventCreate(&event, CU_EVENT_DISABLE_TIMING));
      ASSERT_CU(cu_->EventRecord(event, captured));
      ASSERT_CU(calls_->StreamWaitEvent(t.payer(), t.stream, event, 0));
      ASSERT_CU(cu_->EventRecord(event, t.stream));
      Rest(Millis(20));
      ASSERT_CU(calls_->StreamWaitEvent(t.payer(), captured, event, 0));
    }
    Rest(Millis(20));
    CUgraph graph = nullptr;
    ASSERT_CU(calls_->StreamEndCapture(captured, &graph));
    Rest();
    EXPECT_NEAR(MeasuredMs(t) - before, UsedMs(t.account) - used, 0.3) << joins;
    EXPECT_NEAR(UsedMs(t.account) - used, 9, 0.1) << joins;
  }
}

TEST_F(StreamsTest, AThreadThatEndsLeavesNothingOfItsStreamBehind) {
  const Tenant& t = Weighing(1);
  for (int i = 0; i < 20; ++i) {
    const auto thread = Thread([&] {
      ASSERT_CU(Spin(t, Micros(20), CU_STREAM_PER_THREAD));
      ASSERT_CU(calls_->StreamSynchronize(t.payer(), CU_STREAM_PER_THREAD));
    });
    thread->Join();
  }
  Rest();
  EXPECT_EQ(t.gate->stats().launches, 20u);
  EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
  EXPECT_EQ(calls_->known_streams(), 0u);
}

TEST_F(StreamsTest, StreamsOfAnotherContextAreMeasuredAndGoWithIt) {
  const Tenant& t = Weighing(1);
  Weighing(1);
  for (int round = 0; round < 2; ++round) {
    CUcontext other = nullptr;
    CUfunction spin = nullptr;
    ASSERT_NO_FATAL_FAILURE(MakeContext(&other, &spin));
    std::swap(spin, spin_);
    const CUstream stream = NewStream(t);
    sim_->set_account(nullptr, t.account);
    for (int i = 0; i < 100; ++i) {
      ASSERT_CU(Spin(t, Micros(100), stream));
      ASSERT_CU(Spin(t, Micros(60), nullptr));  // on this context's stream
    }
    ASSERT_CU(calls_->CtxSynchronize(t.payer()));
    ExpectMeasured(t, 0.03);
    EXPECT_EQ(t.gate->stats().markers_failed, 0u);
    for (int i = 0; i < 20; ++i) ASSERT_CU(Spin(t, Micros(100), stream));  // leaves some in flight
    std::swap(spin, spin_);
    ASSERT_CU(End(other));
    Rest();
    EXPECT_TRUE(engine_->health().ok()) << engine_->health();
  }
  EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
  // Nothing is left for which others would wait.
  ASSERT_CU(Spin(t, Micros(10)));
}

// The stream ends with its context while its work is still in flight.
TEST_F(StreamsTest, OfAContextThatEndsNothingIsAskedAnyMore) {
  const Tenant& t = Weighing(1);
  Weighing(1);
  CUcontext other = nullptr;
  CUfunction spin = nullptr;
  ASSERT_NO_FATAL_FAILURE(MakeContext(&other, &spin));
  std::swap(spin, spin_);
  const CUstream stream = NewStream(t);
  ASSERT_CU(Spin(t, Millis(5), stream));
  std::swap(spin, spin_);
  ASSERT_CU(calls_->StreamDestroy(stream));
  ASSERT_CU(End(other));
  Rest();
  EXPECT_EQ(t.gate->stats().markers_failed, 0u);
  EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
}

// A reset of the engine's own context destroys its events.
TEST_F(StreamsTest, AfterAResetOfThePrimaryContextWorkIsMeasuredAndHeldAsBefore) {
  Tenant& t = Add({.limits = {.cap = 0.2}});
  for (const bool told : {true, true, false}) {
    for (int i = 0; i < 20; ++i) ASSERT_CU(Spin(t, Millis(1)));  // leaves some in flight
    // If the layer is not told of the reset, it notices when the driver refuses a call.
    ASSERT_CU(told ? Reset(t) : cu_->DevicePrimaryCtxReset(0));
    Rest();
    CUcontext again = nullptr;
    ASSERT_CU(cu_->DevicePrimaryCtxRetain(&again, 0));
    ASSERT_EQ(again, context_);
    ASSERT_CU(cu_->ModuleLoadData(&module_, kPtx));
    ASSERT_CU(cu_->ModuleGetFunction(&spin_, module_, "spin"));
    t.stream = NewStream(t);
    for (int i = 0; i < 20; ++i) ASSERT_CU(Spin(t, Millis(1)));
    ASSERT_CU(calls_->StreamSynchronize(t.payer(), t.stream));
    Rest();
    const double used = UsedMs(t.account), measured = MeasuredMs(t);
    const Time began = clock().Now();
    for (int i = 0; i < 100; ++i) ASSERT_CU(Spin(t, Millis(2)));
    ASSERT_CU(calls_->StreamSynchronize(t.payer(), t.stream));
    // 200 ms at a fifth, minus the saved-up credit; the first two grants are for the cost that the kernel had before.
    EXPECT_NEAR(Ms(clock().Now() - began), 1000, 60);
    Rest();
    EXPECT_NEAR(UsedMs(t.account) - used, 200, 0.1);
    EXPECT_NEAR(MeasuredMs(t) - measured, 200, 0.02 * 200);
    EXPECT_TRUE(engine_->health().ok()) << engine_->health();
    ASSERT_CU(cu_->DevicePrimaryCtxRelease(0));
  }
}

TEST_F(StreamsTest, AStreamIsDestroyedWithItsWorkInFlight) {
  const Tenant& t = Weighing(1);
  Weighing(1);
  for (int i = 0; i < 300; ++i) {
    const CUstream stream = NewStream(t);
    for (int k = 0; k < 3; ++k) ASSERT_CU(Spin(t, Micros(30), stream));
    ASSERT_CU(calls_->StreamDestroy(stream));
    EXPECT_NE(Spin(t, Micros(30), stream), CUDA_SUCCESS);  // and is not adopted
  }
  Rest();
  EXPECT_EQ(t.gate->stats().launches, 900u);
  EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
  EXPECT_EQ(calls_->StreamDestroy(reinterpret_cast<CUstream>(0x77770)), CUDA_ERROR_INVALID_HANDLE);
}

// The kernels were short before; each stream is destroyed before its kernel ends.
TEST_F(StreamsTest, WhoDestroysItsStreamsKeepsToItsCap) {
  const Tenant& t = Add({.limits = {.cap = 0.1}});
  for (int i = 0; i < 50; ++i) ASSERT_CU(Spin(t, Micros(50)));
  ASSERT_CU(calls_->StreamSynchronize(t.payer(), t.stream));
  Rest();
  const double before = UsedMs(t.account);
  const Time end = In(Seconds(2));
  while (clock().Now() < end) {
    const CUstream stream = NewStream(t);
    ASSERT_CU(Spin(t, Millis(5), stream));
    ASSERT_CU(calls_->StreamDestroy(stream));
  }
  // A tenth of 2 s and the saved-up credit; some kernels pass until the first one is measured.
  EXPECT_LT(UsedMs(t.account) - before, 200 + 5 + 25);
  EXPECT_GT(UsedMs(t.account) - before, 150);
  Rest(Millis(50));
  ExpectMeasured(t, 0.03);
  EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
}

// The driver reuses the handle of a destroyed stream, and the layer is not told.
TEST_F(StreamsTest, AHandleThatComesBackIsAnotherStream) {
  const Tenant& t = Weighing(1);
  ASSERT_CU(Spin(t, Micros(30)));
  calls_->StreamCreated(t.stream);
  for (int i = 0; i < 50; ++i) ASSERT_CU(Spin(t, Micros(30)));
  ASSERT_CU(calls_->StreamSynchronize(t.payer(), t.stream));
  ExpectMeasured(t, 0.1);
}

TEST_F(StreamsTest, TwoIdentitiesOnOneStreamPayTheirOwn) {
  const Tenant &a = Weighing(1), &b = Weighing(1);
  const Time end = In(Millis(400));
  double launched_a = 0, launched_b = 0;
  while (clock().Now() < end) {
    ASSERT_CU(Spin(a, Micros(120), a.stream));
    launched_a += 0.12;
    for (int i = 0; i < 2; ++i) {
      ASSERT_CU(Spin(b, Micros(20), a.stream));
      launched_b += 0.02;
    }
  }
  ASSERT_CU(calls_->CtxSynchronize(a.payer()));
  Rest();
  EXPECT_NEAR(MeasuredMs(a) + MeasuredMs(b), launched_a + launched_b,
              0.05 * (launched_a + launched_b));
  EXPECT_NEAR(MeasuredMs(a), launched_a, 0.1 * launched_a);
}

TEST_F(StreamsTest, WhoHasNoGateIsForwarded) {
  Tenant nobody;
  nobody.stream = Weighing(1).stream;
  ASSERT_CU(Spin(nobody, Micros(30)));
  ASSERT_CU(calls_->StreamSynchronize(nobody.payer(), nobody.stream));
  EXPECT_EQ(Truth(1).kernels, 1u);
  EXPECT_EQ(tenants_[0]->gate->stats().launches, 0u);
}

TEST_F(StreamsTest, AGateThatComesLaterHoldsTheStreamsThatWereThere) {
  const Tenant& t = Add({.limits = {.cap = 0.5}});
  Tenant late;
  sim_->set_account(nullptr, t.account);
  ASSERT_CU(Spin(late, Micros(100), t.stream));
  ASSERT_CU(Spin(late, Micros(100), nullptr));
  EXPECT_EQ(t.gate->stats().launches, 0u);
  late.gates.on[0] = t.gate;
  const Time began = clock().Now();
  for (int i = 0; i < 400; ++i) {
    ASSERT_CU(Spin(late, Micros(100), i % 2 == 0 ? t.stream : nullptr));
  }
  ASSERT_CU(calls_->CtxSynchronize(late.payer()));
  EXPECT_EQ(t.gate->stats().launches, 400u);
  EXPECT_NEAR(Ms(clock().Now() - began), 70, 3);  // 40 ms at a half, minus the saved-up credit
  late.gates.on[0] = nullptr;
  calls_->Forget(t.gate);
  ASSERT_CU(Spin(late, Micros(100), t.stream));
  EXPECT_EQ(t.gate->stats().launches, 400u);
}

TEST_F(StreamsTest, OneCallInsideAnotherIsChargedOnce) {
  const Tenant& t = Weighing(1);
  // Like a driver that implements one of its calls by another that is hooked as well.
  ASSERT_CU(calls_->GraphLaunchBy(t.payer(), nullptr, t.stream, [&] {
    EXPECT_CU(Spin(t, Micros(30)));
    return Spin(t, Micros(30));
  }));
  ASSERT_CU(calls_->Blocking(t.payer(), [&] { return calls_->CtxSynchronize(t.payer()); }));
  Rest();
  EXPECT_EQ(t.gate->stats().launches, 1u);
}

class NarrowTest : public StreamsTest {
 protected:
  std::string config() const override { return "sms=100,overlap=footprint,clock=virtual"; }
  // A kernel on a tenth of the device.
  CUresult Narrow(const Tenant& tenant, Nanos cost, CUstream stream) {
    uint64_t ns = static_cast<uint64_t>(cost.count());
    void* params[] = {&ns};
    return calls_->LaunchKernel(tenant.payer(), spin_, 10, 1, 1, 1024, 1, 1, 0, stream, params,
                                nullptr);
  }
};

// A call took its turn on the stream before it was held, and the other tenant's work goes there meanwhile. Without
// the common stream their kernels would run side by side.
TEST_F(NarrowTest, WhoIsHeldOnAStreamOfTwoPaysItsOwn) {
  const Tenant &a = Add({.limits = {.cap = 0.25}}), &b = Weighing(1);
  double launched_a = 0, launched_b = 0;
  for (int i = 0; i < 20; ++i, launched_a += 3, launched_b += 0.004) {
    ASSERT_CU(Narrow(a, Millis(3), a.stream));
    ASSERT_CU(Narrow(b, Micros(4), a.stream));
    ASSERT_CU(calls_->CtxSynchronize(a.payer()));
  }
  const Time end = In(Millis(600));
  const auto held = Thread([&] {
    for (; clock().Now() < end; launched_a += 3) ASSERT_CU(Narrow(a, Millis(3), a.stream));
  });
  for (; clock().Now() < end; launched_b += 0.004) ASSERT_CU(Narrow(b, Micros(4), a.stream));
  held->Join();
  ASSERT_CU(calls_->CtxSynchronize(a.payer()));
  ASSERT_CU(calls_->CtxSynchronize(b.payer()));
  Rest();
  EXPECT_NEAR(UsedMs(a.account), launched_a + launched_b, 1);
  EXPECT_NEAR(MeasuredMs(a), launched_a, 0.05 * launched_a);
  EXPECT_NEAR(MeasuredMs(b), launched_b, 0.05 * launched_b);
}

}  // namespace
}  // namespace gpushare::work
