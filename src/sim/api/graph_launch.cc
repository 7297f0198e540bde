// SPDX-License-Identifier: Apache-2.0
// Executable graphs: instantiating, uploading, launching.
#include "sim/api/api.h"
#include "sim/graph/capture.h"
#include "sim/graph/memory.h"
#include "sim/graph/ops.h"
#include "sim/graph/params.h"
#include "sim/graph/update.h"

namespace gpushare::sim {
namespace {

CUresult InstantiateGraph(CUgraphExec* handle, CUgraph graph_handle, unsigned long long flags,
                          CUgraphInstantiateResult* detail = nullptr) {
  constexpr unsigned long long kKnown = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY |
                                        CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
  Graph* const graph = FindGraph(graph_handle);
  if (handle == nullptr || graph == nullptr || graph->capturing) return CUDA_ERROR_INVALID_VALUE;
  // A graph with memory nodes has at most one executable at a time.
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
    // The capture gets what the executable does now, and does not follow later changes.
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

// An upload makes sure that the memory is backed. Nothing else can be done before a launch.
CUresult Upload(CUgraphExec handle, CUstream stream_handle, NullStream null) {
  GraphExec* const exec = FindExec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  const CUresult result = FindStream(stream_handle, null, &stream);
  return result != CUDA_SUCCESS ? result : MapGraphMemory(exec, stream);
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

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
