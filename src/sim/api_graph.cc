// SPDX-License-Identifier: Apache-2.0
// Graphs: building, instantiating, launching.
#include <algorithm>
#include <memory>
#include <vector>

#include "sim/api.h"
#include "sim/box.h"
#include "sim/capture.h"
#include "sim/graph_memory.h"
#include "sim/graph_ops.h"
#include "sim/graph_params.h"
#include "sim/graph_update.h"
#include "sim/transfer.h"

namespace gpushare::sim {
namespace {

Graph* FindGraph(CUgraph handle) { return state().graphs.Find(handle); }
GraphNode* FindNode(CUgraphNode handle) { return state().nodes.Find(handle); }
GraphExec* FindExec(CUgraphExec handle) { return state().graph_execs.Find(handle); }
CUgraphNode HandleOf(const GraphNode* node) { return reinterpret_cast<CUgraphNode>(node->handle); }

}  // namespace

CUresult FindDependencies(const Graph* graph, const CUgraphNode* handles, size_t count,
                          std::vector<GraphNode*>* dependencies) {
  if (count > 0 && handles == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    GraphNode* const node = FindNode(handles[i]);
    if (node == nullptr || node->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    if (std::find(dependencies->begin(), dependencies->end(), node) != dependencies->end()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    dependencies->push_back(node);
  }
  return CUDA_SUCCESS;
}

namespace {

// Adds a node that `fill` completes; the node is gone again when `fill` fails.
template <typename Fill>
CUresult Add(CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* dependency_handles,
             size_t count, NodeType type, const Fill& fill) {
  Graph* const graph = FindGraph(graph_handle);
  if (handle == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> dependencies;
  CUresult result = FindDependencies(graph, dependency_handles, count, &dependencies);
  if (result != CUDA_SUCCESS) return result;
  GraphNode* const node = AddNode(graph, type, dependencies);
  result = fill(node);
  if (result != CUDA_SUCCESS) {
    RemoveNode(node);
    return result;
  }
  *handle = HandleOf(node);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult FillKernelNode(GraphNode* node, const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (parameters->extra != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  const Function* const function = FindFunction(parameters->func, context);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return SetKernel(
      node, function->module->context, function,
      {parameters->gridDimX, parameters->gridDimY, parameters->gridDimZ, parameters->blockDimX,
       parameters->blockDimY, parameters->blockDimZ, parameters->sharedMemBytes},
      parameters->kernelParams, nullptr, 0);
}

CUDA_KERNEL_NODE_PARAMS_v2 Widen(const CUDA_KERNEL_NODE_PARAMS_v1& old) {
  CUDA_KERNEL_NODE_PARAMS_v2 wide{};
  wide.func = old.func;
  wide.gridDimX = old.gridDimX;
  wide.gridDimY = old.gridDimY;
  wide.gridDimZ = old.gridDimZ;
  wide.blockDimX = old.blockDimX;
  wide.blockDimY = old.blockDimY;
  wide.blockDimZ = old.blockDimZ;
  wide.sharedMemBytes = old.sharedMemBytes;
  wide.kernelParams = old.kernelParams;
  wide.extra = old.extra;
  return wide;
}

CUresult FillCopyNode(GraphNode* node, const CUDA_MEMCPY3D* copy) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CopyWork work;
  CUresult result = FillBox(*copy, &work);
  if (result != CUDA_SUCCESS) return result;
  if (work.empty()) return CUDA_ERROR_INVALID_VALUE;
  result = CheckCopy(&work);
  if (result == CUDA_SUCCESS) node->copy = work;
  return result;
}

CUresult FillSetNode(GraphNode* node, const CUDA_MEMSET_NODE_PARAMS* set) {
  if (set == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (set->elementSize != 1 && set->elementSize != 2 && set->elementSize != 4) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const SetWork work{set->dst,   set->width, set->height,
                     set->pitch, set->value, static_cast<uint8_t>(set->elementSize)};
  if (work.width == 0 || work.rows == 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = CheckSet(work);
  if (result == CUDA_SUCCESS) node->set = work;
  return result;
}

CUresult FillEventNode(GraphNode* node, CUevent event) {
  if (FindEvent(event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  node->event = FindEvent(event)->handle;
  return CUDA_SUCCESS;
}

namespace {

// Copies handles out as the driver does: without a list, only the count.
CUresult Give(const std::vector<GraphNode*>& nodes, CUgraphNode* handles, size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (handles == nullptr) {
    *count = nodes.size();
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < *count; ++i) handles[i] = i < nodes.size() ? HandleOf(nodes[i]) : nullptr;
  *count = std::min(*count, nodes.size());
  return CUDA_SUCCESS;
}

CUgraphNodeType TypeOf(const GraphNode& node) {
  switch (node.type) {
    case NodeType::kKernel:
      return CU_GRAPH_NODE_TYPE_KERNEL;
    case NodeType::kCopy:
      return CU_GRAPH_NODE_TYPE_MEMCPY;
    case NodeType::kSet:
      return CU_GRAPH_NODE_TYPE_MEMSET;
    case NodeType::kHost:
      return CU_GRAPH_NODE_TYPE_HOST;
    case NodeType::kEmpty:
      return CU_GRAPH_NODE_TYPE_EMPTY;
    case NodeType::kEventRecord:
      return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    case NodeType::kEventWait:
      return CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    case NodeType::kChild:
      return CU_GRAPH_NODE_TYPE_GRAPH;
    case NodeType::kMemAlloc:
      return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    case NodeType::kMemFree:
      return CU_GRAPH_NODE_TYPE_MEM_FREE;
  }
  return CU_GRAPH_NODE_TYPE_EMPTY;
}

CUresult InstantiateGraph(CUgraphExec* handle, CUgraph graph_handle, unsigned long long flags,
                          CUgraphInstantiateResult* detail = nullptr) {
  constexpr unsigned long long kKnown = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY |
                                        CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
  Graph* const graph = FindGraph(graph_handle);
  if (handle == nullptr || graph == nullptr || graph->capturing) return CUDA_ERROR_INVALID_VALUE;
  // Of a graph with memory nodes there is one executable at a time.
  if (state().graph_execs.Find(graph->executable) != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if ((flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context;
  CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  GraphExec* exec;
  result = Instantiate(*graph, context, &exec);
  if (detail != nullptr) {
    *detail = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                                     : CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
  }
  if (result != CUDA_SUCCESS) return result;
  exec->flags = flags;
  if (graph->has_memory_nodes) graph->executable = exec->handle;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) == 0) {
    for (const auto& node : exec->nodes) node->work.own_priority = false;
  }
  *handle = reinterpret_cast<CUgraphExec>(exec->handle);
  return CUDA_SUCCESS;
}

CUresult InstantiateWith(CUgraphExec* handle, CUgraph graph,
                         CUDA_GRAPH_INSTANTIATE_PARAMS* parameters, NullStream null) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  parameters->hErrNode_out = nullptr;
  parameters->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
  Stream* stream = nullptr;
  if ((parameters->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) {
    const CUresult found = FindStream(parameters->hUploadStream, null, &stream);
    if (found != CUDA_SUCCESS) return found;
  }
  CUresult result = InstantiateGraph(handle, graph, parameters->flags, &parameters->result_out);
  if (result != CUDA_SUCCESS || stream == nullptr) return result;
  GraphExec* const exec = FindExec(*handle);
  result = MapGraphMemory(exec, stream);
  if (result == CUDA_SUCCESS) return result;
  DestroyExec(exec);
  *handle = nullptr;
  parameters->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

CUresult LaunchGraph(CUgraphExec handle, CUstream stream_handle, NullStream null) {
  GraphExec* exec = FindExec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  CUresult result = FindStream(stream_handle, null, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->context != exec->context) return CUDA_ERROR_INVALID_VALUE;
  result = CheckSubmit(stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture != nullptr) {
    if (!exec->holds.empty()) {  // a child graph has no memory nodes
      Invalidate(stream->capture);
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    // What it would do now; the capture does not follow later changes of the executable.
    AddCapturedNode(stream, NodeType::kChild)->child = GraphOf(*exec);
    return CUDA_SUCCESS;
  }
  if (!HasSpace(stream)) {
    result = WaitForSpace(&stream);
    if (result != CUDA_SUCCESS) return result;
    exec = FindExec(handle);
    if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  }
  return LaunchExec(exec, stream);
}

// The memory is there after it; nothing else is left to do ahead of a launch.
CUresult Upload(CUgraphExec handle, CUstream stream_handle, NullStream null) {
  GraphExec* const exec = FindExec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  const CUresult result = FindStream(stream_handle, null, &stream);
  return result != CUDA_SUCCESS ? result : MapGraphMemory(exec, stream);
}

template <typename Parameters>
CUresult GetKernelNode(CUgraphNode handle, Parameters* parameters) {
  GraphNode* const node = FindNode(handle);
  if (node == nullptr || parameters == nullptr || node->type != NodeType::kKernel) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *parameters = {};
  parameters->func = reinterpret_cast<CUfunction>(node->function_handle);
  parameters->gridDimX = node->shape.grid_x;
  parameters->gridDimY = node->shape.grid_y;
  parameters->gridDimZ = node->shape.grid_z;
  parameters->blockDimX = node->shape.block_x;
  parameters->blockDimY = node->shape.block_y;
  parameters->blockDimZ = node->shape.block_z;
  parameters->sharedMemBytes = node->shape.shared_bytes;
  parameters->kernelParams =
      node->parameter_addresses.empty() ? nullptr : node->parameter_addresses.data();
  return CUDA_SUCCESS;
}

CUresult SetKernelNode(GraphNode* node, const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  if (node == nullptr || node->type != NodeType::kKernel) return CUDA_ERROR_INVALID_VALUE;
  return FillKernelNode(node, parameters);
}

CUresult SetKernelInExec(CUgraphExec exec_handle, CUgraphNode handle,
                         const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  GraphExec* const exec = FindExec(exec_handle);
  GraphExec::Node* const node =
      exec == nullptr ? nullptr : FindInExec(exec, reinterpret_cast<uint64_t>(handle));
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The owner of the function cannot change.
  GraphNode work;
  CopyWorkOf(node->work, &work);
  const CUresult result = SetKernelNode(&work, parameters);
  if (result != CUDA_SUCCESS) return result;
  if (work.context != node->work.context) return CUDA_ERROR_INVALID_VALUE;
  CopyWorkOf(work, &node->work);
  return CUDA_SUCCESS;
}

// Of `nodes` the ones that the node points to, as the driver's two-call form gives them.
CUresult GiveEdges(CUgraphNode handle, bool dependents, CUgraphNode* out, size_t* count) {
  const GraphNode* const node = FindNode(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Give(dependents ? node->dependents : node->dependencies, out, count);
}

CUresult GetEdges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                  size_t* count) {
  const Graph* const graph = FindGraph(handle);
  if (graph == nullptr || count == nullptr || (from == nullptr) != (to == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  size_t edges = 0;
  for (const auto& node : graph->nodes) {
    for (const GraphNode* dependency : node->dependencies) {
      if (from != nullptr && edges < *count) {
        from[edges] = HandleOf(dependency);
        to[edges] = HandleOf(node.get());
        if (data != nullptr) data[edges] = {};  // all edges are plain
      }
      ++edges;
    }
  }
  *count = from == nullptr ? edges : std::min(*count, edges);
  return CUDA_SUCCESS;
}

CUresult AddDependencies(CUgraph graph_handle, const CUgraphNode* from, const CUgraphNode* to,
                         size_t count) {
  Graph* const graph = FindGraph(graph_handle);
  if (graph == nullptr || (count > 0 && (from == nullptr || to == nullptr))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    GraphNode *const before = FindNode(from[i]), *const after = FindNode(to[i]);
    if (before == nullptr || after == nullptr || before == after || before->graph != graph ||
        after->graph != graph) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto& list = after->dependencies;
    if (std::find(list.begin(), list.end(), before) != list.end()) return CUDA_ERROR_INVALID_VALUE;
    list.push_back(before);
    before->dependents.push_back(after);
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuGraphCreate)(CUgraph* handle, unsigned flags) {
  SIM_ENTER(cuGraphCreate, kNone);
  if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  auto* const graph = new Graph;
  graph->handle = state().graphs.Add(graph);
  *handle = reinterpret_cast<CUgraph>(graph->handle);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphDestroy)(CUgraph handle) {
  SIM_ENTER(cuGraphDestroy, kNone);
  Graph* const graph = FindGraph(handle);
  if (graph == nullptr || graph->capturing) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& capture : state().captures.active) {
    if (capture->target == graph) return CUDA_ERROR_INVALID_VALUE;
  }
  DropGraph(graph);
  delete graph;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphClone)(CUgraph* handle, CUgraph original) {
  SIM_ENTER(cuGraphClone, kNone);
  const Graph* const graph = FindGraph(original);
  if (handle == nullptr || graph == nullptr || graph->has_memory_nodes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *handle = reinterpret_cast<CUgraph>(CloneGraph(*graph).release()->handle);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphAddKernelNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
 const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  SIM_ENTER(cuGraphAddKernelNode, kNone);
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS_v2 wide = Widen(*parameters);
  return Add(node, graph, dependencies, count, NodeType::kKernel,
             [&](GraphNode* added) { return FillKernelNode(added, &wide); });
}
SIM_API(cuGraphAddKernelNode_v2)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
 const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  SIM_ENTER(cuGraphAddKernelNode_v2, kNone);
  return Add(node, graph, dependencies, count, NodeType::kKernel,
             [&](GraphNode* added) { return FillKernelNode(added, parameters); });
}

SIM_API(cuGraphAddMemcpyNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
 const CUDA_MEMCPY3D* copy, CUcontext) {
  SIM_ENTER(cuGraphAddMemcpyNode, kNone);
  return Add(node, graph, dependencies, count, NodeType::kCopy,
             [&](GraphNode* added) { return FillCopyNode(added, copy); });
}

SIM_API(cuGraphAddMemsetNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
 const CUDA_MEMSET_NODE_PARAMS* set, CUcontext) {
  SIM_ENTER(cuGraphAddMemsetNode, kNone);
  return Add(node, graph, dependencies, count, NodeType::kSet,
             [&](GraphNode* added) { return FillSetNode(added, set); });
}

SIM_API(cuGraphAddHostNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
 const CUDA_HOST_NODE_PARAMS* host) {
  SIM_ENTER(cuGraphAddHostNode, kNone);
  if (host == nullptr || host->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Add(node, graph, dependencies, count, NodeType::kHost, [&](GraphNode* added) {
    added->host.function = host->fn;
    added->host.data = host->userData;
    return CUDA_SUCCESS;
  });
}

SIM_API(cuGraphAddEmptyNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count) {
  SIM_ENTER(cuGraphAddEmptyNode, kNone);
  return Add(node, graph, dependencies, count, NodeType::kEmpty,
             [](GraphNode*) { return CUDA_SUCCESS; });
}

SIM_API(cuGraphAddEventRecordNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count, CUevent event) {
  SIM_ENTER(cuGraphAddEventRecordNode, kNone);
  return Add(node, graph, dependencies, count, NodeType::kEventRecord,
             [&](GraphNode* added) { return FillEventNode(added, event); });
}

SIM_API(cuGraphAddEventWaitNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count, CUevent event) {
  SIM_ENTER(cuGraphAddEventWaitNode, kNone);
  return Add(node, graph, dependencies, count, NodeType::kEventWait,
             [&](GraphNode* added) { return FillEventNode(added, event); });
}

SIM_API(cuGraphAddChildGraphNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count, CUgraph child) {
  SIM_ENTER(cuGraphAddChildGraphNode, kNone);
  const Graph* const original = FindGraph(child);
  if (original == nullptr || child == graph || original->has_memory_nodes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return Add(node, graph, dependencies, count, NodeType::kChild, [&](GraphNode* added) {
    added->child = CloneGraph(*original);
    return CUDA_SUCCESS;
  });
}

SIM_API(cuGraphChildGraphNodeGetGraph)(CUgraphNode handle, CUgraph* child) {
  SIM_ENTER(cuGraphChildGraphNodeGetGraph, kNone);
  const GraphNode* const node = FindNode(handle);
  if (node == nullptr || child == nullptr || node->child == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *child = reinterpret_cast<CUgraph>(node->child->handle);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphDestroyNode)(CUgraphNode handle) {
  SIM_ENTER(cuGraphDestroyNode, kNone);
  GraphNode* const node = FindNode(handle);
  if (node == nullptr || !state().captures.active.empty() || node->graph->has_memory_nodes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  RemoveNode(node);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphAddDependencies)
(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  SIM_ENTER(cuGraphAddDependencies, kNone);
  return AddDependencies(graph, from, to, count);
}

SIM_API(cuGraphAddDependencies_v2)
(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data,
 size_t count) {
  SIM_ENTER(cuGraphAddDependencies_v2, kNone);
  if (data != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return AddDependencies(graph, from, to, count);
}

SIM_API(cuGraphGetNodes)(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  SIM_ENTER(cuGraphGetNodes, kNone);
  const Graph* const graph = FindGraph(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> all;
  for (const auto& node : graph->nodes) all.push_back(node.get());
  return Give(all, nodes, count);
}

SIM_API(cuGraphGetRootNodes)(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  SIM_ENTER(cuGraphGetRootNodes, kNone);
  const Graph* const graph = FindGraph(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> roots;
  for (const auto& node : graph->nodes) {
    if (node->dependencies.empty()) roots.push_back(node.get());
  }
  return Give(roots, nodes, count);
}

SIM_API(cuGraphGetEdges)(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  SIM_ENTER(cuGraphGetEdges, kNone);
  return GetEdges(graph, from, to, nullptr, count);
}
SIM_API(cuGraphGetEdges_v2)
(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  SIM_ENTER(cuGraphGetEdges_v2, kNone);
  return GetEdges(graph, from, to, data, count);
}

SIM_API(cuGraphNodeGetType)(CUgraphNode handle, CUgraphNodeType* type) {
  SIM_ENTER(cuGraphNodeGetType, kNone);
  const GraphNode* const node = FindNode(handle);
  if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = TypeOf(*node);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphNodeGetDependencies)(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  SIM_ENTER(cuGraphNodeGetDependencies, kNone);
  return GiveEdges(node, false, nodes, count);
}

SIM_API(cuGraphNodeGetDependencies_v2)
(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
  SIM_ENTER(cuGraphNodeGetDependencies_v2, kNone);
  const CUresult result = GiveEdges(node, false, nodes, count);
  for (size_t i = 0; result == CUDA_SUCCESS && data != nullptr && i < *count; ++i) data[i] = {};
  return result;
}

SIM_API(cuGraphNodeGetDependentNodes_v2)
(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
  SIM_ENTER(cuGraphNodeGetDependentNodes_v2, kNone);
  const CUresult result = GiveEdges(node, true, nodes, count);
  for (size_t i = 0; result == CUDA_SUCCESS && data != nullptr && i < *count; ++i) data[i] = {};
  return result;
}

SIM_API(cuGraphNodeGetDependentNodes)(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  SIM_ENTER(cuGraphNodeGetDependentNodes, kNone);
  return GiveEdges(node, true, nodes, count);
}

SIM_API(cuGraphKernelNodeGetParams)(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  SIM_ENTER(cuGraphKernelNodeGetParams, kNone);
  return GetKernelNode(node, parameters);
}
SIM_API(cuGraphKernelNodeGetParams_v2)(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  SIM_ENTER(cuGraphKernelNodeGetParams_v2, kNone);
  return GetKernelNode(node, parameters);
}

SIM_API(cuGraphKernelNodeSetParams)
(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  SIM_ENTER(cuGraphKernelNodeSetParams, kNone);
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS_v2 wide = Widen(*parameters);
  return SetKernelNode(FindNode(node), &wide);
}
SIM_API(cuGraphKernelNodeSetParams_v2)
(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  SIM_ENTER(cuGraphKernelNodeSetParams_v2, kNone);
  return SetKernelNode(FindNode(node), parameters);
}

SIM_API(cuGraphExecKernelNodeSetParams)
(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  SIM_ENTER(cuGraphExecKernelNodeSetParams, kNone);
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS_v2 wide = Widen(*parameters);
  return SetKernelInExec(exec, node, &wide);
}
SIM_API(cuGraphExecKernelNodeSetParams_v2)
(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  SIM_ENTER(cuGraphExecKernelNodeSetParams_v2, kNone);
  return SetKernelInExec(exec, node, parameters);
}

SIM_API(cuGraphInstantiate)
(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_size) {
  SIM_ENTER(cuGraphInstantiate, kCall);
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && log_size > 0) *log = 0;
  return InstantiateGraph(exec, graph, 0);
}
SIM_API(cuGraphInstantiate_v2)
(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_size) {
  SIM_ENTER(cuGraphInstantiate_v2, kCall);
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && log_size > 0) *log = 0;
  return InstantiateGraph(exec, graph, 0);
}
SIM_API(cuGraphInstantiateWithFlags)(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  SIM_ENTER(cuGraphInstantiateWithFlags, kCall);
  return InstantiateGraph(exec, graph, flags);
}

SIM_STREAM_API(cuGraphInstantiateWithParams, _ptsz, kCall,
               (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters),
               InstantiateWith(exec, graph, parameters, null));

SIM_API(cuGraphExecDestroy)(CUgraphExec handle) {
  SIM_ENTER(cuGraphExecDestroy, kNone);
  GraphExec* const exec = FindExec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  DestroyExec(exec);
  return CUDA_SUCCESS;
}

SIM_STREAM_API(cuGraphLaunch, _ptsz, kLaunch, (CUgraphExec exec, CUstream stream),
               LaunchGraph(exec, stream, null));

SIM_STREAM_API(cuGraphUpload, _ptsz, kCall, (CUgraphExec exec, CUstream stream),
               Upload(exec, stream, null));
