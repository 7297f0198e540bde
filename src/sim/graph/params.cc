// SPDX-License-Identifier: Apache-2.0
#include "sim/graph/params.h"

#include <algorithm>
#include <vector>

#include "sim/graph/ops.h"
#include "sim/stream/box.h"
#include "sim/stream/transfer.h"

namespace gpushare::sim {

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

CUresult FillKernelNode(GraphNode* node, const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (parameters->extra != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  const CUfunction of_library = reinterpret_cast<CUfunction>(parameters->kern);
  const Function* const function =
      FindFunction(parameters->func != nullptr ? parameters->func : of_library, context);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const GreenContext* const green = CurrentGreen(*CurrentThread());
  const bool is_new = node->function == nullptr;  // a node's context never changes
  if (is_new && green != nullptr) node->partition = green->partition;
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

}  // namespace gpushare::sim
