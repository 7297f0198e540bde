// SPDX-License-Identifier: Apache-2.0
// Graphs built by hand: nodes, edges, instantiation, launches.
#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

using GraphTest = SimTest;

TEST_F(GraphTest, BranchesOverlapAndJoin) {
  const CUgraph graph = NewGraph();
  const CUgraphNode root = AddSpin(graph, {}, 10'000, 50);
  const CUgraphNode left = AddSpin(graph, {root}, 20'000, 50);
  const CUgraphNode right = AddSpin(graph, {root}, 30'000, 50);
  AddSpin(graph, {left, right}, 5'000, 50);
  const CUstream a = NewStream();
  const CUgraphExec exec = Make(graph);
  const uint64_t start = Now();
  ASSERT_CU(cuGraphLaunch(exec, a));
  ASSERT_CU(Spin(a, 1'000, 10));
  EXPECT_EQ(DoneAt(a, start), 46'000u);
  EXPECT_EQ(Truth(0).kernels, 5u);
}

TEST_F(GraphTest, LaunchesOfOneExecutableFollowEachOther) {
  const CUgraph graph = NewGraph();
  AddSpin(graph, {}, 10'000, 10);
  const CUgraphExec exec = Make(graph);
  const CUstream a = NewStream(), b = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(cuGraphLaunch(exec, a));
  ASSERT_CU(cuGraphLaunch(exec, b));
  EXPECT_EQ(DoneAt(b, start), 20'000u);
}

TEST_F(GraphTest, NodesRunOnTheAccountAndPriorityOfTheStream) {
  const CUgraph graph = NewGraph();
  AddSpin(graph, {}, 10'000, 100);
  const CUgraphExec exec = Make(graph);
  const CUstream low = NewStream(), blocker = NewStream(), high = NewStream(-5);
  ASSERT_EQ(0, gpushare_sim_set_account(high, 9));
  const uint64_t start = Now();
  ASSERT_CU(Spin(blocker, 10'000, 100));
  ASSERT_CU(Spin(low, 10'000, 100));
  ASSERT_CU(cuGraphLaunch(exec, high));
  EXPECT_EQ(Truth(9).queued, 1u);
  EXPECT_EQ(DoneAt(high, start), 20'000u);
  EXPECT_DOUBLE_EQ(Truth(9).used_ns, 10'000);
}

TEST_F(GraphTest, AnExecutableKeepsWhatItWasMadeFrom) {
  const CUgraph graph = NewGraph();
  const CUgraphNode node = AddSpin(graph, {}, 10'000, 10);
  const CUgraphExec exec = Make(graph);
  uint64_t ns = 50'000;
  void* values[] = {&ns};
  CUDA_KERNEL_NODE_PARAMS parameters{};
  ASSERT_CU(cuGraphKernelNodeGetParams(node, &parameters));
  EXPECT_EQ(*static_cast<uint64_t*>(parameters.kernelParams[0]), 10'000u);
  parameters.kernelParams = values;
  ASSERT_CU(cuGraphKernelNodeSetParams(node, &parameters));
  const CUstream a = NewStream();
  uint64_t start = Now();
  ASSERT_CU(cuGraphLaunch(exec, a));
  EXPECT_EQ(DoneAt(a, start), 10'000u);
  ASSERT_CU(cuGraphExecKernelNodeSetParams(exec, node, &parameters));
  start = Now();
  ASSERT_CU(cuGraphLaunch(exec, a));
  EXPECT_EQ(DoneAt(a, start), 50'000u);
  ASSERT_CU(cuGraphDestroy(graph));
  start = Now();
  ASSERT_CU(cuGraphLaunch(exec, a));
  EXPECT_EQ(DoneAt(a, start), 50'000u);
}

TEST_F(GraphTest, ChildGraphsAreInlined) {
  const CUgraph child = NewGraph(), graph = NewGraph();
  const CUgraphNode c0 = AddSpin(child, {}, 10'000, 10);
  AddSpin(child, {c0}, 10'000, 10);
  AddSpin(child, {}, 15'000, 10);
  const CUgraphNode before = AddSpin(graph, {}, 1'000, 10);
  CUgraphNode node = nullptr, empty = nullptr, after_empty = nullptr;
  ASSERT_CU(cuGraphAddChildGraphNode(&node, graph, &before, 1, child));
  const CUgraph none = NewGraph();
  ASSERT_CU(cuGraphAddChildGraphNode(&empty, graph, &node, 1, none));
  ASSERT_CU(cuGraphAddEmptyNode(&after_empty, graph, &empty, 1));
  AddSpin(graph, {after_empty}, 1'000, 10);
  ASSERT_CU(cuGraphDestroy(child));
  const CUstream a = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(cuGraphLaunch(Make(graph), a));
  EXPECT_EQ(DoneAt(a, start), 22'000u);
  CUgraphNodeType type;
  EXPECT_CU(cuGraphNodeGetType(node, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_GRAPH);
}

TEST_F(GraphTest, EventNodesReachOutsideTheGraph) {
  const CUgraph graph = NewGraph();
  const CUevent done = NewEvent();
  const CUgraphNode first = AddSpin(graph, {}, 10'000, 10);
  CUgraphNode record = nullptr;
  ASSERT_CU(cuGraphAddEventRecordNode(&record, graph, &first, 1, done));
  AddSpin(graph, {record}, 10'000, 10);
  const CUstream a = NewStream(), b = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(cuGraphLaunch(Make(graph), a));
  ASSERT_CU(cuStreamWaitEvent(b, done, 0));
  ASSERT_CU(Spin(b, 1'000, 10));
  EXPECT_EQ(DoneAt(b, start), 11'000u);
  EXPECT_EQ(DoneAt(a, start), 20'000u);
}

TEST_F(GraphTest, AnEmptyGraphCompletesAtOnce) {
  const CUstream a = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(cuGraphLaunch(Make(NewGraph()), a));
  EXPECT_EQ(DoneAt(a, start), 0u);
}

TEST_F(GraphTest, NonsenseIsRefused) {
  const CUgraph graph = NewGraph(), other = NewGraph();
  const CUgraphNode node = AddSpin(graph, {}, 10, 1), second = AddSpin(graph, {node}, 10, 1);
  CUgraphNode out = nullptr;
  EXPECT_EQ(cuGraphAddEmptyNode(&out, other, &node, 1), CUDA_ERROR_INVALID_VALUE);
  const CUgraphNode twice[] = {node, node};
  EXPECT_EQ(cuGraphAddEmptyNode(&out, graph, twice, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphAddEmptyNode(&out, nullptr, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphAddKernelNode(&out, graph, nullptr, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  size_t count = 0;
  EXPECT_CU(cuGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(count, 2u);  // nothing was half added
  // Instantiation detects a cycle.
  ASSERT_CU(cuGraphAddDependencies_v2(graph, &second, &node, nullptr, 1));
  CUgraphExec exec;
  EXPECT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphLaunch(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuGraphDestroyNode(second));
  EXPECT_EQ(cuGraphDestroyNode(second), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuGraphInstantiate(&exec, graph, 0));
  ASSERT_CU(cuGraphDestroy(graph));
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphDestroyNode(node), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(GraphTest, AnExecutableMayGoWhileItRuns) {
  const CUgraph graph = NewGraph();
  const CUgraphNode first = AddSpin(graph, {}, 10'000, 10);
  AddSpin(graph, {first}, 10'000, 10);
  const CUstream a = NewStream();
  const CUgraphExec exec = Make(graph);
  const uint64_t start = Now();
  ASSERT_CU(cuGraphLaunch(exec, a));
  ASSERT_CU(cuGraphExecDestroy(exec));
  EXPECT_EQ(DoneAt(a, start), 20'000u);
}

TEST_F(GraphTest, AModuleUnderAGraphMayGo) {
  CUmodule module;
  CUfunction function;
  ASSERT_CU(cuModuleLoadData(&module, kPtx));
  ASSERT_CU(cuModuleGetFunction(&function, module, "spin"));
  const CUfunction mine = spin_;
  spin_ = function;
  const CUgraph graph = NewGraph();
  AddSpin(graph, {}, 10'000, 10);
  spin_ = mine;
  const CUgraphExec exec = Make(graph);
  ASSERT_CU(cuModuleUnload(module));
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_ERROR_INVALID_HANDLE);
  CUgraph clone;
  EXPECT_CU(cuGraphClone(&clone, graph));
}

}  // namespace
}  // namespace gpushare::sim_test
