// SPDX-License-Identifier: Apache-2.0
// Graphs through the layer `work`.
#include <vector>

#include "tests/contract/work_bed.h"

namespace gpushare::work {
namespace {

class GraphTest : public WorkTest {
 protected:
  // A graph of `kernels` kernels of `cost` each, which `tenant` captures through the layer.
  CUgraph Capture(const Tenant& tenant, int kernels, Nanos cost) {
    CUgraph graph = nullptr;
    EXPECT_CU(calls_->StreamBeginCapture(tenant.stream, [&] {
      return cu_->StreamBeginCapture(tenant.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    }));
    for (int i = 0; i < kernels; ++i) EXPECT_CU(Spin(tenant, cost));
    EXPECT_CU(calls_->StreamEndCapture(tenant.stream, &graph));
    return graph;
  }
  CUgraphExec Instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_CU(calls_->GraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
  }
  std::vector<CUgraphNode> Nodes(CUgraph graph) {
    size_t count = 0;
    EXPECT_CU(cu_->GraphGetNodes(graph, nullptr, &count));
    std::vector<CUgraphNode> nodes(count);
    EXPECT_CU(cu_->GraphGetNodes(graph, nodes.data(), &count));
    return nodes;
  }
  // Makes the node's kernel run for `cost` from the next launch on.
  void SetCost(CUgraphExec exec, CUgraphNode node, Nanos cost, float at_least = 1) {
    SetCostUnseen(exec, node, cost);
    calls_->GraphChanged(exec, at_least);
  }
  void SetCostUnseen(CUgraphExec exec, CUgraphNode node, Nanos cost) {
    auto* const set =
        reinterpret_cast<CUresult (*)(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*)>(
            driver_->Symbol("cuGraphExecKernelNodeSetParams_v2"));
    uint64_t ns = static_cast<uint64_t>(cost.count());
    void* params[] = {&ns};
    CUDA_KERNEL_NODE_PARAMS kernel{};
    kernel.func = spin_;
    kernel.gridDimX = 100;
    kernel.gridDimY = kernel.gridDimZ = kernel.blockDimY = kernel.blockDimZ = 1;
    kernel.blockDimX = 1024;
    kernel.kernelParams = params;
    ASSERT_CU(set(exec, node, &kernel));
  }
  void ExpectMeasured(const Tenant& tenant, double part) {
    ASSERT_CU(calls_->CtxSynchronize(tenant.payer()));
    Rest();
    EXPECT_NEAR(MeasuredMs(tenant), UsedMs(tenant.account), part * UsedMs(tenant.account));
  }
};

TEST_F(GraphTest, WhatIsCapturedIsNeitherHeldNorChargedNorMarked) {
  const Tenant &t = Weighing(1), &other = Weighing(1);
  t.gate->Suspend();  // a launch that the gate held would not return
  const uint64_t records = CallsOf("cuEventRecord");
  const CUgraph graph = Capture(t, 30, Micros(10));
  EXPECT_EQ(CallsOf("cuEventRecord"), records);
  EXPECT_EQ(Nodes(graph).size(), 30u);
  EXPECT_EQ(t.gate->stats().launches, 0u);
  t.gate->Resume();
  // Other tenants launch meanwhile and get their markers, without invalidating the capture.
  ASSERT_CU(calls_->StreamBeginCapture(
      t.stream, [&] { return cu_->StreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_GLOBAL); }));
  for (int i = 0; i < 200; ++i) {
    ASSERT_CU(Spin(other, Micros(50)));
    ASSERT_CU(Spin(t, Micros(10)));
  }
  CUgraph second = nullptr;
  ASSERT_CU(calls_->StreamEndCapture(t.stream, &second));
  EXPECT_EQ(Nodes(second).size(), 200u);
  EXPECT_EQ(t.gate->stats().launches, 0u);
  ExpectMeasured(other, 0.02);
}

// The per-thread stream is one handle for many streams: each thread's capture ends separately.
TEST_F(GraphTest, CapturesOfSeveralThreadsAreToldApart) {
  const Tenant& t = Weighing(1);
  t.gate->Suspend();  // a launch that the gate held would not return
  const auto capture = [&](Nanos begin, Nanos end, Nanos launch) {
    return Thread([&, from = In(begin), to = In(end), at = In(launch)] {
      const CUstream mine = CU_STREAM_PER_THREAD;
      clock().SleepUntil(from);
      ASSERT_CU(calls_->StreamBeginCapture(
          mine, [&] { return cu_->StreamBeginCapture(mine, CU_STREAM_CAPTURE_MODE_RELAXED); }));
      clock().SleepUntil(at);
      ASSERT_CU(Spin(t, Micros(10), mine));
      clock().SleepUntil(to);
      CUgraph graph = nullptr;
      ASSERT_CU(calls_->StreamEndCapture(mine, &graph));
      EXPECT_EQ(Nodes(graph).size(), 1u);
    });
  };
  const auto first = capture(Millis(0), Millis(2), Millis(1));
  const auto second = capture(Millis(1), Millis(5), Millis(4));
  clock().SleepUntil(In(Millis(10)));
  EXPECT_EQ(t.gate->stats().launches, 0u);
  t.gate->Resume();
  first->Join();
  second->Join();
  EXPECT_EQ(t.gate->stats().launches, 0u);
}

TEST_F(GraphTest, OneExecutableOnSeveralStreamsIsMeasured) {
  const Tenant& t = Weighing(1);
  const CUgraphExec exec = Instantiate(Capture(t, 10, Micros(20)));
  const CUstream other = NewStream(t);
  for (int i = 0; i < 100; ++i) {
    ASSERT_CU(calls_->GraphLaunch(t.payer(), exec, i % 2 == 0 ? t.stream : other));
    ASSERT_CU(Spin(t, Micros(30)));
  }
  ExpectMeasured(t, 0.03);
  EXPECT_EQ(t.gate->stats().graph_launches, 100u);
  EXPECT_EQ(t.gate->stats().launches, 200u);
}

TEST_F(GraphTest, OneFromBeforeAnyTenantAndItsChildrenAreCharged) {
  CUstream stream = nullptr;
  ASSERT_CU(cu_->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  Tenant nobody;
  nobody.stream = stream;
  const CUgraph child = Capture(nobody, 5, Micros(20));
  auto* const create =
      reinterpret_cast<CUresult (*)(CUgraph*, unsigned)>(driver_->Symbol("cuGraphCreate"));
  auto* const add =
      reinterpret_cast<CUresult (*)(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUgraph)>(
          driver_->Symbol("cuGraphAddChildGraphNode"));
  CUgraph graph = nullptr;
  ASSERT_CU(create(&graph, 0));
  CUgraphNode first = nullptr, second = nullptr;
  ASSERT_CU(add(&first, graph, nullptr, 0, child));
  ASSERT_CU(add(&second, graph, &first, 1, child));
  const CUgraphExec exec = Instantiate(graph);
  const Tenant& t = Weighing(1);
  for (int i = 0; i < 100; ++i) ASSERT_CU(calls_->GraphLaunch(t.payer(), exec, t.stream));
  ExpectMeasured(t, 0.03);
  EXPECT_EQ(Truth(t.account).kernels, 1000u);
  EXPECT_EQ(t.gate->stats().launches, 100u);
}

TEST_F(GraphTest, ThePredictionFollowsAChange) {
  const Tenant& t = Weighing(1);
  const Tenant& other = Weighing(1);  // predictions only matter when there is another tenant
  const CUgraph graph = Capture(t, 1, Micros(40));
  const CUgraphExec exec = Instantiate(graph);
  const CUgraphNode node = Nodes(graph)[0];
  static_cast<void>(other);
  for (const int us : {40, 400, 60, 2000, 30}) {
    SetCost(exec, node, Micros(us));
    // Two launches settle the prediction; from then on the charge before a launch equals the measured time.
    for (int i = 0; i < 3; ++i) ASSERT_CU(calls_->GraphLaunch(t.payer(), exec, t.stream));
    ASSERT_CU(calls_->CtxSynchronize(t.payer()));
    Rest();
    const Nanos before = t.gate->stats().predicted;
    for (int i = 0; i < 20; ++i) ASSERT_CU(calls_->GraphLaunch(t.payer(), exec, t.stream));
    ASSERT_CU(calls_->CtxSynchronize(t.payer()));
    Rest();
    EXPECT_NEAR(Ms(t.gate->stats().predicted - before), 20e-3 * us, 0.12 * 20e-3 * us) << us;
  }
  ExpectMeasured(t, 0.03);
}

TEST_F(GraphTest, SharesHoldWithGraphsAndCooperativeLaunches) {
  const Tenant &a = Weighing(3), &b = Weighing(1);
  const CUgraphExec exec = Instantiate(Capture(b, 1, Micros(300)));
  uint64_t ns = 200'000;
  void* params[] = {&ns};
  int turn = 0, changes = 0;
  const std::vector<double> shares =
      Shares(Millis(1300), {[&] {
                              if (++turn % 20 != 0) return Spin(a, Micros(50));
                              return calls_->LaunchCooperativeKernel(
                                  a.payer(), spin_, 100, 1, 1, 1024, 1, 1, 0, a.stream, params);
                            },
                            [&] {
                              if (++changes % 100 == 0) calls_->GraphChanged(exec);
                              return calls_->GraphLaunch(b.payer(), exec, b.stream);
                            }});
  EXPECT_NEAR(shares[0], 75, 1.5);
  EXPECT_GT(busy_percent_, 93);
}

// The kernels take turns: a graph is one command to the gate, and ten or four commands to the device.
TEST_F(GraphTest, SharesHoldBetweenGraphsOfSeveralKernels) {
  const Tenant &a = Weighing(3), &b = Weighing(1);
  const CUgraphExec short_ones = Instantiate(Capture(a, 10, Micros(14)));
  const CUgraphExec long_ones = Instantiate(Capture(b, 8, Micros(100)));
  const std::vector<double> shares =
      Shares(Millis(1300), {[&] { return calls_->GraphLaunch(a.payer(), short_ones, a.stream); },
                            [&] { return calls_->GraphLaunch(b.payer(), long_ones, b.stream); }});
  EXPECT_NEAR(shares[0], 75, 2);
  EXPECT_GT(busy_percent_, 97);
}

// Graphs whose kernels leave SMs to others. While both tenants run, each is charged for the part of the device that
// it holds.
class OverlappingGraphTest : public GraphTest {
 protected:
  std::string config() const override {
    return "sms=100,overlap=footprint,clock=virtual,memory=4GiB,h2d=10GB/s,d2h=10GB/s,d2d=100GB/s";
  }
  struct Kernels {
    int number;
    unsigned sms;
    Nanos cost;
  };
  CUresult LaunchOf(const Tenant& tenant, unsigned sms, Nanos cost) {
    uint64_t ns = static_cast<uint64_t>(cost.count());
    void* params[] = {&ns};
    return calls_->LaunchKernel(tenant.payer(), spin_, sms, 1, 1, 1024, 1, 1, 0, tenant.stream,
                                params, nullptr);
  }
  CUgraphExec OfKernels(const Tenant& tenant, const std::vector<Kernels>& all) {
    CUgraph graph = nullptr;
    EXPECT_CU(calls_->StreamBeginCapture(tenant.stream, [&] {
      return cu_->StreamBeginCapture(tenant.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    }));
    for (const Kernels& some : all) {
      for (int i = 0; i < some.number; ++i) EXPECT_CU(LaunchOf(tenant, some.sms, some.cost));
    }
    EXPECT_CU(calls_->StreamEndCapture(tenant.stream, &graph));
    graphs_.push_back(graph);
    return Instantiate(graph);
  }

  // The shares of single kernels of one tenant beside the other tenant's graph.
  std::vector<double> SharesOf(const Tenant& a, Nanos kernel, const Tenant& b, CUgraphExec exec) {
    return Shares(Millis(1300), {[&] { return Spin(a, kernel); },
                                 [&] { return calls_->GraphLaunch(b.payer(), exec, b.stream); }});
  }

  std::vector<CUgraph> graphs_;
};

TEST_F(OverlappingGraphTest, SharesHoldBesideKernelsOfTheWholeDevice) {
  const Tenant &a = Weighing(3), &b = Weighing(2);
  const CUgraphExec exec = OfKernels(b, {{5, 20, Micros(60)}});
  const std::vector<double> shares = SharesOf(a, Micros(200), b, exec);
  EXPECT_NEAR(shares[0], 60, 2.5);
  EXPECT_GT(busy_percent_, 97);
}

// A graph whose kernels were made wider after its instantiation is charged as a wide one.
TEST_F(OverlappingGraphTest, KernelsThatAreMadeWiderAreChargedAsThat) {
  const Tenant &a = Weighing(1), &b = Weighing(1);
  const CUgraphExec exec = OfKernels(b, {{4, 1, Micros(60)}});
  EXPECT_NEAR(calls_->KernelFootprint({spin_, {{30, 1, 1}, {1024, 1, 1}, 0}}), 0.3, 0.001);
  calls_->GraphChanged(exec, 0);  // a change to the same parameters keeps the width
  for (const CUgraphNode node : Nodes(graphs_.back())) {
    SetCost(exec, node, Micros(60),
            calls_->KernelFootprint({spin_, {{100, 1, 1}, {1024, 1, 1}, 0}}));
  }
  const std::vector<double> shares = SharesOf(a, Micros(200), b, exec);
  EXPECT_NEAR(shares[0], 50, 2.5);
}

TEST_F(OverlappingGraphTest, WhatAnUpdateSaysNothingOfCountsAsTheWholeDevice) {
  const Tenant &a = Weighing(1), &b = Weighing(1);
  const CUgraphExec exec = OfKernels(b, {{4, 1, Micros(60)}});
  for (const CUgraphNode node : Nodes(graphs_.back())) SetCost(exec, node, Micros(60));
  const std::vector<double> shares = SharesOf(a, Micros(200), b, exec);
  EXPECT_NEAR(shares[0], 50, 2.5);
}

// The kernels have similar widths and very different lengths. The lengths are known since the kernels were launched
// singly before.
TEST_F(OverlappingGraphTest, SharesHoldForKernelsOfUnlikeLengthThatRanBefore) {
  const Tenant &a = Weighing(1), &b = Weighing(1);
  std::vector<Kernels> all;
  unsigned sms = 45;
  for (const int us : {10, 20, 300, 40, 5, 100, 15, 10}) all.push_back({1, ++sms, Micros(us)});
  for (int i = 0; i < 4; ++i) {
    for (const Kernels& kernel : all) ASSERT_CU(LaunchOf(b, kernel.sms, kernel.cost));
  }
  ASSERT_CU(calls_->CtxSynchronize(b.payer()));
  const CUgraphExec exec = OfKernels(b, all);
  const std::vector<double> shares =
      Shares(Millis(1300), {[&] { return LaunchOf(a, 55, Micros(150)); },
                            [&] { return calls_->GraphLaunch(b.payer(), exec, b.stream); }});
  EXPECT_NEAR(shares[0], 50, 2);
}

// Other tenants use the SMs that the last waves leave free, and are charged for that use alone.
TEST_F(OverlappingGraphTest, SharesHoldForKernelsOfSeveralWaves) {
  const Tenant &a = Weighing(3), &b = Weighing(2);
  const CUgraphExec exec = OfKernels(b, {{1, 250, Micros(80)}, {2, 230, Micros(70)}});
  const std::vector<double> shares =
      Shares(Millis(1300), {[&] { return LaunchOf(a, 25, Micros(70)); },
                            [&] { return calls_->GraphLaunch(b.payer(), exec, b.stream); }});
  EXPECT_NEAR(shares[0], 60, 2);
}

TEST_F(OverlappingGraphTest, SharesHoldBetweenTwoOfDifferentWidth) {
  const Tenant &a = Weighing(1), &b = Weighing(1);
  const CUgraphExec narrow = OfKernels(a, {{4, 30, Micros(60)}}),
                    wide = OfKernels(b, {{6, 85, Micros(40)}});
  const std::vector<double> shares =
      Shares(Millis(1300), {[&] { return calls_->GraphLaunch(a.payer(), narrow, a.stream); },
                            [&] { return calls_->GraphLaunch(b.payer(), wide, b.stream); }});
  EXPECT_NEAR(shares[0], 50, 2.5);
  EXPECT_GT(busy_percent_, 97);
}

// Most kernels of the graph are narrow and short, and one fills the device for a long time.
TEST_F(OverlappingGraphTest, ACapHoldsForOneOfUnlikeKernels) {
  gate::TenantOptions capped;
  capped.limits.cap = 0.2;
  const Tenant &a = Weighing(1), &b = Add(capped);
  const CUgraphExec exec = OfKernels(b, {{1, 100, Millis(5)}, {500, 1, Micros(1)}});
  const std::vector<double> shares = SharesOf(a, Micros(200), b, exec);
  EXPECT_LE(shares[1], 22);
  EXPECT_GE(shares[1], 16);
}

// Kernels with one block more than there are SMs, and the last block has nothing to do: they hold the whole device
// all the time.
TEST_F(OverlappingGraphTest, ACapHoldsForOneOfWavesWithAnEmptyTail) {
  gate::TenantOptions capped;
  capped.limits.cap = 0.2;
  const Tenant &a = Weighing(1), &b = Add(capped);
  const CUgraphExec exec = OfKernels(b, {{4, 101, Micros(100)}});
  // Sets the cost of 100 blocks without telling the layer.
  for (const CUgraphNode node : Nodes(graphs_.back())) SetCostUnseen(exec, node, Micros(100));
  const std::vector<double> shares = SharesOf(a, Micros(200), b, exec);
  EXPECT_LE(shares[1], 22);
  EXPECT_GE(shares[1], 16);
}

// A capped tenant's kernels have one block more than there are SMs and take 0.1 and 3 ms in turns, beside another
// tenant's graph. Their lateness is their own and not caused by the graph.
TEST_F(OverlappingGraphTest, ACapHoldsForKernelsThatVaryBesideAGraph) {
  gate::TenantOptions capped;
  capped.limits.cap = 0.2;
  const Tenant &a = Weighing(1), &b = Add(capped);
  const CUgraphExec exec = OfKernels(a, {{4, 40, Micros(60)}});
  int turn = 0;
  const std::vector<double> shares = Shares(
      Millis(1300), {[&] { return calls_->GraphLaunch(a.payer(), exec, a.stream); },
                     [&] { return LaunchOf(b, 101, ++turn % 2 == 0 ? Micros(100) : Millis(3)); }});
  EXPECT_LE(shares[1], 22);
}

// Likewise for kernels that are late too seldom to count as varying.
TEST_F(OverlappingGraphTest, ACapHoldsForKernelsThatAreSeldomLateBesideAGraph) {
  gate::TenantOptions capped;
  capped.limits.cap = 0.2;
  const Tenant &a = Weighing(1), &b = Add(capped);
  const CUgraphExec exec = OfKernels(a, {{3, 45, Micros(60)}});
  int turn = 0;
  const std::vector<double> shares =
      Shares(Millis(1300), {[&] { return calls_->GraphLaunch(a.payer(), exec, a.stream); },
                            [&] { return LaunchOf(b, 100, Micros(++turn % 5 == 0 ? 250 : 100)); }});
  EXPECT_LE(shares[1], 21.3);  // 22.9 when a tenth of its time was attributed to the graph
  EXPECT_GE(shares[1], 18);
}

TEST_F(OverlappingGraphTest, SharesHoldForOneOfUnlikeKernels) {
  const Tenant &a = Weighing(1), &b = Weighing(1);
  std::vector<Kernels> all;
  for (int i = 0; i < 8; ++i) {
    all.push_back({5, 10, Micros(5)});
    all.push_back({1, 100, Micros(100)});
  }
  const CUgraphExec exec = OfKernels(b, all);
  const std::vector<double> shares = SharesOf(a, Micros(50), b, exec);
  EXPECT_NEAR(shares[1], 50, 3);
}

// The time of a kernel may depend on data, which no call reveals.
TEST_F(GraphTest, OneThatComesToTakeLongerIsChargedForThat) {
  const Tenant &a = Weighing(1), &b = Weighing(1);
  const CUgraph graph = Capture(b, 4, Micros(15));
  const CUgraphExec exec = Instantiate(graph);
  int launches = 0;
  const std::vector<double> shares =
      Shares(Millis(4000), {[&] { return Spin(a, Micros(200)); },
                            [&] {
                              if (++launches == 60) {
                                for (const CUgraphNode node : Nodes(graph)) {
                                  SetCostUnseen(exec, node, Millis(2));
                                }
                              }
                              return calls_->GraphLaunch(b.payer(), exec, b.stream);
                            }});
  // The change falls into the first quarter, which is not counted.
  EXPECT_NEAR(shares[1], 50, 6);
}

TEST_F(GraphTest, ABadExecutableIsTheDriversMatter) {
  const Tenant& t = Weighing(1);
  EXPECT_EQ(calls_->GraphLaunch(t.payer(), nullptr, t.stream), cu_->GraphLaunch(nullptr, t.stream));
  Rest();
  EXPECT_EQ(t.gate->stats().launches, 0u);
}

}  // namespace
}  // namespace gpushare::work
