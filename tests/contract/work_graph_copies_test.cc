// SPDX-License-Identifier: Apache-2.0
// Copies between graphs and the host, through the layer `work`: counted and limited like copies without a graph.
#include <memory>
#include <new>
#include <vector>

#include "tests/contract/failing_memory.h"
#include "tests/contract/work_bed.h"

namespace gpushare::work {
namespace {

constexpr size_t kLength = 10'000'000;

class GraphCopyTest : public WorkTest {
 protected:
  void SetUp() override {
    WorkTest::SetUp();
    host_.resize(2 * kLength);
    ASSERT_CU(cu_->MemAlloc(&device_, 2 * kLength));
  }
  Tenant& Limited() { return Add({.limits = {}, .h2d_bytes_per_s = 1e9, .d2h_bytes_per_s = 1e9}); }
  // A graph that copies `up` bytes to the device and `down` bytes back, the latter in halves.
  CUgraph Capture(const Tenant& t, size_t up, size_t down) {
    CUgraph graph = nullptr;
    EXPECT_CU(calls_->StreamBeginCapture(t.stream, [&] {
      return cu_->StreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    }));
    if (up > 0) {
      EXPECT_CU(calls_->MemcpyHtoDAsync(t.payer(), device_, host_.data(), up, t.stream));
    }
    if (down > 0) {
      EXPECT_CU(calls_->MemcpyDtoHAsync(t.payer(), host_.data(), device_, down, t.stream));
    }
    EXPECT_CU(calls_->StreamEndCapture(t.stream, &graph));
    return graph;
  }
  CUgraphExec Instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_CU(calls_->GraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
  }
  CUgraph NewGraph() {
    CUgraph graph = nullptr;
    EXPECT_CU((Symbol<CUresult(CUgraph*, unsigned)>("cuGraphCreate")(&graph, 0)));
    return graph;
  }
  CUgraphNode AddCopy(CUgraph graph, const CUDA_MEMCPY3D& copy) {
    CUgraphNode node = nullptr;
    EXPECT_CU((Symbol<CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                               const CUDA_MEMCPY3D*, CUcontext)>("cuGraphAddMemcpyNode")(
        &node, graph, nullptr, 0, &copy, context_)));
    return node;
  }
  CUgraphNode OnlyNode(CUgraph graph) {
    size_t count = 1;
    CUgraphNode node = nullptr;
    EXPECT_CU(cu_->GraphGetNodes(graph, &node, &count));
    EXPECT_EQ(count, 1u);
    return node;
  }
  CUDA_MEMCPY3D Up(size_t bytes) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = host_.data();
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = device_;
    copy.WidthInBytes = bytes;
    copy.Height = copy.Depth = 1;
    return copy;
  }
  // Expects that one more launch counts as `up` and `down`, which are also the bytes that the simulated GPU moves.
  void ExpectEach(const Tenant& t, CUgraphExec exec, uint64_t up, uint64_t down) {
    const auto before = t.gate->stats();
    const gpushare_sim_truth was = Truth(t.account);
    ASSERT_CU(calls_->GraphLaunch(t.payer(), exec, t.stream));
    ASSERT_CU(calls_->CtxSynchronize(t.payer()));
    const auto after = t.gate->stats();
    const gpushare_sim_truth truth = Truth(t.account);
    EXPECT_EQ(truth.h2d_bytes - was.h2d_bytes, up);
    EXPECT_EQ(truth.d2h_bytes - was.d2h_bytes, down);
    EXPECT_EQ(after.copy_bytes[0] - before.copy_bytes[0], up);
    EXPECT_EQ(after.copy_bytes[1] - before.copy_bytes[1], down);
    EXPECT_EQ(after.graph_launches - before.graph_launches, 1u);
  }

  std::vector<char> host_;
  CUdeviceptr device_ = 0;
};

TEST_F(GraphCopyTest, TheLimitsHoldForWhatAGraphCopies) {
  const Tenant& t = Limited();
  const CUgraphExec up = Instantiate(Capture(t, kLength, 0));
  const CUgraphExec both = Instantiate(Capture(t, kLength / 2, kLength));
  EXPECT_EQ(t.gate->stats().copy_bytes[0], 0u);  // capturing moves nothing
  for (const CUgraphExec exec : {up, both}) {
    Rest(Millis(200));
    const Time began = clock().Now();
    for (int i = 0; i < 20; ++i) ASSERT_CU(calls_->GraphLaunch(t.payer(), exec, t.stream));
    // 200 MB at 1 GB/s, minus 10 MB of saved-up credit, and the last launch is a debt.
    EXPECT_NEAR(Ms(clock().Now() - began), 185, 8);
  }
  ASSERT_CU(calls_->CtxSynchronize(t.payer()));
  ExpectEach(t, both, kLength / 2, kLength);
}

