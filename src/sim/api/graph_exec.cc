// SPDX-License-Identifier: Apache-2.0
// Executable graphs: changes without another instantiation.
#include <algorithm>
#include <vector>

#include "sim/api/api.h"
#include "sim/graph/ops.h"
#include "sim/graph/params.h"
#include "sim/graph/update.h"

namespace gpushare::sim {
namespace {

GraphExec::Node* FindIn(CUgraphExec exec_handle, CUgraphNode node) {
  GraphExec* const exec = FindExec(exec_handle);
  return exec == nullptr ? nullptr : FindInExec(exec, reinterpret_cast<uint64_t>(node));
}

CUresult Update(CUgraphExec exec_handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo* info) {
  *info = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
  GraphExec* const exec = FindExec(exec_handle);
  const Graph* const graph = FindGraph(graph_handle);
  if (exec == nullptr || graph == nullptr || graph->capturing) return CUDA_ERROR_INVALID_VALUE;
  const UpdateProblem problem = UpdateExec(exec, &exec->top, *graph);
  *info = {problem.result, HandleOf(problem.node), HandleOf(problem.from)};
  return problem.result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
                                                        : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult ChangeKernel(CUgraphExec exec, CUgraphNode handle,
                      const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  GraphExec::Node* const node = FindIn(exec, handle);
  if (node == nullptr || node->work.type != NodeType::kKernel) return CUDA_ERROR_INVALID_VALUE;
  // The context of the function cannot change.
  GraphNode work;
  CopyWorkOf(node->work, &work);
  const CUresult result = FillKernelNode(&work, parameters);
  if (result != CUDA_SUCCESS) return result;
  if (work.context != node->work.context) return CUDA_ERROR_INVALID_VALUE;
  CopyWorkOf(work, &node->work);
  return CUDA_SUCCESS;
}

// Lets `fill` change a copy of the node's work, and puts the copy into the executable's node.
template <typename Fill>
CUresult Change(CUgraphExec exec, CUgraphNode handle, NodeType type, const Fill& fill) {
  GraphExec::Node* const node = FindIn(exec, handle);
  if (node == nullptr || node->work.type != type) return CUDA_ERROR_INVALID_VALUE;
  GraphNode changed;
  CopyWorkOf(node->work, &changed);
  const CUresult result = fill(&changed);
  if (result != CUDA_SUCCESS) return result;
  if (CheckChange(*FindExec(exec), node->work, changed) != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CopyWorkOf(changed, &node->work);
  return CUDA_SUCCESS;
}

CUresult ChangeChild(CUgraphExec exec_handle, CUgraphNode node, CUgraph child) {
  GraphExec* const exec = FindExec(exec_handle);
  const Graph* const graph = FindGraph(child);
  if (exec == nullptr || graph == nullptr || graph->capturing || FindNode(node) == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  GraphExec::Level* const level = FindChildLevel(&exec->top, reinterpret_cast<uint64_t>(node));
  if (level == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return UpdateExec(exec, level, *graph).result == CU_GRAPH_EXEC_UPDATE_SUCCESS
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult FillHostNode(GraphNode* node, const CUDA_HOST_NODE_PARAMS* host) {
  if (host == nullptr || host->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  node->host.function = host->fn;
  node->host.data = host->userData;
  return CUDA_SUCCESS;
}

// A node of an executable that can be enabled and disabled.
GraphExec::Node* FindSwitch(CUgraphExec exec, CUgraphNode handle) {
  GraphExec::Node* const node = FindIn(exec, handle);
  if (node == nullptr) return nullptr;
  const NodeType type = node->work.type;
  const bool can = type == NodeType::kKernel || type == NodeType::kCopy || type == NodeType::kSet;
  return can ? node : nullptr;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuGraphExecUpdate)
(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node, CUgraphExecUpdateResult* result) {
  SIM_ENTER(cuGraphExecUpdate, kCall);
  if (error_node == nullptr || result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphExecUpdateResultInfo info;
  const CUresult answer = Update(exec, graph, &info);
  *error_node = info.errorNode;
  *result = info.result;
  return answer;
}
SIM_API(cuGraphExecUpdate_v2)
(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  SIM_ENTER(cuGraphExecUpdate_v2, kCall);
  return info == nullptr ? CUDA_ERROR_INVALID_VALUE : Update(exec, graph, info);
}

SIM_API(cuGraphExecKernelNodeSetParams)
(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  SIM_ENTER(cuGraphExecKernelNodeSetParams, kNone);
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS_v2 wide = Widen(*parameters);
  return ChangeKernel(exec, node, &wide);
}
SIM_API(cuGraphExecKernelNodeSetParams_v2)
(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  SIM_ENTER(cuGraphExecKernelNodeSetParams_v2, kNone);
  return ChangeKernel(exec, node, parameters);
}

SIM_API(cuGraphExecMemcpyNodeSetParams)
(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* copy, CUcontext) {
  SIM_ENTER(cuGraphExecMemcpyNodeSetParams, kNone);
  return Change(exec, node, NodeType::kCopy, [&](GraphNode* changed) {
    const bool several = changed->copy.rows != 1 || changed->copy.slices != 1;
    const CUresult result = FillCopyNode(changed, copy);
    if (result != CUDA_SUCCESS) return result;
    // Only copies of one row can be changed individually.
    return several || changed->copy.rows != 1 || changed->copy.slices != 1
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
  });
}

SIM_API(cuGraphExecMemsetNodeSetParams)
(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* set, CUcontext) {
  SIM_ENTER(cuGraphExecMemsetNodeSetParams, kNone);
  return Change(exec, node, NodeType::kSet,
                [&](GraphNode* changed) { return FillSetNode(changed, set); });
}

SIM_API(cuGraphExecHostNodeSetParams)
(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* host) {
  SIM_ENTER(cuGraphExecHostNodeSetParams, kNone);
  return Change(exec, node, NodeType::kHost,
                [&](GraphNode* changed) { return FillHostNode(changed, host); });
}

SIM_API(cuGraphExecEventRecordNodeSetEvent)(CUgraphExec exec, CUgraphNode node, CUevent event) {
  SIM_ENTER(cuGraphExecEventRecordNodeSetEvent, kNone);
  return Change(exec, node, NodeType::kEventRecord,
                [&](GraphNode* changed) { return FillEventNode(changed, event); });
}

SIM_API(cuGraphExecEventWaitNodeSetEvent)(CUgraphExec exec, CUgraphNode node, CUevent event) {
  SIM_ENTER(cuGraphExecEventWaitNodeSetEvent, kNone);
  return Change(exec, node, NodeType::kEventWait,
                [&](GraphNode* changed) { return FillEventNode(changed, event); });
}

SIM_API(cuGraphExecChildGraphNodeSetParams)(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  SIM_ENTER(cuGraphExecChildGraphNodeSetParams, kNone);
  return ChangeChild(exec, node, child);
}

SIM_API(cuGraphNodeSetEnabled)(CUgraphExec exec, CUgraphNode handle, unsigned enabled) {
  SIM_ENTER(cuGraphNodeSetEnabled, kNone);
  GraphExec::Node* const node = FindSwitch(exec, handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  node->enabled = enabled != 0;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphNodeGetEnabled)(CUgraphExec exec, CUgraphNode handle, unsigned* enabled) {
  SIM_ENTER(cuGraphNodeGetEnabled, kNone);
  const GraphExec::Node* const node = FindSwitch(exec, handle);
  if (node == nullptr || enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *enabled = node->enabled ? 1 : 0;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphExecGetFlags)(CUgraphExec handle, cuuint64_t* flags) {
  SIM_ENTER(cuGraphExecGetFlags, kNone);
  const GraphExec* const exec = FindExec(handle);
  if (exec == nullptr || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}
