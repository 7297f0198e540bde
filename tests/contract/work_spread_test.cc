// SPDX-License-Identifier: Apache-2.0
// Graphs with kernels on two GPUs, through the layer `work`: held and charged on each GPU.
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "tests/contract/failing_memory.h"
#include "tests/contract/work_devices_bed.h"

namespace gpushare::work {
namespace {

class SpreadTest : public TwoGpusTest {
 protected:
  // A graph with one kernel on each GPU, of the given lengths, which run concurrently or one after the other. The
  // first GPU's stream captures, or with `turned` the second's.
  CUgraph Capture(const Tenant& t, Nanos here, Nanos there, bool one_after_other = false,
                  bool turned = false) {
    CUcontext popped = nullptr;
    const CUstream origin = turned ? streams_.at(&t) : t.stream;
    const CUstream joins = turned ? t.stream : streams_.at(&t);
    const CUcontext of_origin = turned ? other_ : context_, of_joins = turned ? context_ : other_;
    CUevent fork = nullptr, join = nullptr;
    EXPECT_CU(cu_->CtxPushCurrent(of_origin));
    EXPECT_CU(cu_->EventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    EXPECT_CU(cu_->CtxPopCurrent(&popped));
    EXPECT_CU(cu_->CtxPushCurrent(of_joins));
    EXPECT_CU(cu_->EventCreate(&join, CU_EVENT_DISABLE_TIMING));
    EXPECT_CU(cu_->CtxPopCurrent(&popped));
    EXPECT_CU(calls_->StreamBeginCapture(
        origin, [&] { return cu_->StreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED); }));
    const Nanos of_own = turned ? there : here;
    if (one_after_other) {
      EXPECT_CU(SpinOn(t, origin, of_own));
    }
    EXPECT_CU(cu_->EventRecord(fork, origin));
    EXPECT_CU(calls_->StreamWaitEvent(t.payer(), joins, fork, 0));
    EXPECT_CU(SpinOn(t, joins, turned ? here : there));
    if (!one_after_other) {
      EXPECT_CU(SpinOn(t, origin, of_own));
    }
    EXPECT_CU(cu_->EventRecord(join, joins));
    EXPECT_CU(calls_->StreamWaitEvent(t.payer(), origin, join, 0));
    CUgraph graph = nullptr;
    EXPECT_CU(calls_->StreamEndCapture(origin, &graph));
    cu_->EventDestroy(fork);
    cu_->EventDestroy(join);
    return graph;
  }
  CUresult SpinOn(const Tenant& t, CUstream stream, Nanos cost) {
    uint64_t ns = static_cast<uint64_t>(cost.count());
    void* params[] = {&ns};
    return calls_->LaunchKernel(t.payer(), stream == t.stream ? spin_ : other_spin_, 100, 1, 1,
                                1024, 1, 1, 0, stream, params, nullptr);
  }
  CUgraphExec Instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_CU(calls_->GraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
  }
  void Await(const Tenant& t) {
    ASSERT_CU(calls_->StreamSynchronize(t.payer(), t.stream));
    ASSERT_CU(calls_->StreamSynchronize(t.payer(), streams_.at(&t)));
    Rest();
  }
  double UsedThere(const Tenant& t) const {
    gpushare_sim_truth truth{};
    EXPECT_EQ(sim_->account_truth(1, t.account, &truth), 0);
    return truth.used_ns * 1e-6;
  }
  static double MeasuredThere(const Tenant& t) { return Ms(There(t)->stats().measured); }
};

TEST_F(SpreadTest, EachGpuIsChargedOnceForItsPart) {
  const Tenant& t = AddOnBoth({}, {});
  const CUgraphExec exec = Instantiate(Capture(t, Millis(1), Millis(1)));
  for (int i = 0; i < 50; ++i) ASSERT_CU(calls_->GraphLaunch(t.payer(), exec, t.stream));
  Await(t);
  EXPECT_NEAR(UsedMs(t.account), 50, 0.1);  // the kernels ran on the GPUs of their functions
  EXPECT_NEAR(UsedThere(t), 50, 0.1);
  for (gate::Gate* const gate : {t.gate, There(t)}) {
    EXPECT_EQ(gate->stats().graph_launches, 50u);
    EXPECT_NEAR(Ms(gate->stats().measured), 50, 1.5);
    EXPECT_EQ(gate->view().outstanding, Nanos(0));
  }
}

// Like a gang: the graph is charged on both GPUs for the whole time, since it keeps either GPU waiting.
TEST_F(SpreadTest, EachGpuIsChargedForAsLongAsTheGraphRuns) {
  const Tenant& t = AddOnBoth({}, {});
  const CUgraphExec exec = Instantiate(Capture(t, Millis(1), Millis(2), /*one_after_other=*/true));
  for (int i = 0; i < 30; ++i) ASSERT_CU(calls_->GraphLaunch(t.payer(), exec, t.stream));
  Await(t);
  EXPECT_NEAR(MeasuredMs(t), 90, 2);
  EXPECT_NEAR(MeasuredThere(t), 90, 2);
}

// Work before the graph on its own stream is not charged on the other GPU.
TEST_F(SpreadTest, WhatComesBeforeItIsChargedThereToNobody) {
  const Tenant& t = AddOnBoth({}, {});
  const CUgraphExec exec = Instantiate(Capture(t, Millis(1), Millis(1)));
  for (int i = 0; i < 30; ++i) {
    ASSERT_CU(Spin(t, Millis(9)));
    ASSERT_CU(calls_->GraphLaunch(t.payer(), exec, t.stream));
  }
  Await(t);
  EXPECT_NEAR(MeasuredMs(t), 300, 6);
  EXPECT_NEAR(MeasuredThere(t), 30, 1.5);
}

TEST_F(SpreadTest, ACapOfEitherGpuHoldsIt) {
  for (const bool second : {false, true}) {
    const gate::TenantOptions free, capped = {.limits = {.cap = 0.25}};
    const Tenant& t = AddOnBoth(second ? free : capped, second ? capped : free);
    for (const bool turned : {false, true}) {
      ASSERT_CU(cu_->CtxPushCurrent(turned ? other_ : context_));
      const CUgraphExec exec = Instantiate(Capture(t, Millis(1), Millis(1), false, turned));
      const CUstream stream = turned ? streams_.at(&t) : t.stream;
      const Time began = clock().Now();
      for (int i = 0; i < 50; ++i) ASSERT_CU(calls_->GraphLaunch(t.payer(), exec, stream));
      Await(t);
      CUcontext popped = nullptr;
      ASSERT_CU(cu_->CtxPopCurrent(&popped));
      // 50 ms at a quarter, minus the saved-up credit.
      EXPECT_NEAR(Ms(clock().Now() - began), 195, 20) << second << turned;
    }
  }
}

TEST_F(SpreadTest, ItIsHeldByEitherGpu) {
  const Tenant& t = AddOnBoth({}, {});
  const CUgraphExec exec = Instantiate(Capture(t, Micros(100), Micros(100)));
  ASSERT_CU(calls_->GraphLaunch(t.payer(), exec, t.stream));
  for (gate::Gate* const gate : {t.gate, There(t)}) {
    Await(t);
    gate->Suspend();
    bool done = false;
    const auto thread = Thread([&] {
      ASSERT_CU(calls_->GraphLaunch(t.payer(), exec, t.stream));
      done = true;
    });
    Rest();
    EXPECT_FALSE(done);
    gate->Resume();
    thread->Join();
  }
  Await(t);
  EXPECT_EQ(t.gate->stats().launches, 3u);
  EXPECT_EQ(There(t)->stats().launches, 3u);
}

// The program numbers the GPUs in the other order. The order of acquisition is by UUID all the same, in all
// processes.
class SpreadOrderTest : public SpreadTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    ASSERT_NE(
        OpenedOnce(),
        nullptr);  // before the second GPU exists, which the first configuration does not have
    if (GetParam()) setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
    SpreadTest::SetUp();
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
};

TEST_P(SpreadOrderTest, GpusAreAskedInTheOrderOfTheirUuids) {
  const Tenant& t = AddOnBoth({}, {});
  const CUgraphExec exec = Instantiate(Capture(t, Micros(100), Micros(100)));
  ASSERT_CU(calls_->GraphLaunch(t.payer(), exec, t.stream));
  gate::Gate* const first = GetParam() ? There(t) : t.gate;
  gate::Gate* const second = GetParam() ? t.gate : There(t);
  uint64_t launches = 1;
  for (gate::Gate* const held : {first, second}) {
    Await(t);
    held->Suspend();
    const auto thread = Thread([&] { ASSERT_CU(calls_->GraphLaunch(t.payer(), exec, t.stream)); });
    Rest();
    EXPECT_EQ(first->stats().launches, held == first ? launches : launches + 1);
    EXPECT_EQ(second->stats().launches, launches);
    held->Resume();
    thread->Join();
    ++launches;
  }
  Await(t);
}

INSTANTIATE_TEST_SUITE_P(Counted, SpreadOrderTest, ::testing::Bool());

TEST_F(SpreadTest, AKernelInAChildIsSeen) {
  const Tenant& t = AddOnBoth({}, {});
  const CUgraph child = Capture(t, Micros(100), Micros(100));
  auto* const create =
      reinterpret_cast<CUresult (*)(CUgraph*, unsigned)>(driver_->Symbol("cuGraphCreate"));
  auto* const add =
      reinterpret_cast<CUresult (*)(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUgraph)>(
          driver_->Symbol("cuGraphAddChildGraphNode"));
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  ASSERT_CU(create(&graph, 0));
  ASSERT_CU(add(&node, graph, nullptr, 0, child));
  const CUgraphExec exec = Instantiate(graph);
  for (int i = 0; i < 10; ++i) ASSERT_CU(calls_->GraphLaunch(t.payer(), exec, t.stream));
  Await(t);
  EXPECT_NEAR(UsedThere(t), 1, 0.01);
  EXPECT_EQ(There(t)->stats().launches, 10u);
}

TEST_F(SpreadTest, WhatTheDriverRefusesCostsNothing) {
  const Tenant& t = AddOnBoth({}, {});
  const CUgraphExec exec = Instantiate(Capture(t, Millis(1), Millis(1)));
  // An executable must be launched on the device where it was instantiated.
  EXPECT_NE(calls_->GraphLaunch(t.payer(), exec, streams_.at(&t)), CUDA_SUCCESS);
  Rest();
  EXPECT_EQ(t.gate->stats().launches + There(t)->stats().launches, 0u);
  EXPECT_EQ(t.gate->view().outstanding + There(t)->view().outstanding, Nanos(0));
  ASSERT_CU(calls_->GraphExecDestroy(exec));
  EXPECT_NE(calls_->GraphLaunch(t.payer(), exec, t.stream), CUDA_SUCCESS);
}

// A tenant keeps its share of the second GPU beside work of another tenant.
TEST_F(SpreadTest, SharesHoldThereBesideOthersWork) {
  const Tenant &a = AddOnBoth({}, {}), &b = AddOnBoth({}, {.limits = {.weight = 3}});
  const CUgraphExec exec = Instantiate(Capture(a, Micros(200), Micros(200)));
  const Time end = In(Millis(800));
  std::vector<std::unique_ptr<base::ClockThread>> threads;
  threads.push_back(Thread([&] {
    while (clock().Now() < end) ASSERT_CU(calls_->GraphLaunch(a.payer(), exec, a.stream));
  }));
  threads.push_back(Thread([&] {
    while (clock().Now() < end) ASSERT_CU(SpinOn(b, streams_.at(&b), Micros(100)));
  }));
  clock().SleepUntil(end - Millis(600));
  const double used_a = UsedThere(a), used_b = UsedThere(b);
  clock().SleepUntil(end);
  const double of_a = UsedThere(a) - used_a, of_b = UsedThere(b) - used_b;
  for (const auto& thread : threads) thread->Join();
  EXPECT_NEAR(100 * of_a / (of_a + of_b), 25, 4);
}

// Two tenants that reach the GPUs in different orders do not deadlock.
TEST_F(SpreadTest, TwoThatLaunchOverBothGoOn) {
  const Tenant &a = AddOnBoth({}, {}), &b = AddOnBoth({}, {});
  const CUgraphExec of_a = Instantiate(Capture(a, Micros(100), Micros(100)));
  ASSERT_CU(cu_->CtxPushCurrent(other_));
  const CUgraphExec of_b = Instantiate(Capture(b, Micros(100), Micros(100), false, true));
  CUcontext popped = nullptr;
  ASSERT_CU(cu_->CtxPopCurrent(&popped));
  int done = 0;
  std::vector<std::unique_ptr<base::ClockThread>> threads;
  for (const bool first : {true, false}) {
    threads.push_back(Thread([&, first] {
      for (int i = 0; i < 200; ++i) {
        ASSERT_CU(first ? calls_->GraphLaunch(a.payer(), of_a, a.stream)
                        : calls_->GraphLaunch(b.payer(), of_b, streams_.at(&b)));
      }
      ++done;
    }));
  }
  for (const auto& thread : threads) thread->Join();
  EXPECT_EQ(done, 2);
}

TEST_F(SpreadTest, WhereverMemoryEndsALaunchTheOthersGoOn) {
  int missed = 0;
  for (int nth = 1, reached = 1; reached > 0; ++nth) {
    TearDown();
    SetUp();
    const Tenant &t = AddOnBoth({}, {}), &other = AddOnBoth({}, {});
    const CUgraph graph = Capture(t, Micros(20), Micros(20));
    const CUgraphExec others = Instantiate(Capture(other, Micros(20), Micros(20)));
    const int before = FailingMemory::failed();
    CUgraphExec exec = nullptr;
    try {
      const FailingMemory failing(nth);
      static_cast<void>(calls_->GraphInstantiateWithFlags(&exec, graph, 0));
      static_cast<void>(calls_->GraphLaunch(t.payer(), exec, t.stream));
    } catch (const std::bad_alloc&) {
      ++missed;
    }
    reached = FailingMemory::failed() - before;
    ASSERT_NE(exec, nullptr) << nth;
    const Time began = clock().Now();
    ASSERT_CU(calls_->GraphLaunch(other.payer(), others, other.stream));
    ASSERT_CU(calls_->GraphLaunch(t.payer(), exec, t.stream));
    EXPECT_LT(Ms(clock().Now() - began), 5) << nth;
    Await(t);
    Await(other);
    for (const Tenant* tenant : {&t, &other}) {
      EXPECT_EQ(tenant->gate->view().outstanding, Nanos(0)) << nth;
      EXPECT_EQ(There(*tenant)->view().outstanding, Nanos(0)) << nth;
    }
  }
  EXPECT_GT(missed, 0);
}

// The streams that stand for graphs on the other GPU end with its context, and are created again.
TEST_F(SpreadTest, TheOtherGpusContextMayEnd) {
  const Tenant& t = AddOnBoth({}, {});
  const CUgraphExec exec = Instantiate(Capture(t, Micros(100), Micros(100)));
  ASSERT_CU(calls_->GraphLaunch(t.payer(), exec, t.stream));
  ASSERT_CU(calls_->GraphLaunch(t.payer(), exec, t.stream));
  ASSERT_CU(
      calls_->PrimaryContextEnds(t.payer(), 1, [&] { return cu_->DevicePrimaryCtxReset(1); }));
  ASSERT_CU(cu_->StreamSynchronize(t.stream));
  EXPECT_NE(calls_->GraphLaunch(t.payer(), exec, t.stream),
            CUDA_SUCCESS);  // the kernel's function is gone
  Rest();
  ASSERT_CU(Spin(t, Micros(100)));
  ASSERT_CU(cu_->StreamSynchronize(t.stream));
  ASSERT_CU(cu_->DevicePrimaryCtxRetain(&other_, 1));
}

}  // namespace
}  // namespace gpushare::work