TEST_F(GraphCopyTest, ALaunchThatTheDriverRefusesIsNotCharged) {
  const Tenant& t = Limited();
  const CUgraphExec exec = Instantiate(Capture(t, kLength, kLength));
  const Time began = clock().Now();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(
        calls_->GraphLaunchBy(t.payer(), exec, t.stream, [] { return CUDA_ERROR_INVALID_VALUE; }),
        CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_LT(Ms(clock().Now() - began), 1);
  EXPECT_EQ(t.gate->stats().copy_bytes[0] + t.gate->stats().copy_bytes[1], 0u);
}

TEST_F(GraphCopyTest, WhatIsCapturedIntoAnotherGraphCountsWhenThatIsLaunched) {
  const Tenant& t = Limited();
  const auto add_child =
      Symbol<CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUgraph)>(
          "cuGraphAddChildGraphNode");
  const CUgraph outer = NewGraph(), outermost = NewGraph();
  CUgraphNode inner_node = nullptr, outer_node = nullptr;
  ASSERT_CU(add_child(&inner_node, outer, nullptr, 0, Capture(t, 5000, 700)));
  ASSERT_CU(add_child(&outer_node, outermost, nullptr, 0, outer));
  const CUgraphExec exec = Instantiate(outermost);
  ExpectEach(t, exec, 5000, 700);
  // The child graph is updated to match another graph.
  const CUgraph other = NewGraph();
  ASSERT_CU(add_child(&inner_node, other, nullptr, 0, Capture(t, 40, 3)));
  const auto change =
      Symbol<CUresult(CUgraphExec, CUgraphNode, CUgraph)>("cuGraphExecChildGraphNodeSetParams");
  ASSERT_CU(change(exec, outer_node, other));
  calls_->GraphChildChanged(exec, outer_node, other);
  ExpectEach(t, exec, 40, 3);
}

TEST_F(GraphCopyTest, WhatChangesInAnExecutableCountsAsItIs) {
  const Tenant& t = Limited();
  const auto set = Symbol<CUresult(CUgraphExec, CUgraphNode, const CUDA_MEMCPY3D*, CUcontext)>(
      "cuGraphExecMemcpyNodeSetParams");
  const auto enable = Symbol<CUresult(CUgraphExec, CUgraphNode, unsigned)>("cuGraphNodeSetEnabled");
  const auto update =
      Symbol<CUresult(CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo*)>("cuGraphExecUpdate_v2");
  const CUgraph graph = NewGraph(), other = NewGraph();
  CUDA_MEMCPY3D copy = Up(1000);
  const CUgraphNode first = AddCopy(graph, copy), second = AddCopy(graph, copy);
  const CUgraphExec exec = Instantiate(graph);
  ExpectEach(t, exec, 2000, 0);
  copy = Up(kLength);
  for (int i = 0; i < 2; ++i) {  // a second update does not count twice
    ASSERT_CU(set(exec, first, &copy, context_));
    calls_->GraphCopyChanged(exec, first, copy);
  }
  ExpectEach(t, exec, kLength + 1000, 0);
  ASSERT_CU(enable(exec, first, 0));
  calls_->GraphNodeEnabled(exec, first, false);
  ExpectEach(t, exec, 1000, 0);
  ASSERT_CU(enable(exec, first, 1));
  calls_->GraphNodeEnabled(exec, first, true);
  // Updates the whole executable by a graph with the same nodes, and then one node by its original handle.
  copy = Up(30);
  AddCopy(other, copy);
  AddCopy(other, copy);
  CUgraphExecUpdateResultInfo info{};
  ASSERT_CU(update(exec, other, &info));
  calls_->GraphUpdated(exec, other);
  ExpectEach(t, exec, 60, 0);
  copy = Up(7);
  ASSERT_CU(set(exec, second, &copy, context_));
  calls_->GraphCopyChanged(exec, second, copy);
  ExpectEach(t, exec, 37, 0);
  ASSERT_CU(calls_->GraphExecDestroy(exec));
}

