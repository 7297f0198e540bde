// SPDX-License-Identifier: Apache-2.0
#include "sim/graph/update.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/graph/ops.h"
#include "sim/stream/transfer.h"

namespace gpushare::sim {
namespace {

// The device of an address in device memory; null for host memory.
const Device* DeviceAt(uint64_t address) {
  Device* device = nullptr;
  return FindBlock(address, &device) == nullptr ? nullptr : device;
}

bool MayBecome(const CopyWork& from, const CopyWork& to) {
  return from.direction == to.direction && from.to_array == to.to_array &&
         from.from_array == to.from_array && DeviceAt(from.to) == DeviceAt(to.to) &&
         DeviceAt(from.from) == DeviceAt(to.from);
}

// A set of several rows may change only its address and value; a set of one row anything but the number of rows.
bool MayBecome(const SetWork& from, const SetWork& to) {
  if (DeviceAt(from.to) != DeviceAt(to.to) || from.rows != to.rows) return false;
  return from.rows == 1 ||
         (from.width == to.width && from.pitch == to.pitch && from.element == to.element);
}

using Changed = std::pair<GraphExec::Node*, const GraphNode*>;

UpdateProblem Compare(GraphExec* exec, const GraphExec::Level& level, const Graph& graph,
                      std::vector<Changed>* changes) {
  if (level.entries.size() != graph.nodes.size()) {
    return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED};
  }
  std::unordered_map<const GraphNode*, size_t> place;
  for (const auto& node : graph.nodes) place.emplace(node.get(), place.size());
  for (size_t i = 0; i < level.entries.size(); ++i) {
    const GraphExec::Level::Entry& entry = level.entries[i];
    const GraphNode& node = *graph.nodes[i];
    if (entry.dependencies.size() != node.dependencies.size()) {
      return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, &node};
    }
    for (size_t j = 0; j < entry.dependencies.size(); ++j) {
      const GraphNode* const from = node.dependencies[j];
      if (place[from] != entry.dependencies[j]) {
        return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, &node, from};
      }
    }
    if (entry.type != node.type) return {CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, &node};
    if (entry.child != nullptr) {
      const UpdateProblem problem = Compare(exec, *entry.child, *node.child, changes);
      if (problem.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return problem;
      continue;
    }
    GraphExec::Node* const target = exec->nodes[entry.node].get();
    const CUgraphExecUpdateResult result = CheckChange(*exec, target->work, node);
    if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return {result, &node};
    changes->emplace_back(target, &node);
  }
  return {};
}

// Launches in flight keep the objects that they were launched with.
void ReplaceObjects(GraphExec::Level* level, const Graph& graph) {
  level->user_objects = graph.user_objects;
  for (size_t i = 0; i < level->entries.size(); ++i) {
    GraphExec::Level* const child = level->entries[i].child.get();
    if (child != nullptr) ReplaceObjects(child, *graph.nodes[i]->child);
  }
}

std::unique_ptr<Graph> GraphOfLevel(const GraphExec& exec, const GraphExec::Level& level) {
  auto graph = std::make_unique<Graph>();
  graph->handle = state().graphs.Add(graph.get());
  graph->user_objects = level.user_objects;
  for (const GraphExec::Level::Entry& entry : level.entries) {
    GraphNode* const node = AddNode(graph.get(), entry.type, {});
    if (entry.child != nullptr) {
      node->child = GraphOfLevel(exec, *entry.child);
      continue;
    }
    const GraphExec::Node& made = *exec.nodes[entry.node];
    if (made.enabled) {
      CopyWorkOf(made.work, node);
    } else {
      node->type = NodeType::kEmpty;
    }
  }
  // Edges come last, because one may lead to a node that was created later.
  for (size_t i = 0; i < level.entries.size(); ++i) {
    GraphNode* const node = graph->nodes[i].get();
    for (const size_t dependency : level.entries[i].dependencies) {
      node->dependencies.push_back(graph->nodes[dependency].get());
      graph->nodes[dependency]->dependents.push_back(node);
    }
  }
  return graph;
}

}  // namespace

CUgraphExecUpdateResult CheckChange(const GraphExec& exec, const GraphNode& from,
                                    const GraphNode& to) {
  switch (to.type) {
    case NodeType::kKernel:
      if (from.context != to.context) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
      }
      if ((exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0 &&
          (from.own_priority != to.own_priority || from.priority != to.priority)) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
      }
      return CU_GRAPH_EXEC_UPDATE_SUCCESS;
    case NodeType::kCopy:
      return MayBecome(from.copy, to.copy) ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                           : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case NodeType::kSet:
      return MayBecome(from.set, to.set) ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                         : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case NodeType::kMemAlloc:
    case NodeType::kMemFree:
      // The memory belongs to the graph that the executable was made from.
      return from.allocation == to.allocation ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                              : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    default:
      return CU_GRAPH_EXEC_UPDATE_SUCCESS;
  }
}

UpdateProblem UpdateExec(GraphExec* exec, GraphExec::Level* level, const Graph& graph) {
  std::vector<Changed> changes;
  const UpdateProblem problem = Compare(exec, *level, graph, &changes);
  if (problem.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return problem;
  const bool priorities = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0;
  for (const auto& [target, node] : changes) {
    CopyWorkOf(*node, &target->work);
    if (!priorities) target->work.own_priority = false;
  }
  ReplaceObjects(level, graph);
  return {};
}

GraphExec::Level* FindChildLevel(GraphExec::Level* level, uint64_t node) {
  for (const GraphExec::Level::Entry& entry : level->entries) {
    if (entry.child == nullptr) continue;
    if (entry.origin == node) return entry.child.get();
    GraphExec::Level* const found = FindChildLevel(entry.child.get(), node);
    if (found != nullptr) return found;
  }
  return nullptr;
}

std::unique_ptr<Graph> GraphOf(const GraphExec& exec) { return GraphOfLevel(exec, exec.top); }

}  // namespace gpushare::sim
