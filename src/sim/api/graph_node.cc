// SPDX-License-Identifier: Apache-2.0
// Nodes of graphs: adding, removing, and what they do.
#include <vector>

#include "sim/api/api.h"
#include "sim/graph/ops.h"
#include "sim/graph/params.h"

namespace gpushare::sim {
namespace {

// Adds a node that `fill` completes. If `fill` fails, the node is removed again.
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
  if constexpr (requires { parameters->ctx; }) {
    // The node's context may be gone, and the function with it.
    if (const Function* const function = state().functions.Find(node->function_handle)) {
      parameters->ctx = HandleOf(function->module->context);
    }
  }
  parameters->kernelParams =
      node->parameter_addresses.empty() ? nullptr : node->parameter_addresses.data();
  return CUDA_SUCCESS;
}

// The handle of the array that contains the address.
CUarray ArrayAt(uint64_t address) {
  for (const Array* const array : state().arrays.All()) {
    if (array->address <= address && address - array->address < array->shape.bytes()) {
      return reinterpret_cast<CUarray>(array->handle);
    }
  }
  return nullptr;
}

// The start of one end of a copy, relative to its array or as an address.
template <typename Host>
void EndOf(uint64_t address, bool in_array, bool on_device, const CopyWork& copy, uint64_t pitch,
           uint64_t slice, CUmemorytype* type, Host* host, CUdeviceptr* device, CUarray* array,
           size_t* x, size_t* y, size_t* z, size_t* pitch_out, size_t* height) {
  if (in_array) {
    *type = CU_MEMORYTYPE_ARRAY;
    *array = ArrayAt(address);
    if (const Array* const found = state().arrays.Find(*array)) {
      const uint64_t offset = address - found->address, row = found->shape.row_bytes();
      *x = offset % row;
      *y = offset / row % found->shape.rows();
      *z = offset / row / found->shape.rows();
    }
    return;
  }
  *type = on_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  *host = on_device ? nullptr : reinterpret_cast<Host>(address);
  *device = on_device ? address : 0;
  *pitch_out = pitch != 0 ? pitch : copy.bytes;
  *height = *pitch_out != 0 && slice != 0 ? slice / *pitch_out : copy.rows;
}

CUresult GetCopyNode(CUgraphNode handle, CUDA_MEMCPY3D* copy) {
  const GraphNode* const node = FindNode(handle);
  if (node == nullptr || copy == nullptr || node->type != NodeType::kCopy) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CopyWork& work = node->copy;
  const bool to_device = work.direction == CopyDirection::kHostToDevice ||
                         work.direction == CopyDirection::kDeviceToDevice;
  const bool from_device = work.direction == CopyDirection::kDeviceToHost ||
                           work.direction == CopyDirection::kDeviceToDevice;
  CUDA_MEMCPY3D all{};
  EndOf(work.to, work.to_array, to_device, work, work.pitch_to, work.slice_to, &all.dstMemoryType,
        &all.dstHost, &all.dstDevice, &all.dstArray, &all.dstXInBytes, &all.dstY, &all.dstZ,
        &all.dstPitch, &all.dstHeight);
  EndOf(work.from, work.from_array, from_device, work, work.pitch_from, work.slice_from,
        &all.srcMemoryType, &all.srcHost, &all.srcDevice, &all.srcArray, &all.srcXInBytes,
        &all.srcY, &all.srcZ, &all.srcPitch, &all.srcHeight);
  all.WidthInBytes = work.bytes;
  all.Height = work.rows;
  all.Depth = work.slices;
  *copy = all;
  return CUDA_SUCCESS;
}

CUresult SetKernelNode(GraphNode* node, const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  if (node == nullptr || node->type != NodeType::kKernel) return CUDA_ERROR_INVALID_VALUE;
  return FillKernelNode(node, parameters);
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

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

SIM_API(cuGraphMemcpyNodeGetParams)(CUgraphNode node, CUDA_MEMCPY3D* copy) {
  SIM_ENTER(cuGraphMemcpyNodeGetParams, kNone);
  return GetCopyNode(node, copy);
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
