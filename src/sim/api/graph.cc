// SPDX-License-Identifier: Apache-2.0
// Graphs: creating them, and the edges between their nodes.
#include <algorithm>
#include <vector>

#include "sim/api/api.h"
#include "sim/graph/ops.h"
#include "sim/graph/params.h"

namespace gpushare::sim {
namespace {

// Copies handles out as the driver does: if there is no list, only the count.
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

// The neighbours of the node, in one direction, in the driver's two-call form.
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
