// SPDX-License-Identifier: Apache-2.0
// Changes of executable graphs: whole updates, single nodes, disabled nodes, and launches in captures.
#include <cstring>

#include "tests/sim/sim_test.h"

// The headers of CUDA 13 declare only the newest versions.
extern "C" CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                                 CUgraphExecUpdateResultInfo* info);

namespace gpushare::sim_test {
namespace {

class GraphUpdateTest : public SimTest {
 protected:
  static CUgraphNode AddChild(CUgraph graph, std::vector<CUgraphNode> dependencies, CUgraph child) {
    CUgraphNode node = nullptr;
    EXPECT_CU(
        cuGraphAddChildGraphNode(&node, graph, dependencies.data(), dependencies.size(), child));
    return node;
  }
  static CUDA_MEMSET_NODE_PARAMS SetParams(CUdeviceptr to, unsigned value, size_t width,
                                           size_t height = 1, size_t pitch = 0) {
    CUDA_MEMSET_NODE_PARAMS set{};
    set.dst = to;
    set.value = value;
    set.elementSize = 1;
    set.width = width;
    set.height = height;
    set.pitch = pitch;
    return set;
  }
  CUgraphNode AddSet(CUgraph graph, const CUDA_MEMSET_NODE_PARAMS& set) const {
    CUgraphNode node = nullptr;
    EXPECT_CU(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &set, context_));
    return node;
  }
  // The duration of a launch.
  static uint64_t Took(CUgraphExec exec) {
    const uint64_t start = Now();
    EXPECT_CU(cuGraphLaunch(exec, CU_STREAM_PER_THREAD));
    return DoneAt(CU_STREAM_PER_THREAD, start);
  }
  static void ExpectRefused(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResult result,
                            CUgraphNode node, CUgraphNode from = nullptr) {
    CUgraphExecUpdateResultInfo info{};
    EXPECT_EQ(cuGraphExecUpdate_v2(exec, graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT_EQ(info.result, result);
    EXPECT_EQ(info.errorNode, node);
    EXPECT_EQ(info.errorFromNode, from);
  }
};

TEST_F(GraphUpdateTest, AGraphOfTheSameShapeGivesItsParameters) {
  const auto build = [&](uint64_t first, uint64_t second) {
    const CUgraph graph = NewGraph(), child = NewGraph();
    AddSpin(child, {}, second);
    const CUgraphNode before = AddSpin(graph, {}, first);
    AddChild(graph, {before}, child);
    EXPECT_CU(cuGraphDestroy(child));
    return graph;
  };
  const CUgraph graph = build(10'000, 20'000), other = build(1'000, 2'000);
  const CUgraphExec exec = Make(graph);
  EXPECT_EQ(Took(exec), 30'000u);
  // A launch in progress does not change.
  const uint64_t start = Now();
  ASSERT_CU(cuGraphLaunch(exec, CU_STREAM_PER_THREAD));
  CUgraphExecUpdateResultInfo info{CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
  ASSERT_CU(cuGraphExecUpdate_v2(exec, other, &info));
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  EXPECT_EQ(DoneAt(CU_STREAM_PER_THREAD, start), 30'000u);
  EXPECT_EQ(Took(exec), 3'000u);
  ASSERT_CU(cuGraphDestroy(other));
  EXPECT_EQ(Took(exec), 3'000u);
}

TEST_F(GraphUpdateTest, AnotherShapeIsRefusedAndChangesNothing) {
  const CUgraph graph = NewGraph();
  const CUgraphNode first = AddSpin(graph, {}, 10'000), second = AddSpin(graph, {}, 10'000);
  AddSpin(graph, {first, second}, 10'000);
  const CUgraphExec exec = Make(graph);

  const CUgraph fewer = NewGraph();
  AddSpin(fewer, {}, 1);
  ExpectRefused(exec, fewer, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr);

  const CUgraph edges = NewGraph();
  const CUgraphNode e0 = AddSpin(edges, {}, 1);
  AddSpin(edges, {}, 1);
  ExpectRefused(exec, edges, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr);
  const CUgraphNode one = AddSpin(edges, {e0}, 1);
  ExpectRefused(exec, edges, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, one);

  const CUgraph crossed = NewGraph();
  const CUgraphNode c0 = AddSpin(crossed, {}, 1), c1 = AddSpin(crossed, {}, 1);
  const CUgraphNode c2 = AddSpin(crossed, {c1, c0}, 1);
  ExpectRefused(exec, crossed, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, c2, c1);

  const CUgraph types = NewGraph();
  AddSpin(types, {}, 1);
  CUgraphNode empty = nullptr;
  ASSERT_CU(cuGraphAddEmptyNode(&empty, types, nullptr, 0));
  const CUgraphNode both[] = {empty};
  CUgraphNode t0 = nullptr;
  size_t count = 1;
  ASSERT_CU(cuGraphGetRootNodes(types, &t0, &count));
  AddSpin(types, {t0, both[0]}, 1);
  ExpectRefused(exec, types, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, empty);
  EXPECT_EQ(Took(exec), 20'000u);
}

TEST_F(GraphUpdateTest, KernelsKeepTheirContextAndPriority) {
  const CUgraph graph = NewGraph();
  AddSpin(graph, {}, 10'000);
  const CUgraphExec exec = Make(graph);
  const auto captured = [&](int priority) {
    const CUstream stream = NewStream(priority);
    CUgraph result = nullptr;
    EXPECT_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT_CU(Spin(stream, 1'000, 1));
    EXPECT_CU(cuStreamEndCapture(stream, &result));
    return result;
  };
  const auto root = [](CUgraph of) {
    CUgraphNode node = nullptr;
    size_t count = 1;
    EXPECT_CU(cuGraphGetRootNodes(of, &node, &count));
    return node;
  };
  CUgraphExecUpdateResultInfo info{};
  const CUgraph low = captured(0), high = captured(-3);
  EXPECT_CU(cuGraphExecUpdate_v2(exec, high, &info));
  EXPECT_EQ(Took(exec), 1'000u);
  const CUgraphExec prioritized = Make(low, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
  ExpectRefused(prioritized, high, CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED, root(high));
  EXPECT_CU(cuGraphExecUpdate_v2(prioritized, low, &info));
  cuuint64_t flags = 0;
  EXPECT_CU(cuGraphExecGetFlags(prioritized, &flags));
  EXPECT_EQ(flags, static_cast<cuuint64_t>(CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));

  CUcontext other = nullptr;
  ASSERT_CU(cuCtxCreate_v2(&other, 0, device_));
  CUmodule module = nullptr;
  ASSERT_CU(cuModuleLoadData(&module, kPtx));
  const CUfunction mine = spin_;
  ASSERT_CU(cuModuleGetFunction(&spin_, module, "spin"));
  const CUgraph foreign = NewGraph();
  const CUgraphNode node = AddSpin(foreign, {}, 1);
  ExpectRefused(exec, foreign, CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE, node);
  uint64_t ns = 1;
  void* values[] = {&ns};
  const CUDA_KERNEL_NODE_PARAMS parameters = SpinParams(values);
  EXPECT_EQ(cuGraphExecKernelNodeSetParams(exec, root(graph), &parameters),
            CUDA_ERROR_INVALID_VALUE);
  spin_ = mine;
  ASSERT_CU(cuCtxDestroy(other));
}

TEST_F(GraphUpdateTest, SetsAndCopiesKeepTheirKind) {
  CUdeviceptr memory = 0;
  ASSERT_CU(cuMemAlloc(&memory, 4096));
  const CUgraph graph = NewGraph();
  const CUgraphNode line = AddSet(graph, SetParams(memory, 1, 16));
  const CUgraphNode box = AddSet(graph, SetParams(memory + 2048, 1, 16, 4, 32));
  const CUgraphExec exec = Make(graph);
  unsigned char bytes[4096] = {};
  const auto run = [&] {
    EXPECT_CU(cuMemsetD8(memory, 0, 4096));
    EXPECT_CU(cuStreamSynchronize(nullptr));
    EXPECT_CU(cuGraphLaunch(exec, nullptr));
    EXPECT_CU(cuMemcpyDtoH(bytes, memory, 4096));
  };
  CUDA_MEMSET_NODE_PARAMS set = SetParams(memory + 64, 7, 32);
  ASSERT_CU(cuGraphExecMemsetNodeSetParams(exec, line, &set, context_));
  run();
  EXPECT_EQ(bytes[0], 0);
  EXPECT_EQ(bytes[64 + 31], 7);
  EXPECT_EQ(bytes[2048 + 32 * 3], 1);
  set = SetParams(memory, 7, 16, 2, 32);
  EXPECT_EQ(cuGraphExecMemsetNodeSetParams(exec, line, &set, context_), CUDA_ERROR_INVALID_VALUE);
  set = SetParams(memory, 9, 8, 4, 32);
  EXPECT_EQ(cuGraphExecMemsetNodeSetParams(exec, box, &set, context_), CUDA_ERROR_INVALID_VALUE);
  set = SetParams(memory, 9, 16, 4, 32);
  EXPECT_CU(cuGraphExecMemsetNodeSetParams(exec, box, &set, context_));
  run();
  EXPECT_EQ(bytes[32 * 3 + 15], 9);

  std::vector<unsigned char> host(4096, 5);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host.data();
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = memory;
  copy.WidthInBytes = 16;
  copy.Height = copy.Depth = 1;
  const CUgraph copies = NewGraph();
  CUgraphNode node = nullptr;
  ASSERT_CU(cuGraphAddMemcpyNode(&node, copies, nullptr, 0, &copy, context_));
  const CUgraphExec copying = Make(copies);
  copy.dstDevice = memory + 100;
  copy.WidthInBytes = 20;
  ASSERT_CU(cuGraphExecMemcpyNodeSetParams(copying, node, &copy, context_));
  ASSERT_CU(cuMemsetD8(memory, 0, 4096));
  ASSERT_CU(cuGraphLaunch(copying, nullptr));
  ASSERT_CU(cuMemcpyDtoH(bytes, memory, 4096));
  EXPECT_EQ(bytes[0], 0);
  EXPECT_EQ(bytes[119], 5);
  copy.Height = 2;
  EXPECT_EQ(cuGraphExecMemcpyNodeSetParams(copying, node, &copy, context_),
            CUDA_ERROR_INVALID_VALUE);
  copy.Height = 1;
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = memory + 512;
  EXPECT_EQ(cuGraphExecMemcpyNodeSetParams(copying, node, &copy, context_),
            CUDA_ERROR_INVALID_VALUE);
  const CUgraph changed = NewGraph();
  CUgraphNode other = nullptr;
  ASSERT_CU(cuGraphAddMemcpyNode(&other, changed, nullptr, 0, &copy, context_));
  ExpectRefused(copying, changed, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, other);
}

TEST_F(GraphUpdateTest, HostFunctionsEventsAndChildrenChangeOneByOne) {
  const CUgraph graph = NewGraph(), child = NewGraph(), nested = NewGraph();
  int calls[2] = {0, 0};
  const CUhostFn count = [](void* data) { ++*static_cast<int*>(data); };
  CUDA_HOST_NODE_PARAMS host{count, &calls[0]};
  CUgraphNode host_node = nullptr, record = nullptr;
  ASSERT_CU(cuGraphAddHostNode(&host_node, graph, nullptr, 0, &host));
  const CUevent first = NewEvent(), second = NewEvent();
  ASSERT_CU(cuGraphAddEventRecordNode(&record, graph, nullptr, 0, first));
  AddSpin(nested, {}, 10'000);
  AddChild(child, {}, nested);
  const CUgraphNode child_node = AddChild(graph, {}, child);
  const CUgraphExec exec = Make(graph);
  EXPECT_EQ(Took(exec), 10'000u);
  host.userData = &calls[1];
  ASSERT_CU(cuGraphExecHostNodeSetParams(exec, host_node, &host));
  ASSERT_CU(cuGraphExecEventRecordNodeSetEvent(exec, record, second));
  const CUgraph changed = NewGraph(), inner = NewGraph();
  AddSpin(inner, {}, 3'000);
  AddChild(changed, {}, inner);
  ASSERT_CU(cuGraphExecChildGraphNodeSetParams(exec, child_node, changed));
  EXPECT_EQ(Took(exec), 3'000u);
  EXPECT_EQ(calls[0], 1);
  EXPECT_EQ(calls[1], 1);
  float ms = 0;
  EXPECT_CU(cuEventElapsedTime(&ms, first, second));
  AddSpin(changed, {}, 1);
  EXPECT_EQ(cuGraphExecChildGraphNodeSetParams(exec, child_node, changed),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphExecChildGraphNodeSetParams(exec, host_node, changed), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphExecEventWaitNodeSetEvent(exec, record, second), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphExecHostNodeSetParams(exec, host_node, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphExecEventRecordNodeSetEvent(exec, record, nullptr), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(GraphUpdateTest, NodesCanBeSwitchedOff) {
  const CUgraph graph = NewGraph();
  const CUgraphNode first = AddSpin(graph, {}, 10'000), second = AddSpin(graph, {first}, 20'000);
  CUgraphNode empty = nullptr;
  ASSERT_CU(cuGraphAddEmptyNode(&empty, graph, &second, 1));
  const CUgraphExec exec = Make(graph);
  unsigned enabled = 0;
  ASSERT_CU(cuGraphNodeGetEnabled(exec, first, &enabled));
  EXPECT_EQ(enabled, 1u);
  const uint64_t start = Now();
  ASSERT_CU(cuGraphLaunch(exec, CU_STREAM_PER_THREAD));
  ASSERT_CU(cuGraphNodeSetEnabled(exec, first, 0));
  EXPECT_EQ(DoneAt(CU_STREAM_PER_THREAD, start), 30'000u);  // it was launched before the change
  ASSERT_CU(cuGraphNodeGetEnabled(exec, first, &enabled));
  EXPECT_EQ(enabled, 0u);
  EXPECT_EQ(Took(exec), 20'000u);
  ASSERT_CU(cuGraphNodeSetEnabled(exec, first, 5));
  EXPECT_EQ(Took(exec), 30'000u);
  EXPECT_EQ(cuGraphNodeSetEnabled(exec, empty, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphNodeSetEnabled(nullptr, first, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphNodeSetEnabled(exec, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphNodeGetEnabled(exec, first, nullptr), CUDA_ERROR_INVALID_VALUE);
  // A node that was removed from the graph cannot be named any more.
  ASSERT_CU(cuGraphDestroyNode(first));
  EXPECT_EQ(cuGraphNodeSetEnabled(exec, first, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(GraphUpdateTest, ALaunchIntoACaptureBecomesAChildGraph) {
  const CUgraph graph = NewGraph(), child = NewGraph();
  AddSpin(child, {}, 4'000);
  const CUgraphNode first = AddSpin(graph, {}, 10'000), off = AddSpin(graph, {first}, 20'000);
  AddChild(graph, {off}, child);
  const CUgraphExec exec = Make(graph);
  ASSERT_CU(cuGraphNodeSetEnabled(exec, off, 0));
  const CUstream stream = NewStream();
  CUgraph captured = nullptr;
  ASSERT_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  ASSERT_CU(Spin(stream, 1'000, 1));
  ASSERT_CU(cuGraphLaunch(exec, stream));
  ASSERT_CU(Spin(stream, 1'000, 1));
  ASSERT_CU(cuStreamEndCapture(stream, &captured));
  CUgraphNode nodes[3] = {};
  size_t count = 3;
  ASSERT_CU(cuGraphGetNodes(captured, nodes, &count));
  ASSERT_EQ(count, 3u);
  CUgraphNodeType type;
  ASSERT_CU(cuGraphNodeGetType(nodes[1], &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_GRAPH);
  CUgraph inside = nullptr;
  ASSERT_CU(cuGraphChildGraphNodeGetGraph(nodes[1], &inside));
  ASSERT_CU(cuGraphGetNodes(inside, nullptr, &count));
  EXPECT_EQ(count, 3u);
  const CUgraphExec again = Make(captured);
  // Work that was captured from the executable survives it.
  ASSERT_CU(cuGraphExecDestroy(exec));
  ASSERT_CU(cuGraphDestroy(graph));
  EXPECT_EQ(Took(again), 16'000u);
}

TEST_F(GraphUpdateTest, InstantiatingWithParametersSaysHowItWent) {
  const CUgraph graph = NewGraph();
  const CUgraphNode first = AddSpin(graph, {}, 10), second = AddSpin(graph, {first}, 10);
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
  parameters.result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
  parameters.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  CUgraphExec exec = nullptr;
  ASSERT_CU(cuGraphInstantiateWithParams(&exec, graph, &parameters));
  EXPECT_EQ(parameters.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
  EXPECT_EQ(Took(exec), 20u);
  ASSERT_CU(cuGraphAddDependencies_v2(graph, &second, &first, nullptr, 1));
  EXPECT_EQ(cuGraphInstantiateWithParams(&exec, graph, &parameters), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(parameters.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
}

TEST_F(GraphUpdateTest, NonsenseIsRefused) {
  const CUgraph graph = NewGraph();
  AddSpin(graph, {}, 10);
  const CUgraphExec exec = Make(graph);
  CUgraphExecUpdateResultInfo info{};
  EXPECT_EQ(cuGraphExecUpdate_v2(exec, graph, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphExecUpdate_v2(exec, nullptr, &info), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR);
  EXPECT_EQ(cuGraphExecUpdate_v2(nullptr, graph, &info), CUDA_ERROR_INVALID_VALUE);
  char error[128];
  ASSERT_EQ(
      0, gpushare_sim_inject("error call=cuGraphExecUpdate_v2 code=2 nth=1", error, sizeof(error)));
  EXPECT_EQ(cuGraphExecUpdate_v2(exec, graph, &info), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(cuGraphExecUpdate_v2(exec, graph, &info));
}

}  // namespace
}  // namespace gpushare::sim_test
