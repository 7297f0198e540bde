// SPDX-License-Identifier: Apache-2.0
// Hooks of graphs. The memory that their nodes allocate is charged (src/books); their launches are held and charged (src/work).
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "driver/graph_kernel.h"
#include "shim/gated.h"
#include "shim/hook.h"
#include "shim/process.h"

namespace gpushare::shim {
namespace {

using books::Books;
using books::Payer;
using work::Calls;

template <Name kName, typename... A>
CUresult Instantiate(CUgraphExec* exec, CUgraph graph, A... a) {
  return Booked([&](Books& b) {
    CUresult result = Driver<kName, CUresult(CUgraphExec*, CUgraph, A...)>::Call(exec, graph, a...);
    if (result == CUDA_SUCCESS) result = b.Instantiated(exec, graph);
    if (result == CUDA_SUCCESS) Process::Get().calls().GraphInstantiated(*exec, graph);
    return result;
  });
}
CUresult GraphExecDestroy(CUgraphExec exec) {
  return Booked([&](Books& b) {
    Process::Get().calls().GraphDestroyed(exec);
    return b.GraphExecDestroy(exec);
  });
}

CUresult GraphLaunch(CUgraphExec exec, CUstream stream) {
  return Submitted([&](Calls& calls, const work::Payer& payer) {
    return calls.GraphLaunchBy(payer, exec, stream, [&] {
      return Booked<Cancelled::kInTheDriver>(
          [&](Books& b) { return b.GraphLaunch(PayerOn, exec, stream).result; });
    });
  });
}
CUresult GraphLaunchPerThread(CUgraphExec exec, CUstream stream) {
  return GraphLaunch(exec, PerThread(stream));
}
CUresult GraphUpload(CUgraphExec exec, CUstream stream) {
  return Booked([&](Books& b) { return b.GraphUpload(PayerOn, exec, stream).result; });
}
CUresult GraphUploadPerThread(CUgraphExec exec, CUstream stream) {
  return GraphUpload(exec, PerThread(stream));
}

// An upload as part of the instantiation would take memory that is not charged yet. So it is a separate call afterwards.
template <Name kName, CUstream (*kStream)(CUstream)>
CUresult InstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                               CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  using Parameters = CUDA_GRAPH_INSTANTIATE_PARAMS*;
  constexpr cuuint64_t kUpload = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  if (exec == nullptr || parameters == nullptr || (parameters->flags & kUpload) == 0 ||
      !Process::Get().books().TakesMemory(graph)) {
    return Instantiate<kName, Parameters>(exec, graph, parameters);
  }
  CUDA_GRAPH_INSTANTIATE_PARAMS without = *parameters;
  without.flags &= ~kUpload;
  CUresult result = Instantiate<kName, Parameters>(exec, graph, &without);
  parameters->hErrNode_out = without.hErrNode_out;
  parameters->result_out = without.result_out;
  if (result != CUDA_SUCCESS) return result;
  result = GraphUpload(*exec, kStream(parameters->hUploadStream));
  if (result == CUDA_SUCCESS) return result;
  GraphExecDestroy(std::exchange(*exec, nullptr));
  parameters->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}
CUstream AsGiven(CUstream stream) { return stream; }

CUresult DeviceGraphMemTrim(CUdevice device) {
  return Booked([&](Books& b) { return b.DeviceGraphMemTrim(device); });
}

// ---- Changes to an executable graph ----

// The width of the changed kernels as a part of the device: see Calls::GraphChanged(). Called only for changes that the driver
// accepted, so that their arguments can be read.
float AtLeast(Calls&, CUgraphNode, unsigned) {
  return 1;
}  // it is unknown which kernels are enabled
float AtLeast(Calls& calls, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS* node) {
  return calls.KernelFootprint(driver::KernelOf(*node));
}
float AtLeast(Calls& calls, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  CUDA_KERNEL_NODE_PARAMS now = {};
  std::memcpy(&now, parameters,
              sizeof *parameters);  // the longer struct's additional fields stay null
  return AtLeast(calls, node, &now);
}
float AtLeast(Calls&, CUgraphNode, const CUDA_MEMCPY3D*, CUcontext) { return 0; }
float AtLeast(Calls&, CUgraphNode, const CUDA_MEMSET_NODE_PARAMS*, CUcontext) { return 0; }
float AtLeast(Calls& calls, CUgraphNode, CUgraph child) {
  try {
    return calls.GraphFootprint(child);
  } catch (const std::bad_alloc&) {
    return 1;
  }
}
float AtLeast(Calls& calls, CUgraphNode node, CUgraphNodeParams* parameters) {
  switch (parameters->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS kernel = {};
      static_assert(sizeof kernel == sizeof parameters->kernel);
      std::memcpy(&kernel, &parameters->kernel, sizeof kernel);
      return AtLeast(calls, node, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return 1;
    default:
      return 0;
  }
}
// Tells the gate what the change means for copies to and from the host.
void Copies(Calls&, CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*) {}
void Copies(Calls&, CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v1*) {}
void Copies(Calls&, CUgraphExec, CUgraphNode, const CUDA_MEMSET_NODE_PARAMS*, CUcontext) {}
void Copies(Calls& calls, CUgraphExec exec, CUgraphNode node, unsigned enabled) {
  calls.GraphNodeEnabled(exec, node, enabled != 0);
}
void Copies(Calls& calls, CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* copy,
            CUcontext) {
  calls.GraphCopyChanged(exec, node, *copy);
}
void Copies(Calls& calls, CUgraphExec exec, CUgraphNode node, CUgraph child) {
  calls.GraphChildChanged(exec, node, child);
}
void Copies(Calls& calls, CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* parameters) {
  if (parameters->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
    calls.GraphCopyChanged(exec, node, parameters->memcpy.copyParams);
  } else if (parameters->type == CU_GRAPH_NODE_TYPE_GRAPH) {
    calls.GraphChildChanged(exec, node, parameters->graph.graph);
  }
}
template <Name kName, typename... A>
CUresult Change(CUgraphExec exec, A... a) {
  return Submitted([&](Calls& calls, const work::Payer&) {
    const CUresult result = Driver<kName, CUresult(CUgraphExec, A...)>::Call(exec, a...);
    if (result == CUDA_SUCCESS) Copies(calls, exec, a...);
    calls.GraphChanged(exec, result == CUDA_SUCCESS ? AtLeast(calls, a...) : 0);
    return result;
  });
}

// After an update all kernels are those of `graph`. A refused update may have changed a part of them.
template <Name kName, typename... A>
CUresult Update(CUgraphExec exec, CUgraph graph, A... a) {
  return Submitted([&](Calls& calls, const work::Payer&) {
    const CUresult result =
        Driver<kName, CUresult(CUgraphExec, CUgraph, A...)>::Call(exec, graph, a...);
    if (result == CUDA_SUCCESS) {
      calls.GraphUpdated(exec, graph);
    } else {
      calls.GraphChanged(exec);
    }
    return result;
  });
}

template <Name kName, typename... A>
void AddInstantiate(Hooks* hooks) {
  Add<CUresult(CUgraphExec*, CUgraph, A...)>(hooks, kName.text, &Instantiate<kName, A...>);
}
template <Name kName, CUstream (*kStream)(CUstream)>
void AddInstantiateWithParams(Hooks* hooks) {
  Add<CUresult(CUgraphExec*, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS*)>(
      hooks, kName.text, &InstantiateWithParams<kName, kStream>);
}
template <Name kName, typename... A>
void AddChange(Hooks* hooks) {
  Add<CUresult(CUgraphExec, A...)>(hooks, kName.text, &Change<kName, A...>);
}
template <Name kName, typename... A>
void AddUpdate(Hooks* hooks) {
  Add<CUresult(CUgraphExec, CUgraph, A...)>(hooks, kName.text, &Update<kName, A...>);
}

}  // namespace

void AddGraphHooks(Hooks* hooks) {
  AddInstantiate<"cuGraphInstantiate", CUgraphNode*, char*, size_t>(hooks);
  AddInstantiate<"cuGraphInstantiate_v2", CUgraphNode*, char*, size_t>(hooks);
  AddInstantiate<"cuGraphInstantiateWithFlags", unsigned long long>(hooks);
  AddInstantiateWithParams<"cuGraphInstantiateWithParams", &AsGiven>(hooks);
  AddInstantiateWithParams<"cuGraphInstantiateWithParams_ptsz", &PerThread>(hooks);
  GPUSHARE_HOOK(hooks, cuGraphExecDestroy, &GraphExecDestroy);
  GPUSHARE_HOOK(hooks, cuGraphLaunch, &GraphLaunch);
  GPUSHARE_HOOK_VARIANT(hooks, cuGraphLaunch, "_ptsz", &GraphLaunchPerThread);
  GPUSHARE_HOOK(hooks, cuGraphUpload, &GraphUpload);
  GPUSHARE_HOOK_VARIANT(hooks, cuGraphUpload, "_ptsz", &GraphUploadPerThread);
  GPUSHARE_HOOK(hooks, cuDeviceGraphMemTrim, &DeviceGraphMemTrim);

  AddChange<"cuGraphExecKernelNodeSetParams", CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v1*>(
      hooks);
  AddChange<"cuGraphExecKernelNodeSetParams_v2", CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*>(
      hooks);
  AddChange<"cuGraphExecMemcpyNodeSetParams", CUgraphNode, const CUDA_MEMCPY3D*, CUcontext>(hooks);
  AddChange<"cuGraphExecMemsetNodeSetParams", CUgraphNode, const CUDA_MEMSET_NODE_PARAMS*,
            CUcontext>(hooks);
  AddChange<"cuGraphExecChildGraphNodeSetParams", CUgraphNode, CUgraph>(hooks);
  AddChange<"cuGraphExecNodeSetParams", CUgraphNode, CUgraphNodeParams*>(hooks);
  AddChange<"cuGraphNodeSetEnabled", CUgraphNode, unsigned>(hooks);
  AddUpdate<"cuGraphExecUpdate", CUgraphNode*, void*>(hooks);
  AddUpdate<"cuGraphExecUpdate_v2", void*>(hooks);
}

}  // namespace gpushare::shim
