// SPDX-License-Identifier: Apache-2.0
// Graphs: what their nodes allocate is charged (src/books), their launches are held and charged (src/work).
#include <optional>

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
    const CUresult result =
        Driver<kName, CUresult(CUgraphExec*, CUgraph, A...)>::Call(exec, graph, a...);
    if (result == CUDA_SUCCESS) {
      b.Instantiated(*exec, graph);
      Process::Get().calls().GraphInstantiated(*exec, graph);
    }
    return result;
  });
}
CUresult GraphExecDestroy(CUgraphExec exec) {
  return Booked([&](Books& b) {
    Process::Get().calls().GraphChanged(exec);
    return b.GraphExecDestroy(exec);
  });
}

// A graph allocates on the GPUs that its nodes name: on each the share there pays.
std::optional<Payer> PayerOn(CUdevice device) {
  const Process::Found found = Process::Get().ShareOn(device);
  if (found.refused) return std::nullopt;
  return Payer{.account = &found.share->account(),
               .owner = found.share->slot(),
               .context = found.context,
               .device = device};
}

CUresult GraphLaunch(CUgraphExec exec, CUstream stream) {
  return Submitted([&](Calls& calls, const work::Payer& payer) {
    return calls.GraphLaunchBy(payer, exec, stream, [&] {
      return Booked([&](Books& b) { return b.GraphLaunch(PayerOn, exec, stream).result; });
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
CUresult DeviceGraphMemTrim(CUdevice device) {
  return Booked([&](Books& b) { return b.DeviceGraphMemTrim(device); });
}

// ---- what changes an executable ----

template <Name kName, typename... A>
CUresult Change(CUgraphExec exec, A... a) {
  return Submitted([&](Calls& calls, const work::Payer&) {
    const CUresult result = Driver<kName, CUresult(CUgraphExec, A...)>::Call(exec, a...);
    calls.GraphChanged(exec);  // a refused update may have changed a part
    return result;
  });
}

template <Name kName, typename... A>
void AddInstantiate(Hooks* hooks) {
  Add<CUresult(CUgraphExec*, CUgraph, A...)>(hooks, kName.text, &Instantiate<kName, A...>);
}
template <Name kName, typename... A>
void AddChange(Hooks* hooks) {
  Add<CUresult(CUgraphExec, A...)>(hooks, kName.text, &Change<kName, A...>);
}

}  // namespace

void AddGraphHooks(Hooks* hooks) {
  AddInstantiate<"cuGraphInstantiate", CUgraphNode*, char*, size_t>(hooks);
  AddInstantiate<"cuGraphInstantiate_v2", CUgraphNode*, char*, size_t>(hooks);
  AddInstantiate<"cuGraphInstantiateWithFlags", unsigned long long>(hooks);
  AddInstantiate<"cuGraphInstantiateWithParams", CUDA_GRAPH_INSTANTIATE_PARAMS*>(hooks);
  AddInstantiate<"cuGraphInstantiateWithParams_ptsz", CUDA_GRAPH_INSTANTIATE_PARAMS*>(hooks);
  GPUSHARE_HOOK(hooks, cuGraphExecDestroy, &GraphExecDestroy);
  GPUSHARE_HOOK(hooks, cuGraphLaunch, &GraphLaunch);
  GPUSHARE_HOOK_VARIANT(hooks, cuGraphLaunch, "_ptsz", &GraphLaunchPerThread);
  GPUSHARE_HOOK(hooks, cuGraphUpload, &GraphUpload);
  GPUSHARE_HOOK_VARIANT(hooks, cuGraphUpload, "_ptsz", &GraphUploadPerThread);
  GPUSHARE_HOOK(hooks, cuDeviceGraphMemTrim, &DeviceGraphMemTrim);

  AddChange<"cuGraphExecKernelNodeSetParams", CUgraphNode, const void*>(hooks);
  AddChange<"cuGraphExecKernelNodeSetParams_v2", CUgraphNode, const void*>(hooks);
  AddChange<"cuGraphExecMemcpyNodeSetParams", CUgraphNode, const CUDA_MEMCPY3D*, CUcontext>(hooks);
  AddChange<"cuGraphExecMemsetNodeSetParams", CUgraphNode, const void*, CUcontext>(hooks);
  AddChange<"cuGraphExecChildGraphNodeSetParams", CUgraphNode, CUgraph>(hooks);
  AddChange<"cuGraphExecNodeSetParams", CUgraphNode, void*>(hooks);
  AddChange<"cuGraphNodeSetEnabled", CUgraphNode, unsigned>(hooks);
  AddChange<"cuGraphExecUpdate", CUgraph, CUgraphNode*, void*>(hooks);
  AddChange<"cuGraphExecUpdate_v2", CUgraph, void*>(hooks);
}

}  // namespace gpushare::shim
