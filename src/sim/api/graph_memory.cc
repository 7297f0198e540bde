// SPDX-License-Identifier: Apache-2.0
// Memory nodes of graphs, and the memory that the device keeps for them.
#include <cstring>
#include <vector>

#include "sim/api/api.h"
#include "sim/graph/memory.h"
#include "sim/graph/ops.h"
#include "sim/graph/params.h"

namespace gpushare::sim {
namespace {

// Checks whether the node may be added; fills in graph and dependencies.
CUresult Prepare(const CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* dependencies,
                 size_t count, Graph** graph, std::vector<GraphNode*>* found) {
  *graph = FindGraph(graph_handle);
  if (handle == nullptr || *graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return FindDependencies(*graph, dependencies, count, found);
}

CUresult AddAllocation(CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* dependencies,
                       size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  if (parameters == nullptr || parameters->bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  const CUmemPoolProps& properties = parameters->poolProps;
  Device* const device = FindDevice(properties.location.id);
  if (properties.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
      properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE || device == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (parameters->accessDescCount > state().devices.size() ||
      (parameters->accessDescCount > 0 && parameters->accessDescs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Graph* graph;
  std::vector<GraphNode*> found;
  CUresult result = Prepare(handle, graph_handle, dependencies, count, &graph, &found);
  if (result != CUDA_SUCCESS) return result;
  if (state().faults.FailAllocation()) return CUDA_ERROR_OUT_OF_MEMORY;
  GraphNode* const node = AddNode(graph, NodeType::kMemAlloc, found);
  result = FillAllocation(node, device, parameters->bytesize);
  if (result != CUDA_SUCCESS) {
    RemoveNode(node);
    return result;
  }
  parameters->dptr = node->allocation->address;
  *handle = reinterpret_cast<CUgraphNode>(node->handle);
  return CUDA_SUCCESS;
}

CUresult AddFree(CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* dependencies,
                 size_t count, CUdeviceptr pointer) {
  Graph* graph;
  std::vector<GraphNode*> found;
  CUresult result = Prepare(handle, graph_handle, dependencies, count, &graph, &found);
  if (result != CUDA_SUCCESS) return result;
  std::shared_ptr<GraphAllocation> allocation;
  result = CheckFree(graph, pointer, &allocation);
  if (result != CUDA_SUCCESS) return result;
  GraphNode* const node = AddNode(graph, NodeType::kMemFree, found);
  FillFree(node, allocation);
  *handle = reinterpret_cast<CUgraphNode>(node->handle);
  return CUDA_SUCCESS;
}

CUresult GetAllocation(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  const GraphNode* const node = FindNode(handle);
  if (node == nullptr || parameters == nullptr || node->type != NodeType::kMemAlloc) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::memset(parameters, 0, sizeof(*parameters));
  const GraphAllocation& allocation = *node->allocation;
  parameters->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  parameters->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  parameters->poolProps.location.id = allocation.device == nullptr ? 0 : allocation.device->ordinal;
  parameters->bytesize = allocation.bytes;
  parameters->dptr = allocation.address;
  return CUDA_SUCCESS;
}

CUresult GetAttribute(CUdevice dev, CUgraphMem_attribute attribute, void* value) {
  Device* const device = FindDevice(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphMemory& memory = device->graph_memory;
  uint64_t number;
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      number = memory.used();
      break;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      number = memory.used_high;
      break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      number = memory.reserved();
      break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      number = memory.reserved_high;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  std::memcpy(value, &number, sizeof(number));
  return CUDA_SUCCESS;
}

CUresult SetAttribute(CUdevice dev, CUgraphMem_attribute attribute, const void* value) {
  Device* const device = FindDevice(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t number;
  std::memcpy(&number, value, sizeof(number));
  GraphMemory& memory = device->graph_memory;
  // A high-water mark restarts from the present use.
  if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && number == 0) {
    memory.used_high = memory.used();
    return CUDA_SUCCESS;
  }
  if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH && number == 0) {
    memory.reserved_high = memory.reserved();
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuGraphAddMemAllocNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
 CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  SIM_ENTER(cuGraphAddMemAllocNode, kNone);
  return AddAllocation(node, graph, dependencies, count, parameters);
}

SIM_API(cuGraphAddMemFreeNode)
(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
 CUdeviceptr pointer) {
  SIM_ENTER(cuGraphAddMemFreeNode, kNone);
  return AddFree(node, graph, dependencies, count, pointer);
}

SIM_API(cuGraphMemAllocNodeGetParams)(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  SIM_ENTER(cuGraphMemAllocNodeGetParams, kNone);
  return GetAllocation(node, parameters);
}

SIM_API(cuGraphMemFreeNodeGetParams)(CUgraphNode handle, CUdeviceptr* pointer) {
  SIM_ENTER(cuGraphMemFreeNodeGetParams, kNone);
  const GraphNode* const node = FindNode(handle);
  if (node == nullptr || pointer == nullptr || node->type != NodeType::kMemFree) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pointer = node->allocation->address;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGraphMemTrim)(CUdevice dev) {
  SIM_ENTER(cuDeviceGraphMemTrim, kCall);
  Device* const device = FindDevice(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  device->graph_memory.Trim();
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetGraphMemAttribute)
(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  SIM_ENTER(cuDeviceGetGraphMemAttribute, kNone);
  return GetAttribute(device, attribute, value);
}

SIM_API(cuDeviceSetGraphMemAttribute)
(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  SIM_ENTER(cuDeviceSetGraphMemAttribute, kNone);
  return SetAttribute(device, attribute, value);
}