TEST_F(GraphCopyTest, BoxesArraysAndMappedMemoryCountByWhereTheyLie) {
  const Tenant& t = Limited();
  const auto allocate = Symbol<CUresult(void**, size_t, unsigned)>("cuMemHostAlloc");
  const auto map = Symbol<CUresult(CUdeviceptr*, void*, unsigned)>("cuMemHostGetDevicePointer_v2");
  void* pinned = nullptr;
  CUdeviceptr mapped = 0;
  ASSERT_CU(allocate(&pinned, kLength, CU_MEMHOSTALLOC_DEVICEMAP));
  ASSERT_CU(map(&mapped, pinned, 0));
  CUarray array = nullptr;
  CUDA_ARRAY_DESCRIPTOR shape{
      .Width = 100, .Height = 50, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
  ASSERT_CU(cu_->ArrayCreate(&array, &shape));
  const auto launch = [&](const CUDA_MEMCPY3D& copy, uint64_t up, uint64_t down) {
    const CUgraph graph = NewGraph();
    AddCopy(graph, copy);
    ExpectEach(t, Instantiate(graph), up, down);
  };
  CUDA_MEMCPY3D box = Up(100);  // 30 rows in each of two slices
  box.Height = 30, box.Depth = 2, box.srcPitch = box.dstPitch = 128;
  box.srcHeight = box.dstHeight = 40;
  launch(box, 6000, 0);
  CUDA_MEMCPY3D unified = Up(100);
  unified.srcMemoryType = unified.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  unified.srcDevice = reinterpret_cast<CUdeviceptr>(host_.data());
  launch(unified, 100, 0);
  CUDA_MEMCPY3D within = Up(100);
  within.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  within.srcDevice = device_ + 1000;
  launch(within, 0, 0);
  within.srcDevice = mapped;
  launch(within, 100, 0);
  CUDA_MEMCPY3D down{};
  down.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  down.srcArray = array;
  down.srcXInBytes = 10, down.srcY = 5;
  down.dstMemoryType = CU_MEMORYTYPE_HOST;
  down.dstHost = host_.data();
  down.WidthInBytes = 20, down.Height = 4, down.Depth = 1;
  launch(down, 0, 80);
}

// A budget for all tenants together that never ends.
class Endless : public gate::CopySupply {
 public:
  bool LimitsCopies(gate::CopyDirection) const override { return true; }
  gate::CopyState Copies(gate::CopyDirection, Time) override { return gate::CopyState::kOpen; }
  void ChargeCopy(gate::CopyDirection, int64_t) override {}
  Time AwaitCopies(gate::CopyDirection, Time) override { return kNever; }
  void NobodyAwaitsCopies(gate::CopyDirection) override {}
};

class GraphCopyMemoryTest : public GraphCopyTest {
  gate::EngineOptions options() const override {
    gate::EngineOptions options = GraphCopyTest::options();
    options.copy_supply = std::make_shared<Endless>();
    return options;
  }
};

// Memory runs out while the copies stand in the lines of their family and of the GPU, or after they were admitted and before the
// driver is called.
TEST_F(GraphCopyMemoryTest, WhereverMemoryEndsALaunchItsCopiesAreNotCharged) {
  int missed = 0;
  for (int nth = 1; nth <= 40; ++nth) {
    TearDown();
    SetUp();
    const Tenant& parent = Limited();
    const auto child = [&] {
      Tenant& t = Weighing(1);
      engine_->RemoveTenant(t.gate);
      t.gates.on[0] = t.gate = *engine_->AddTenant("child", {}, nullptr, parent.gate);
      return &t;
    };
    const Tenant &t = *child(), &sibling = *child();
    const CUgraphExec exec = Instantiate(Capture(t, kLength, kLength));
    bool called = false;
    try {
      const FailingMemory failing(nth);
      EXPECT_CU(calls_->GraphLaunchBy(t.payer(), exec, t.stream, [&] {
        called = true;
        return CUDA_SUCCESS;
      }));
    } catch (const std::bad_alloc&) {
      ++missed;
    }
    const uint64_t bytes = t.gate->stats().copy_bytes[0] + t.gate->stats().copy_bytes[1];
    EXPECT_EQ(bytes, called ? 2 * kLength : 0u) << nth;
    // Nothing of it is left in the lines before its siblings.
    const Time began = clock().Now();
    for (const CUgraphExec again : {exec, exec}) {
      ASSERT_CU(calls_->GraphLaunch(sibling.payer(), again, sibling.stream));
    }
    // Each moves 10 MB at 1 GB/s each way; 10 MB were saved up.
    EXPECT_LT(Ms(clock().Now() - began), called ? 21 : 11) << nth;
    ASSERT_CU(calls_->CtxSynchronize(sibling.payer()));
  }
  EXPECT_GT(missed, 2);
}

// As where memory ends: a thread may be unwound by what nobody here knows, as when it is cancelled.
TEST_F(GraphCopyMemoryTest, AThreadThatIsUnwoundInALaunchIsNotChargedForItsCopies) {
  struct Unwound {};
  const Tenant& t = Limited();
  const CUgraphExec exec = Instantiate(Capture(t, kLength, kLength));
  EXPECT_THROW(static_cast<void>(calls_->GraphLaunchBy(t.payer(), exec, t.stream,
                                                       []() -> CUresult { throw Unwound(); })),
               Unwound);
  EXPECT_EQ(t.gate->stats().copy_bytes[0] + t.gate->stats().copy_bytes[1], 0u);
}

// The parameters read back from a copy node are those it was made with, whichever call made it.
TEST_F(GraphCopyTest, TheSimulatedGpuSaysWhatANodeCopies) {
  const Tenant& t = Weighing(1);
  CUDA_MEMCPY3D copy{};
  ASSERT_CU(cu_->GraphMemcpyNodeGetParams(OnlyNode(Capture(t, 100, 0)), &copy));
  EXPECT_EQ(copy.srcMemoryType, CU_MEMORYTYPE_HOST);
  EXPECT_EQ(copy.srcHost, host_.data());
  EXPECT_EQ(copy.dstMemoryType, CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(copy.dstDevice, device_);
  EXPECT_EQ(copy.WidthInBytes * copy.Height * copy.Depth, 100u);
  EXPECT_EQ(cu_->GraphMemcpyNodeGetParams(nullptr, &copy), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace gpushare::work
