// SPDX-License-Identifier: Apache-2.0
// What a thread remembers about a stream is not used after the stream has changed, and only actual launches are
// charged.
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <vector>

#include "base/process_barrier.h"
#include "tests/contract/failing_memory.h"
#include "tests/contract/work_bed.h"
#include "work/recent.h"

namespace gpushare::work {
namespace {

// ---- The places ----

struct Numbered {
  uint64_t epoch = 0;
  CUstream handle = nullptr;
  int number = 0;
};

CUstream HandleOf(uint64_t number) { return reinterpret_cast<CUstream>(number); }

TEST(RecentTest, WhatWasPutLastIsFoundAndNothingOlder) {
  std::mt19937_64 random(1);
  Recent<Numbered> recent;
  std::map<CUstream, int> last;
  uint64_t epoch = 1;
  for (int i = 1; i < 20000; ++i) {
    if (random() % 50 == 0) ++epoch;
    const CUstream handle = HandleOf(random() % 40 * 8);
    last[handle] = i;
    recent.Put({epoch, handle, i});
    EXPECT_EQ(recent.Find(handle).number, i);
    const CUstream other = HandleOf(random() % 40 * 8);
    const Numbered& found = recent.Find(other);
    if (found.handle == other) {
      EXPECT_EQ(found.number, last[other]);
    }
  }
}

TEST(RecentTest, WhatHasTheSamePlacesMakesRoomAndWhatHasChangedMakesItFirst) {
  // Of two handles that share a place both are found. One may be the null handle, which is not confused with an empty
  // place.
  for (uint64_t a = 0; a < 64; ++a) {
    for (uint64_t b = a + 1; b < 64; ++b) {
      Recent<Numbered> recent;
      recent.Put({5, HandleOf(a * 16), 1});
      recent.Put({5, HandleOf(b * 16), 2});
      EXPECT_EQ(recent.Find(HandleOf(a * 16)).number, 1);
      EXPECT_EQ(recent.Find(HandleOf(b * 16)).number, 2);
      recent.Put({6, HandleOf(b * 16), 3});
      recent.Put({6, HandleOf(a * 16), 4});
      EXPECT_EQ(recent.Find(HandleOf(a * 16)).number, 4);
      EXPECT_EQ(recent.Find(HandleOf(b * 16)).number, 3);
    }
  }
}

// A thread that launches on eight streams in turn finds all of them, wherever the streams are.
TEST(RecentTest, EightInTurnAreAllFound) {
  std::mt19937_64 random(1);
  constexpr int kSets = 2000, kHandles = 8, kRounds = 20;
  int found = 0;
  for (int set = 0; set < kSets; ++set) {
    Recent<Numbered> recent;
    uint64_t handles[kHandles];
    for (uint64_t& handle : handles) handle = 0x7f0000000000 + random() % (1 << 20) * 16;
    for (int i = 0; i < kRounds * kHandles; ++i) {
      const CUstream handle = HandleOf(handles[i % kHandles]);
      recent.FindIf(handle) != nullptr ? void(++found) : recent.Put({1, handle, i});
    }
  }
  // Each is put once in the first round.
  EXPECT_GT(found, 0.995 * kSets * (kRounds - 1) * kHandles);
}

// ---- One at a time ----

class KnownTest : public WorkTest {
 protected:
  bool AtOnce(const Tenant& tenant, Nanos cost, CUstream stream, CUresult* result) {
    uint64_t ns = static_cast<uint64_t>(cost.count());
    void* params[] = {&ns};
    if (Again(tenant, 100, params, stream, result)) return true;
    return calls_->LaunchKernelAtOnce(tenant.payer().gates, spin_, 100, 1, 1, 1024, 1, 1, 0, stream,
                                      params, nullptr, result);
  }
  // Launches `blocks` blocks again, if the thread's last launch on the stream was the same.
  bool Again(const Tenant& tenant, unsigned blocks, void** params, CUstream stream,
             CUresult* result) {
    return calls_->LaunchKernelAgain(tenant.payer().gates, spin_, blocks, 1, 1, 1024, 1, 1, 0,
                                     stream, params, nullptr, result);
  }
  // Launches until the cost of the kernel is settled, in every position of a sequence of launches.
  void Settle(const Tenant& tenant, CUstream stream) {
    for (int i = 0; i < 50; ++i) {
      ASSERT_CU(Spin(tenant, Micros(10), stream));
      ASSERT_CU(calls_->CtxSynchronize(tenant.payer()));
    }
    Rest();
  }
  CUcontext MakeContext() {
    auto* const create = reinterpret_cast<CUresult (*)(CUcontext*, unsigned, CUdevice)>(
        driver_->Symbol("cuCtxCreate_v2"));
    CUcontext made = nullptr;
    EXPECT_CU(create(&made, 0, 0));
    return made;
  }
  void BeginCapture(CUstream stream) {
    ASSERT_CU(calls_->StreamBeginCapture(
        stream, [&] { return cu_->StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED); }));
  }
  void EndCapture(CUstream stream) {
    CUgraph graph = nullptr;
    ASSERT_CU(calls_->StreamEndCapture(stream, &graph));
    ASSERT_CU(cu_->GraphDestroy(graph));
  }
};

TEST_F(KnownTest, NearlyEveryLaunchIsPaidForAtOnce) {
  const Tenant& t = Weighing(1);
  const CUstream several[] = {t.stream, NewStream(t), nullptr, CU_STREAM_PER_THREAD, NewStream(t)};
  sim_->set_account(nullptr, t.account);
  for (const CUstream stream : several) ASSERT_NO_FATAL_FAILURE(Settle(t, stream));
  const uint64_t asked = CallsOf("cuCtxGetCurrent"), before = t.gate->stats().launches;
  int at_once = 0;
  for (int i = 0; i < 1000; ++i) {
    CUresult result = CUDA_SUCCESS;
    const CUstream stream = several[i % 5];
    if (AtOnce(t, Micros(10), stream, &result)) {
      ++at_once;
    } else {
      result = Spin(t, Micros(10), stream);
    }
    ASSERT_CU(result);
  }
  // All but the first launch of each grant.
  EXPECT_GT(at_once, 800);
  // A launch on a default stream asks the driver once for the context; a launch on any other stream asks nothing.
  EXPECT_GE(CallsOf("cuCtxGetCurrent") - asked, 400u);
  EXPECT_LE(CallsOf("cuCtxGetCurrent") - asked,
            400u + 2 * (1000u - static_cast<unsigned>(at_once)));
  EXPECT_EQ(t.gate->stats().launches - before, 1000u);
}

// Where several streams have their first place in common, each finds another one: none is looked up behind a lock at each launch.
TEST_F(KnownTest, StreamsThatShareAPlaceAreAllPaidForAtOnce) {
  const Tenant& t = Weighing(1);
  const auto first = [](CUstream stream) {
    return Recent<Numbered>::FirstPlaceOf(reinterpret_cast<uintptr_t>(stream));
  };
  const auto second = [](CUstream stream) {
    return Recent<Numbered>::SecondPlaceOf(reinterpret_cast<uintptr_t>(stream));
  };
  std::vector<CUstream> streams = {t.stream};
  for (int i = 0; i < 1000 && streams.size() < 4; ++i) {
    const CUstream stream = NewStream(t);
    if (first(stream) == first(t.stream) &&
        std::none_of(streams.begin(), streams.end(),
                     [&](CUstream other) { return second(other) == second(stream); })) {
      streams.push_back(stream);
    }
  }
  ASSERT_EQ(streams.size(), 4u);
  for (const CUstream stream : streams) ASSERT_NO_FATAL_FAILURE(Settle(t, stream));
  int at_once = 0;
  for (size_t i = 0; i < 1000; ++i) {
    CUresult result = CUDA_SUCCESS;
    if (AtOnce(t, Micros(10), streams[i % streams.size()], &result)) {
      ++at_once;
    } else {
      result = Spin(t, Micros(10), streams[i % streams.size()]);
    }
    ASSERT_CU(result);
  }
  EXPECT_GT(at_once, 800);
  ASSERT_CU(calls_->CtxSynchronize(t.payer()));
}

// A network launches its kernels in the same order each time, some of them several times. Nearly all take the
// shortest path, and each is charged as itself.
TEST_F(KnownTest, WhatIsLaunchedInTheSameOrderGoesTheShortestWay) {
  if (!base::HasProcessBarrier()) GTEST_SKIP() << "the kernel has no membarrier()";
  const Tenant& t = Weighing(1);
  const CUstream streams[] = {t.stream, NewStream(t)};
  constexpr unsigned kBlocks[] = {100, 50, 100, 100, 25, 50, 75};
  int again = 0, launched = 0;
  double expected = 0;
  const auto network = [&](int times, CUstream stream) {
    for (int i = 0; i < times; ++i) {
      for (const unsigned blocks : kBlocks) {
        // Each kernel has its own cost.
        uint64_t ns = blocks * 100;
        void* params[] = {&ns};
        CUresult result = CUDA_SUCCESS;
        ++launched;
        expected += static_cast<double>(ns) / 1e6;
        if (Again(t, blocks, params, stream, &result)) {
          ++again;
        } else if (!calls_->LaunchKernelAtOnce(t.payer().gates, spin_, blocks, 1, 1, 1024, 1, 1, 0,
                                               stream, params, nullptr, &result)) {
          result = calls_->LaunchKernel(t.payer(), spin_, blocks, 1, 1, 1024, 1, 1, 0, stream,
                                        params, nullptr);
        }
        EXPECT_CU(result);
      }
    }
    ASSERT_CU(calls_->CtxSynchronize(t.payer()));
  };
  for (const CUstream stream : streams) {
    for (int i = 0; i < 60; ++i) network(1, stream);
    Rest();
    const uint64_t before = t.gate->stats().launches;
    const double measured = MeasuredMs(t);
    again = launched = 0;
    expected = 0;
    for (int i = 0; i < 20; ++i) network(20, stream);
    Rest();
    EXPECT_GT(again, launched * 3 / 4);
    EXPECT_EQ(t.gate->stats().launches - before, static_cast<uint64_t>(launched));
    EXPECT_NEAR(MeasuredMs(t) - measured, expected, expected / 20);
    EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
  }
}

// Two tenants in turns: the launches that are remembered for one tenant are not used for the other, although both
// launch the same kernel.
TEST_F(KnownTest, OfTwoTenantsEachHasHabitsOfItsOwn) {
  const Tenant &a = Weighing(1), &b = Weighing(1);
  for (const Tenant* t : {&a, &b}) ASSERT_NO_FATAL_FAILURE(Settle(*t, t->stream));
  const uint64_t of_a = a.gate->stats().launches, of_b = b.gate->stats().launches;
  const double ms_a = MeasuredMs(a), ms_b = MeasuredMs(b);
  for (int i = 0; i < 600; ++i) {
    const Tenant& t = i % 3 == 0 ? b : a;
    CUresult result = CUDA_SUCCESS;
    if (!AtOnce(t, Micros(10), t.stream, &result)) result = Spin(t, Micros(10), t.stream);
    ASSERT_CU(result);
  }
  for (const Tenant* t : {&a, &b}) ASSERT_CU(calls_->CtxSynchronize(t->payer()));
  Rest();
  EXPECT_EQ(a.gate->stats().launches - of_a, 400u);
  EXPECT_EQ(b.gate->stats().launches - of_b, 200u);
  EXPECT_NEAR(MeasuredMs(a) - ms_a, 4, 0.6);
  EXPECT_NEAR(MeasuredMs(b) - ms_b, 2, 0.6);
}

// The credit is in the thread's pocket while it launches alone, and returns to the page when another thread launches.
// Whichever way a launch is paid for, the books count it once and with its real time.
TEST_F(KnownTest, WhoLaunchesAlonePaysFromAPocketUntilAnotherComes) {
  if (!base::HasProcessBarrier()) GTEST_SKIP() << "the kernel has no membarrier()";
  const Tenant& t = Weighing(1);
  const CUstream other = NewStream(t);
  ASSERT_NO_FATAL_FAILURE(Settle(t, t.stream));
  ASSERT_NE(t.gate->PocketHere(), nullptr);
  const uint64_t before = t.gate->stats().launches;
  const double measured = MeasuredMs(t);
  const auto launch = [&](CUstream stream, int times) {
    int at_once = 0;
    for (int i = 0; i < times; ++i) {
      CUresult result = CUDA_SUCCESS;
      if (AtOnce(t, Micros(10), stream, &result)) {
        ++at_once;
      } else {
        result = Spin(t, Micros(10), stream);
      }
      EXPECT_CU(result);
    }
    return at_once;
  };
  EXPECT_GT(launch(t.stream, 500), 300);
  Thread([&] {
    EXPECT_EQ(t.gate->PocketHere(), nullptr);
    launch(other, 50);
  })->Join();
  EXPECT_EQ(t.gate->PocketHere(), nullptr);
  EXPECT_GT(launch(t.stream, 500), 300);
  ASSERT_CU(calls_->CtxSynchronize(t.payer()));
  Rest();
  EXPECT_EQ(t.gate->stats().launches - before, 1050u);
  EXPECT_NEAR(MeasuredMs(t) - measured, 10.5, 0.3);
  EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
}

// Launches of a higher band take the credit out of all pockets at once, repeatedly: each launch is counted once, and
// no credit stays behind.
TEST_F(KnownTest, WhatIsTakenFromSeveralPocketsAtOnceIsThereOnce) {
  if (!base::HasProcessBarrier()) GTEST_SKIP() << "the kernel has no membarrier()";
  constexpr int kLow = 4, kLaunches = 1500;
  std::vector<const Tenant*> low;
  for (int i = 0; i < kLow; ++i) low.push_back(&Weighing(1));
  const Tenant& high = Add({.limits = {.weight = 1, .band = sched::Band::kHigh}});
  std::atomic<int> at_once{0}, running{kLow};
  std::vector<std::unique_ptr<base::ClockThread>> threads;
  for (const Tenant* t : low) {
    threads.push_back(Thread([&, t] {
      for (int i = 0; i < kLaunches; ++i) {
        CUresult result = CUDA_SUCCESS;
        if (AtOnce(*t, Micros(10), t->stream, &result)) {
          ++at_once;
        } else {
          result = Spin(*t, Micros(10), t->stream);
        }
        EXPECT_CU(result);
        if (i % 4 == 3) Rest(Micros(60));
      }
      --running;
    }));
  }
  uint64_t of_high = 0;
  while (running > 0) {
    EXPECT_CU(Spin(high, Micros(20), high.stream));
    EXPECT_CU(calls_->StreamSynchronize(high.payer(), high.stream));
    ++of_high;
    Rest(Micros(300));
  }
  for (const auto& thread : threads) thread->Join();
  ASSERT_CU(calls_->CtxSynchronize(high.payer()));
  Rest();
  EXPECT_GT(at_once, kLow * kLaunches / 4);
  EXPECT_GT(of_high, 50u);
  for (const Tenant* t : low) {
    EXPECT_EQ(t->gate->stats().launches, uint64_t{kLaunches});
    EXPECT_NEAR(MeasuredMs(*t), UsedMs(t->account), 0.02 * UsedMs(t->account));
    EXPECT_EQ(t->gate->view().outstanding, Nanos(0));
  }
  EXPECT_EQ(high.gate->stats().launches, of_high);
}

// A pool's threads come and go: the next thread reuses the pocket of one that ended.
TEST_F(KnownTest, AThreadThatEndsLeavesItsPocket) {
  if (!base::HasProcessBarrier()) GTEST_SKIP() << "the kernel has no membarrier()";
  const Tenant& t = Weighing(1);
  for (int i = 0; i < 3; ++i) {
    std::shared_ptr<gate::Pocket> pocket;
    std::unique_ptr<base::ClockThread> thread = Thread([&] {
      ASSERT_NO_FATAL_FAILURE(Settle(t, t.stream));
      pocket = t.gate->Asked();
      ASSERT_NE(pocket, nullptr);
      EXPECT_EQ(t.gate->PocketHere(), pocket.get());
      EXPECT_FALSE(pocket->IsLeft());
    });
    thread->Join();
    thread.reset();
    ASSERT_NE(pocket, nullptr);
    EXPECT_TRUE(pocket->IsLeft());
    EXPECT_EQ(t.gate->PocketHere(), nullptr);
  }
  ASSERT_CU(calls_->CtxSynchronize(t.payer()));
  Rest();
  EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
}

TEST_F(KnownTest, WhatTheDriverRefusesAtOnceIsGivenBack) {
  const Tenant& t = Weighing(1);
  Settle(t, t.stream);
  const uint64_t before = t.gate->stats().launches;
  const double measured = MeasuredMs(t);
  ASSERT_CU(Spin(t, Micros(10)));  // now there is credit
  char error[128];
  ASSERT_EQ(sim_->inject("error call=cuLaunchKernel code=701", error, sizeof error), 0) << error;
  int at_once = 0;
  for (int i = 0; i < 200; ++i) {
    CUresult result = CUDA_SUCCESS;
    if (AtOnce(t, Micros(10), t.stream, &result)) {
      ++at_once;
      EXPECT_EQ(result, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    } else {
      EXPECT_EQ(Spin(t, Micros(10)), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    }
  }
  ASSERT_EQ(sim_->inject("clear", error, sizeof error), 0) << error;
  EXPECT_GT(at_once, 0);
  ASSERT_CU(calls_->CtxSynchronize(t.payer()));
  Rest();
  EXPECT_EQ(t.gate->stats().launches - before, 1u);
  EXPECT_NEAR(MeasuredMs(t) - measured, 0.010, 0.002);
  EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
}

// A driver that refuses each launch after the books have counted it, and leaves its caller without memory.
struct Refuses {
  explicit Refuses(const driver::Table& driver, gate::Gate* whose)
      : table(const_cast<driver::Table&>(driver)), real(table.LaunchKernel) {
    gate = whose;
    table.LaunchKernel = [](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, CUstream, void**, void**) {
      gate->stats();
      failing.emplace();
      return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    };
  }
  ~Refuses() { table.LaunchKernel = real; }

  driver::Table& table;
  const decltype(driver::Table::LaunchKernel) real;
  static inline gate::Gate* gate = nullptr;
  static inline std::optional<FailingMemory> failing;
};

// The caller is C code, and the answer to a refused launch must be the driver's, even when no memory is left.
TEST_F(KnownTest, WhatTheDriverRefusesAtOnceThrowsNothingWhereNoMemoryIsLeft) {
  const Tenant& t = Weighing(1);
  Settle(t, t.stream);
  const int before = FailingMemory::failed();
  int at_once = 0;
  for (int i = 0; i < 300; ++i) {
    ASSERT_CU(Spin(t, Micros(10)));  // now there is credit
    const Refuses refuses(*cu_, t.gate);
    CUresult result = CUDA_SUCCESS;
    EXPECT_NO_THROW(at_once += AtOnce(t, Micros(10), t.stream, &result) ? 1 : 0);
    Refuses::failing.reset();
    if (result != CUDA_SUCCESS) {
      EXPECT_EQ(result, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    }
  }
  EXPECT_GT(at_once, 100);
  EXPECT_GT(FailingMemory::failed(), before);  // the code did try to allocate
  // The next calls make the books exact again.
  ASSERT_CU(calls_->CtxSynchronize(t.payer()));
  Rest();
  const uint64_t launches = t.gate->stats().launches;
  const double measured = MeasuredMs(t);
  for (int i = 0; i < 100; ++i) ASSERT_CU(Spin(t, Micros(10)));
  ASSERT_CU(calls_->CtxSynchronize(t.payer()));
  Rest();
  EXPECT_EQ(t.gate->stats().launches - launches, 100u);
  EXPECT_NEAR(MeasuredMs(t) - measured, 1, 0.1);
  EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
}

// A thread that asks for a grant and runs out of memory in the middle leaves the queue and takes no credit along.
TEST_F(KnownTest, WhereverMemoryEndsALaunchTheOthersGoOn) {
  int missed = 0;
  for (int nth = 1; nth <= 120; ++nth) {
    // Uses a new engine, whose tables have no room yet.
    TearDown();
    SetUp();
    const Tenant& t = Weighing(1);
    Weighing(1);
    const int before = FailingMemory::failed();
    bool threw = false;
    CUresult result = CUDA_SUCCESS;
    try {
      const FailingMemory failing(nth);
      result = Spin(t, Micros(20));
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    if (threw || result != CUDA_SUCCESS) {
      ++missed;
      EXPECT_GT(FailingMemory::failed(), before);
    }
    const std::unique_ptr<base::ClockThread> next = Thread([&] {
      gate::StreamGate* const stream = *t.gate->AddStream(NewStream(t));
      const gate::Admission admission =
          t.gate->Admit(*stream, {.key = 1}, clock().Now() + Seconds(1));
      EXPECT_EQ(admission.verdict, gate::Verdict::kAdmitted) << nth;
      if (admission.verdict == gate::Verdict::kAdmitted) t.gate->Complete(admission, false);
    });
    next->Join();
    ASSERT_CU(Spin(t, Micros(20)));
    ASSERT_CU(calls_->CtxSynchronize(t.payer()));
    Rest();
    EXPECT_EQ(t.gate->view().outstanding, Nanos(0)) << nth;
  }
  EXPECT_GT(missed, 0);
}

// Memory runs out for the marker before the launch: the program's thread goes on marking the stream.
TEST_F(KnownTest, WhereMemoryEndsAtTheFirstMarkerTheStreamIsMarkedAsEver) {
  const Tenant& t = Weighing(1);
  Settle(t, t.stream);
  int missed = 0;
  for (int i = 0; i < 300; ++i) {
    Rest();  // the next launch asks for a grant on an idle stream
    try {
      const FailingMemory failing;
      ASSERT_CU(Spin(t, Micros(10)));
    } catch (const std::bad_alloc&) {
      ++missed;
    }
    ASSERT_CU(calls_->CtxSynchronize(t.payer()));
    Rest();
    const uint64_t markers = t.gate->stats().markers;
    ASSERT_CU(Spin(t, Micros(10)));
    ASSERT_CU(calls_->CtxSynchronize(t.payer()));
    ASSERT_EQ(t.gate->stats().markers - markers, 2u) << i;
  }
  EXPECT_GT(missed, 0);
  Rest();
  EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
}

// Work that is open on several streams gets its markers in one go. If memory runs out for one of them, the others
// keep theirs, and a call that only waits does not fail.
TEST_F(KnownTest, WhereverMemoryEndsWhatClosesSeveralStreamsNothingStaysOpen) {
  const Tenant& t = Weighing(1);
  const CUstream streams[] = {t.stream, NewStream(t), NewStream(t)};
  for (const CUstream stream : streams) Settle(t, stream);
  const int before = FailingMemory::failed();
  for (int i = 0; i < 200; ++i) {
    for (const CUstream stream : streams) ASSERT_CU(Spin(t, Micros(10), stream));
    {
      const FailingMemory failing(1 + i % 3);
      EXPECT_NO_THROW(ASSERT_CU(calls_->CtxSynchronize(t.payer()))) << i;
    }
    {
      const FailingMemory failing(1 + i % 3);
      EXPECT_NO_THROW(ASSERT_CU(calls_->LaunchHostFunc(
          t.payer(), t.stream, [](void*) {}, nullptr)));
    }
  }
  EXPECT_GT(FailingMemory::failed(), before + 10);
  ASSERT_CU(calls_->CtxSynchronize(t.payer()));
  Rest();
  EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
}

TEST_F(KnownTest, WhereverMemoryEndsALeaseTheOthersGoOn) {
  const Tenant& t = Weighing(1);
  gate::StreamGate* const stream = *t.gate->AddStream(NewStream(t));
  int missed = 0;
  for (int nth = 1; nth <= 20; ++nth) {
    absl::StatusOr<uint64_t> lease = absl::UnavailableError("");
    try {
      const FailingMemory failing(nth);
      lease = t.gate->AcquireLease({.hint = Micros(50), .streams = {stream}});
    } catch (const std::bad_alloc&) {
      ++missed;
    }
    if (lease.ok()) t.gate->ReleaseLease(*lease);
    std::unique_ptr<base::ClockThread> next = Thread([&] {
      const absl::StatusOr<uint64_t> mine =
          t.gate->AcquireLease({.hint = Micros(50), .streams = {stream}});
      ASSERT_TRUE(mine.ok()) << mine.status();
      t.gate->ReleaseLease(*mine);
    });
    next->Join();
  }
  EXPECT_GT(missed, 1);
  Rest();
  EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
}

TEST_F(KnownTest, ACaptureThatBeginsOnAnotherThreadIsSeen) {
  const Tenant& t = Weighing(1);
  Settle(t, t.stream);
  const auto ran = [&] { return Truth(t.account).kernels; };
  const uint64_t before = t.gate->stats().launches, kernels = ran();
  ASSERT_CU(Spin(t, Micros(10)));
  Thread([&] { BeginCapture(t.stream); })->Join();
  CUresult result = CUDA_SUCCESS;
  EXPECT_FALSE(AtOnce(t, Micros(10), t.stream, &result));
  for (int i = 0; i < 20; ++i) ASSERT_CU(Spin(t, Micros(10)));
  Thread([&] { EndCapture(t.stream); })->Join();
  ASSERT_CU(Spin(t, Micros(10)));
  ASSERT_CU(calls_->CtxSynchronize(t.payer()));
  EXPECT_EQ(ran() - kernels, 2u);
  EXPECT_EQ(t.gate->stats().launches - before, 2u);
}

class TwoDevicesTest : public KnownTest {
 protected:
  std::string config() const override { return "sms=100,devices=2,overlap=serial,clock=virtual"; }
};

// A tenant that has a share of one device and is not limited on the other, where nothing is charged.
TEST_F(TwoDevicesTest, ADefaultStreamIsThatOfTheContextThatIsCurrentNow) {
  const Tenant& t = Weighing(1);
  CUcontext there = nullptr, popped = nullptr;
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  ASSERT_CU(cu_->DevicePrimaryCtxRetain(&there, 1));
  ASSERT_CU(cu_->CtxPushCurrent(there));
  ASSERT_CU(cu_->ModuleLoadData(&module, kPtx));
  ASSERT_CU(cu_->ModuleGetFunction(&spin, module, "spin"));
  ASSERT_CU(cu_->CtxPopCurrent(&popped));
  sim_->set_account(nullptr, t.account);
  for (const CUstream stream : {CUstream{nullptr}, CU_STREAM_PER_THREAD}) {
    const uint64_t before = t.gate->stats().launches;
    for (int i = 0; i < 200; ++i) {
      for (int k = 0; k < 3; ++k) ASSERT_CU(Spin(t, Micros(20), stream));
      ASSERT_CU(cu_->CtxPushCurrent(there));  // the layer does not see this call
      CUresult result = CUDA_SUCCESS;
      EXPECT_FALSE(AtOnce(t, Micros(20), stream, &result));
      std::swap(spin, spin_);
      for (int k = 0; k < 2; ++k) ASSERT_CU(Spin(t, Micros(20), stream));
      std::swap(spin, spin_);
      ASSERT_CU(cu_->CtxPopCurrent(&popped));
    }
    ASSERT_CU(calls_->CtxSynchronize(t.payer()));
    EXPECT_EQ(t.gate->stats().launches - before, 600u);
  }
  EXPECT_EQ(t.gate->stats().markers_failed, 0u);
  calls_->ThreadEnds();
  ASSERT_CU(cu_->DevicePrimaryCtxRelease(1));
}

// The module is unloaded, and the address of its function is reused for another one, which takes longer.
TEST_F(KnownTest, AFunctionThatComesBackAsAnotherIsMeasuredAnew) {
  const Tenant& t = Add({.limits = {.cap = 0.5}});
  const auto launch = [&](Nanos cost) {
    uint64_t ns = static_cast<uint64_t>(cost.count());
    void* params[] = {&ns};
    return calls_->LaunchKernel(t.payer(), spin_, 100, 1, 1, 1024, 1, 1, 0, t.stream, params,
                                nullptr);
  };
  for (int i = 0; i < 400; ++i) ASSERT_CU(launch(Micros(20)));
  ASSERT_CU(calls_->CtxSynchronize(t.payer()));
  Rest(Millis(50));
  const double used = UsedMs(t.account), measured = MeasuredMs(t);
  calls_->ModuleEnds();
  const Time began = clock().Now();
  for (int i = 0; i < 400; ++i) ASSERT_CU(launch(Micros(500)));
  ASSERT_CU(calls_->CtxSynchronize(t.payer()));
  // 200 ms at a half, minus the saved-up credit and the launches that pass while the function is taken for the
  // previous one.
  EXPECT_NEAR(Ms(clock().Now() - began), 400, 30);
  Rest();
  EXPECT_NEAR(MeasuredMs(t) - measured, UsedMs(t.account) - used, 0.03 * 200);
}

// ---- Many threads ----

// Threads launch in turn on any stream, while streams and contexts come and go and captures begin and end. A launch
// is charged to its payer if the driver accepted it and did not capture it, and otherwise to nobody.
class RandomTest : public KnownTest, public ::testing::WithParamInterface<int> {
 protected:
  static constexpr int kThreads = 3, kSteps = 600;

  struct Stream {
    CUstream handle;
    CUcontext context;
    bool gone = false, captures = false;
  };

  size_t Any(size_t count) { return random_() % count; }
  // The calling thread has some context current.
  void Step() {
    switch (Any(16)) {
      case 0: {
        CUcontext context = nullptr;
        ASSERT_CU(cu_->CtxGetCurrent(&context));
        streams_.push_back({NewStream(*tenants_[0]), context});
        return;
      }
      case 1: {
        Stream& stream = streams_[Any(streams_.size())];
        if (stream.gone || stream.captures) return;
        ASSERT_CU(calls_->StreamDestroy(stream.handle));
        stream.gone = true;
        return;
      }
      case 2: {
        Stream& stream = streams_[Any(streams_.size())];
        if (stream.gone) return;
        stream.captures ? EndCapture(stream.handle) : BeginCapture(stream.handle);
        stream.captures = !stream.captures;
        return;
      }
      case 3: {
        CUcontext popped = nullptr;
        ASSERT_CU(cu_->CtxPopCurrent(&popped));
        ASSERT_CU(cu_->CtxPushCurrent(contexts_[Any(contexts_.size())]));
        return;
      }
      case 4:
        return calls_->ModuleEnds();
      default:
        return Launch();
    }
  }
  void Launch() {
    const size_t payer = Any(tenants_.size());
    const Nanos cost = Micros(5) * static_cast<int64_t>(1 + Any(3));
    CUcontext context = nullptr;
    ASSERT_CU(cu_->CtxGetCurrent(&context));
    spin_ = functions_[context];
    const size_t pick = Any(streams_.size() + 3);
    if (pick >= streams_.size()) {
      const CUstream defaults[] = {nullptr, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
      ASSERT_CU(Spin(*tenants_[payer], cost, defaults[pick - streams_.size()]));
      ++launched_[payer];
      return;
    }
    const Stream& stream = streams_[pick];
    if (!stream.gone) spin_ = functions_[stream.context];
    const CUresult result = Spin(*tenants_[payer], cost, stream.handle);
    if (stream.gone) {
      EXPECT_NE(result, CUDA_SUCCESS);
      return;
    }
    // The driver may refuse a stream of a context that is not current.
    if (result == CUDA_SUCCESS && !stream.captures) ++launched_[payer];
  }
  void Check() {
    for (size_t i = 0; i < tenants_.size(); ++i) {
      ASSERT_EQ(tenants_[i]->gate->stats().launches, launched_[i]) << "of tenant " << i;
    }
  }

  std::mt19937_64 random_;
  std::vector<Stream> streams_;
  std::vector<CUcontext> contexts_;
  std::map<CUcontext, CUfunction> functions_;
  uint64_t launched_[2] = {};
};

TEST_P(RandomTest, EachLaunchIsChargedToWhoPaysAndToNobodyElse) {
  random_.seed(static_cast<uint64_t>(GetParam()));
  Weighing(1);
  Weighing(1);
  contexts_.push_back(context_);
  functions_[context_] = spin_;
  const CUcontext other = MakeContext();
  CUmodule module = nullptr;
  ASSERT_CU(cu_->ModuleLoadData(&module, kPtx));
  ASSERT_CU(cu_->ModuleGetFunction(&functions_[other], module, "spin"));
  contexts_.push_back(other);
  CUcontext popped = nullptr;
  ASSERT_CU(cu_->CtxPopCurrent(&popped));
  streams_.push_back({tenants_[0]->stream, context_});
  streams_.push_back({tenants_[1]->stream, context_});

  std::atomic<int> turn{-1};  // the thread whose step it is; -1: the main thread
  std::atomic<bool> over{false};
  std::vector<std::unique_ptr<base::ClockThread>> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(Thread([&, i] {
      while (!over) {
        if (turn != i) {
          clock().SleepUntil(In(Micros(2)));
          continue;
        }
        Step();
        turn = -1;
      }
      calls_->ThreadEnds();  // while the thread is still registered with the clock
    }));
  }
  for (int step = 0; step < kSteps && !HasFailure(); ++step) {
    turn = static_cast<int>(Any(kThreads));
    while (turn >= 0) clock().SleepUntil(In(Micros(2)));
    if (step % 20 == 0) Check();
  }
  over = true;
  for (const auto& thread : threads) thread->Join();
  for (Stream& stream : streams_) {
    if (stream.captures) EndCapture(stream.handle);
  }
  for (const CUcontext context : contexts_) {
    ASSERT_CU(cu_->CtxPushCurrent(context));
    ASSERT_CU(calls_->CtxSynchronize(tenants_[0]->payer()));
    ASSERT_CU(calls_->CtxSynchronize(tenants_[1]->payer()));
    ASSERT_CU(cu_->CtxPopCurrent(&popped));
  }
  Rest();
  Check();
  EXPECT_GT(launched_[0] + launched_[1], kSteps / 4u);
  for (const auto& tenant : tenants_) {
    EXPECT_EQ(tenant->gate->view().outstanding, Nanos(0));
    EXPECT_EQ(tenant->gate->stats().markers_failed, 0u) << tenant->gate->stats().driver_error;
  }
  ASSERT_CU(calls_->ContextEnds(other, [&] { return cu_->CtxDestroy(other); }));
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomTest, ::testing::Range(1, 9));

}  // namespace
}  // namespace gpushare::work
