// SPDX-License-Identifier: Apache-2.0
// Memory nodes: fixed addresses, the memory that the device keeps for graphs, and who may free it how often.
#include <cstring>

#include "tests/sim/sim_test.h"

// The headers of CUDA 13 declare only the newest versions.
extern "C" CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                                 CUgraphExecUpdateResultInfo* info);

namespace gpushare::sim_test {
namespace {

class GraphMemoryTest : public SimTest {
 protected:
  static CUDA_MEM_ALLOC_NODE_PARAMS Params(size_t bytes) {
    CUDA_MEM_ALLOC_NODE_PARAMS parameters;
    std::memset(&parameters, 0, sizeof(parameters));
    parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    parameters.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    parameters.bytesize = bytes;
    return parameters;
  }
  static CUdeviceptr AddAllocation(CUgraph graph, size_t bytes, CUgraphNode* node) {
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = Params(bytes);
    EXPECT_CU(cuGraphAddMemAllocNode(node, graph, nullptr, 0, &parameters));
    return parameters.dptr;
  }
  static CUgraphNode AddFree(CUgraph graph, CUgraphNode after, CUdeviceptr pointer) {
    CUgraphNode node = nullptr;
    EXPECT_CU(cuGraphAddMemFreeNode(&node, graph, &after, after == nullptr ? 0 : 1, pointer));
    return node;
  }
  // Allocates, runs for 10 us, and frees if `frees` is set.
  CUgraph Work(size_t bytes, bool frees, CUdeviceptr* pointer = nullptr) {
    const CUgraph graph = NewGraph();
    CUgraphNode node = nullptr;
    const CUdeviceptr allocated = AddAllocation(graph, bytes, &node);
    if (pointer != nullptr) *pointer = allocated;
    node = AddSpin(graph, {node}, 10'000);
    if (frees) AddFree(graph, node, allocated);
    return graph;
  }
  static uint64_t Get(CUgraphMem_attribute attribute) {
    uint64_t value = 0;
    EXPECT_CU(cuDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
  }
  static uint64_t Reserved() { return Get(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT); }
  static uint64_t Used() { return Get(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT); }
};

TEST_F(GraphMemoryTest, TheFirstLaunchTakesMemoryAndTrimmingGivesItBack) {
  CUdeviceptr pointer = 0;
  const CUgraph graph = Work(kPoolGranule + 1, true, &pointer);
  const CUgraphExec exec = Make(graph);
  EXPECT_EQ(Charged(), 0u);
  const CUstream a = NewStream();
  ASSERT_CU(cuGraphLaunch(exec, a));
  EXPECT_EQ(Charged(), 2 * kPoolGranule);
  EXPECT_EQ(Reserved(), 2 * kPoolGranule);
  EXPECT_EQ(Used(), 2 * kPoolGranule);
  ASSERT_CU(cuDeviceGraphMemTrim(device_));
  EXPECT_EQ(Charged(), 2 * kPoolGranule);  // it runs
  ASSERT_CU(cuStreamSynchronize(a));
  EXPECT_EQ(Charged(), 2 * kPoolGranule);  // kept for the next launch
  ASSERT_CU(cuGraphLaunch(exec, a));
  ASSERT_CU(cuStreamSynchronize(a));
  EXPECT_EQ(Charged(), 2 * kPoolGranule);
  ASSERT_CU(cuDeviceGraphMemTrim(device_));
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(Used(), 0u);
  EXPECT_EQ(Get(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 2 * kPoolGranule);
  EXPECT_EQ(Get(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 2 * kPoolGranule);
  uint64_t zero = 0;
  ASSERT_CU(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
  ASSERT_CU(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
  EXPECT_EQ(Get(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 0u);
  EXPECT_EQ(Get(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 0u);
  // The address stays the same, also in the next launch.
  ASSERT_CU(cuGraphLaunch(exec, a));
  ASSERT_CU(cuStreamSynchronize(a));
  ASSERT_CU(cuGraphExecDestroy(exec));
  EXPECT_EQ(Used(), 0u);
  EXPECT_EQ(Reserved(), 2 * kPoolGranule);
  CUgraphNode node = nullptr;
  size_t count = 1;
  ASSERT_CU(cuGraphGetRootNodes(graph, &node, &count));
  CUDA_MEM_ALLOC_NODE_PARAMS parameters = Params(0);
  ASSERT_CU(cuGraphMemAllocNodeGetParams(node, &parameters));
  EXPECT_EQ(parameters.dptr, pointer);
  EXPECT_EQ(parameters.bytesize, kPoolGranule + 1);
  CUgraphNodeType type;
  ASSERT_CU(cuGraphNodeGetType(node, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
}

TEST_F(GraphMemoryTest, AnUploadTakesItAhead) {
  const CUgraph graph = Work(kMiB, true);
  CUgraphExec exec = Make(graph);
  ASSERT_CU(cuGraphUpload(exec, nullptr));
  EXPECT_EQ(Charged(), kPoolGranule);
  ASSERT_CU(cuDeviceGraphMemTrim(device_));
  EXPECT_EQ(Charged(), 0u);
  ASSERT_CU(cuGraphExecDestroy(exec));
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
  parameters.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  ASSERT_CU(cuGraphInstantiateWithParams(&exec, graph, &parameters));
  EXPECT_EQ(Charged(), kPoolGranule);
}

TEST_F(GraphMemoryTest, GraphsOneAfterTheOtherShareMemory) {
  const CUstream a = NewStream(), b = NewStream();
  const CUgraphExec first = Make(Work(2 * kPoolGranule, true)),
                    second = Make(Work(kPoolGranule, true));
  ASSERT_CU(cuGraphLaunch(first, a));
  ASSERT_CU(cuGraphLaunch(second, a));
  EXPECT_EQ(Reserved(), 2 * kPoolGranule);
  EXPECT_EQ(Used(), 2 * kPoolGranule);
  // On another stream they would run concurrently.
  const CUgraphExec third = Make(Work(kPoolGranule, true));
  ASSERT_CU(cuGraphLaunch(third, b));
  EXPECT_EQ(Reserved(), 3 * kPoolGranule);
  ASSERT_CU(cuCtxSynchronize());
  // A graph at the same place as another running one is moved.
  ASSERT_CU(cuGraphLaunch(first, a));
  ASSERT_CU(cuGraphLaunch(second, b));
  EXPECT_EQ(Reserved(), 3 * kPoolGranule);
  ASSERT_CU(cuCtxSynchronize());
}

TEST_F(GraphMemoryTest, WhatAGraphLeavesIsFreedOutside) {
  CUdeviceptr pointer = 0;
  const CUgraphExec exec = Make(Work(kMiB, false, &pointer));
  const CUstream a = NewStream();
  EXPECT_EQ(cuMemFreeAsync(pointer, a), CUDA_ERROR_INVALID_VALUE);  // not allocated yet
  ASSERT_CU(cuGraphLaunch(exec, a));
  EXPECT_EQ(cuGraphLaunch(exec, a), CUDA_ERROR_INVALID_VALUE);  // would lose the allocation
  ASSERT_CU(cuStreamSynchronize(a));
  ASSERT_CU(cuDeviceGraphMemTrim(device_));
  EXPECT_EQ(Charged(), kPoolGranule);  // allocated
  int32_t value = 7, back = 0;
  ASSERT_CU(cuMemcpyHtoD(pointer, &value, sizeof(value)));
  ASSERT_CU(cuMemcpyDtoH(&back, pointer, sizeof(back)));
  EXPECT_EQ(back, 7);
  ASSERT_CU(Spin(a, 10'000, 1));
  ASSERT_CU(cuMemFreeAsync(pointer, a));
  EXPECT_EQ(cuMemFreeAsync(pointer, a), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuDeviceGraphMemTrim(device_));
  EXPECT_EQ(Charged(), kPoolGranule);  // the free has not run yet
  ASSERT_CU(cuGraphLaunch(exec, a));
  ASSERT_CU(cuStreamSynchronize(a));
  const uint64_t start = Now();
  ASSERT_CU(cuMemFree(pointer));
  EXPECT_EQ(Now(), start);
  EXPECT_EQ(cuMemFree(pointer), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuDeviceGraphMemTrim(device_));
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(GraphMemoryTest, AnotherGraphMayFreeIt) {
  CUdeviceptr pointer = 0;
  const CUgraph owner = Work(kMiB, false, &pointer);
  const CUgraphExec exec = Make(owner);
  const CUgraph freeing = NewGraph();
  const CUgraphNode node = AddFree(freeing, nullptr, pointer);
  CUdeviceptr freed = 0;
  ASSERT_CU(cuGraphMemFreeNodeGetParams(node, &freed));
  EXPECT_EQ(freed, pointer);
  CUgraphNode refused = nullptr;
  EXPECT_EQ(cuGraphAddMemFreeNode(&refused, freeing, nullptr, 0, pointer),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphAddMemFreeNode(&refused, owner, nullptr, 0, pointer), CUDA_ERROR_INVALID_VALUE);
  const CUgraphExec frees = Make(freeing);
  const CUstream a = NewStream();
  EXPECT_EQ(cuGraphLaunch(frees, a), CUDA_ERROR_INVALID_VALUE);
  for (int round = 0; round < 3; ++round) {
    ASSERT_CU(cuGraphLaunch(exec, a));
    ASSERT_CU(cuGraphLaunch(frees, a));
  }
  EXPECT_EQ(cuGraphLaunch(frees, a), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuStreamSynchronize(a));
  EXPECT_EQ(Reserved(), kPoolGranule);
  ASSERT_CU(cuDeviceGraphMemTrim(device_));
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(GraphMemoryTest, AutoFreeLetsItBeLaunchedAgain) {
  CUdeviceptr pointer = 0;
  const CUgraphExec exec =
      Make(Work(kMiB, false, &pointer), CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  const CUstream a = NewStream();
  for (int round = 0; round < 3; ++round) ASSERT_CU(cuGraphLaunch(exec, a));
  ASSERT_CU(cuStreamSynchronize(a));
  EXPECT_EQ(Reserved(), kPoolGranule);
  // The memory of the last one is still there, even without its executable.
  ASSERT_CU(cuGraphExecDestroy(exec));
  ASSERT_CU(cuDeviceGraphMemTrim(device_));
  EXPECT_EQ(Charged(), kPoolGranule);
  ASSERT_CU(cuMemFreeAsync(pointer, a));
  ASSERT_CU(cuDeviceGraphMemTrim(device_));
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(GraphMemoryTest, CapturedAllocationsAreTheGraphs) {
  const CUstream a = NewStream();
  CUmemoryPool pool = nullptr;
  ASSERT_CU(cuDeviceGetDefaultMemPool(&pool, device_));
  CUdeviceptr inner = 0, left = 0, outside = 0;
  ASSERT_CU(cuMemAllocAsync(&outside, kMiB, a));
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(cuMemAllocAsync(&inner, kMiB, a));
  ASSERT_CU(cuMemAllocFromPoolAsync(&left, kMiB, pool, a));
  ASSERT_CU(cuMemsetD8Async(inner, 3, kMiB, a));
  ASSERT_CU(cuMemcpyDtoDAsync(left, inner, kMiB, a));
  ASSERT_CU(cuMemFreeAsync(inner, a));
  EXPECT_EQ(cuMemFreeAsync(inner, a), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFreeAsync(outside, a), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuStreamEndCapture(a, &graph));
  size_t count = 0;
  ASSERT_CU(cuGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(count, 5u);
  uint64_t used = 0;
  ASSERT_CU(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(used, kMiB);  // nothing was taken from the pool
  const CUgraphExec exec = Make(graph);
  ASSERT_CU(cuGraphLaunch(exec, a));
  unsigned char byte = 0;
  ASSERT_CU(cuStreamSynchronize(a));
  ASSERT_CU(cuMemcpyDtoH(&byte, left + kMiB - 1, 1));
  EXPECT_EQ(byte, 3);
  EXPECT_EQ(cuMemFree(inner), CUDA_ERROR_INVALID_VALUE);
  CUmemoryPool of = pool;
  ASSERT_CU(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, left));
  EXPECT_EQ(of, nullptr);
  ASSERT_CU(cuMemFree(left));
}

TEST_F(GraphMemoryTest, WhatGraphsWithMemoryNodesMayNot) {
  CUdeviceptr pointer = 0;
  const CUgraph graph = Work(kMiB, true, &pointer), parent = NewGraph();
  CUgraphNode nodes[3] = {}, added = nullptr;
  size_t count = 3;
  ASSERT_CU(cuGraphGetNodes(graph, nodes, &count));
  for (CUgraphNode node : nodes) EXPECT_EQ(cuGraphDestroyNode(node), CUDA_ERROR_INVALID_VALUE);
  CUgraph clone = nullptr;
  EXPECT_EQ(cuGraphClone(&clone, graph), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphAddChildGraphNode(&added, parent, nullptr, 0, graph), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphAddMemFreeNode(&added, parent, nullptr, 0, pointer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphAddMemFreeNode(&added, graph, nullptr, 0, pointer), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr plain = 0;
  ASSERT_CU(cuMemAlloc(&plain, 16));
  EXPECT_EQ(cuGraphAddMemFreeNode(&added, graph, nullptr, 0, plain), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphAddMemFreeNode(&added, graph, nullptr, 0, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuMemFree(plain));

  CUgraphExec exec = Make(graph), second = nullptr;
  EXPECT_EQ(cuGraphInstantiate(&second, graph, 0), CUDA_ERROR_INVALID_VALUE);
  CUgraphExecUpdateResultInfo info{};
  EXPECT_CU(cuGraphExecUpdate_v2(exec, graph, &info));
  const CUgraph other = Work(kMiB, true);
  EXPECT_EQ(cuGraphExecUpdate_v2(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuGraphNodeSetEnabled(exec, nodes[0], 0), CUDA_ERROR_INVALID_VALUE);
  const CUstream a = NewStream();
  CUgraph captured = nullptr;
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(cuGraphLaunch(exec, a), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuStreamEndCapture(a, &captured), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  ASSERT_CU(cuGraphExecDestroy(exec));
  EXPECT_CU(cuGraphInstantiate(&second, graph, 0));

  CUDA_MEM_ALLOC_NODE_PARAMS parameters = Params(0);
  EXPECT_EQ(cuGraphAddMemAllocNode(&added, parent, nullptr, 0, &parameters),
            CUDA_ERROR_INVALID_VALUE);
  parameters = Params(16);
  parameters.poolProps.location.id = 1;
  EXPECT_EQ(cuGraphAddMemAllocNode(&added, parent, nullptr, 0, &parameters),
            CUDA_ERROR_INVALID_VALUE);
  parameters = Params(16);
  parameters.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  EXPECT_EQ(cuGraphAddMemAllocNode(&added, parent, nullptr, 0, &parameters),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphMemAllocNodeGetParams(nodes[2], &parameters), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphMemFreeNodeGetParams(nodes[0], &pointer), CUDA_ERROR_INVALID_VALUE);
  uint64_t one = 1;
  EXPECT_EQ(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &one),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &one),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceGetGraphMemAttribute(1, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &one),
            CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuDeviceGraphMemTrim(1), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(GraphMemoryTest, ALaunchWithoutRoomIsOutOfMemoryAndHarmless) {
  CUdeviceptr pointer = 0, most = 0;
  const CUgraphExec exec = Make(Work(4 * kPoolGranule, false, &pointer));
  ASSERT_CU(cuMemAlloc(&most, 1024 * kMiB - gpushare_sim_memory_used(0) - 3 * kPoolGranule));
  const uint64_t used = Charged();
  const CUstream a = NewStream();
  EXPECT_EQ(cuGraphLaunch(exec, a), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Charged(), used);
  EXPECT_EQ(cuMemFreeAsync(pointer, a), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuMemFree(most));
  ASSERT_CU(cuGraphLaunch(exec, a));
  EXPECT_EQ(Charged(), 4 * kPoolGranule);
  char error[128];
  ASSERT_EQ(0, gpushare_sim_inject("error call=cuGraphAddMemAllocNode code=999 nth=1", error,
                                   sizeof(error)));
  CUgraphNode node = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS parameters = Params(16);
  EXPECT_EQ(cuGraphAddMemAllocNode(&node, NewGraph(), nullptr, 0, &parameters), CUDA_ERROR_UNKNOWN);
}

TEST_F(GraphMemoryTest, ALaunchThatTakesMemoryIsAnAllocationToTheFault) {
  const CUgraphExec exec = Make(Work(3 * kPoolGranule, true)),
                    first = Make(Work(kPoolGranule, true));
  const CUstream a = NewStream();
  ASSERT_CU(cuGraphLaunch(first, a));
  ASSERT_CU(cuStreamSynchronize(a));
  char error[128];
  ASSERT_EQ(0, gpushare_sim_inject("oom", error, sizeof(error)));
  EXPECT_CU(cuGraphLaunch(first, a));  // it has the memory that it needs
  EXPECT_EQ(cuGraphLaunch(exec, a), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuGraphUpload(exec, a), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(0, gpushare_sim_inject("clear", error, sizeof(error)));
  EXPECT_CU(cuGraphLaunch(exec, a));
}

TEST_F(GraphMemoryTest, NothingIsLeftWhenAllOfItGoesWhileItRuns) {
  CUdeviceptr pointer = 0;
  const CUgraph graph = Work(kMiB, true, &pointer), leaves = Work(kMiB, false);
  const CUgraphExec exec = Make(graph), leaving = Make(leaves);
  const CUstream a = NewStream();
  ASSERT_CU(cuGraphLaunch(exec, a));
  ASSERT_CU(cuGraphLaunch(leaving, a));
  ASSERT_CU(cuGraphExecDestroy(exec));
  ASSERT_CU(cuGraphDestroy(graph));
  CUdeviceptr base = 0;
  size_t size = 0;
  EXPECT_CU(cuMemGetAddressRange(&base, &size, pointer));  // the launch still needs it
  ASSERT_CU(cuStreamSynchronize(a));
  ASSERT_CU(cuDeviceGraphMemTrim(device_));
  EXPECT_EQ(Charged(), kPoolGranule);
  EXPECT_EQ(cuMemGetAddressRange(&base, &size, pointer), CUDA_ERROR_NOT_FOUND);
  ASSERT_CU(cuGraphDestroy(leaves));
  ASSERT_CU(cuDevicePrimaryCtxReset(device_));
  EXPECT_EQ(gpushare_sim_memory_used(0), 0u);
  EXPECT_EQ(Reserved(), 0u);
}

TEST_F(GraphMemoryTest, GraphsOutliveTheDevice) {
  const CUgraph graph = Work(kMiB, false);
  ASSERT_CU(cuGraphLaunch(Make(graph), nullptr));
  Restart(kPlain);
  EXPECT_EQ(Reserved(), 0u);
  EXPECT_CU(cuGraphDestroy(graph));
}

}  // namespace
}  // namespace gpushare::sim_test
