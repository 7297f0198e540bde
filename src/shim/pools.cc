// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory and the memory of graphs, charged to the process's share (src/books).
#include "shim/hook.h"
#include "shim/process.h"

namespace gpushare::shim {
namespace {

using books::Books;
using books::Payer;
using driver::Table;

// ---- stream-ordered ----

CUresult MemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return Charge(
      [&](Books& b, const Payer& p) { return b.MemAllocAsync(p, pointer, bytes, stream); },
      [&](const Table& d) { return d.MemAllocAsync(pointer, bytes, stream); });
}
CUresult MemAllocAsyncPerThread(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return MemAllocAsync(pointer, bytes, PerThread(stream));
}
CUresult MemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool,
                               CUstream stream) {
  return Charge(
      [&](Books& b, const Payer& p) {
        return b.MemAllocFromPoolAsync(p, pointer, bytes, pool, stream);
      },
      [&](const Table& d) { return d.MemAllocFromPoolAsync(pointer, bytes, pool, stream); });
}
CUresult MemAllocFromPoolAsyncPerThread(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool,
                                        CUstream stream) {
  return MemAllocFromPoolAsync(pointer, bytes, pool, PerThread(stream));
}
CUresult MemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return Booked([&](Books& b) { return b.MemFreeAsync(pointer, stream); });
}
CUresult MemFreeAsyncPerThread(CUdeviceptr pointer, CUstream stream) {
  return MemFreeAsync(pointer, PerThread(stream));
}
CUresult MemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  return Booked([&](Books& b) { return b.MemPoolCreate(pool, properties); });
}
CUresult MemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  return Booked([&](Books& b) { return b.MemPoolTrimTo(pool, keep); });
}
CUresult MemPoolDestroy(CUmemoryPool pool) {
  return Booked([&](Books& b) { return b.MemPoolDestroy(pool); });
}

// ---- graph memory ----

CUresult GraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return Booked([&](Books& b) { return b.GraphInstantiateWithFlags(exec, graph, flags); });
}
// The other ways to instantiate, of the driver's own.
using InstantiateLogged = CUresult(CUgraphExec*, CUgraph, CUgraphNode*, char*, size_t);
using InstantiateWithParams = CUresult(CUgraphExec*, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS*);

template <typename Function, typename... Arguments>
CUresult Instantiate(const char* name, CUgraphExec* exec, CUgraph graph, Arguments... arguments) {
  return Booked([&](Books& b) {
    const auto real = reinterpret_cast<Function*>(Process::Get().Real(name));
    if (real == nullptr) return CUDA_ERROR_NOT_FOUND;
    const CUresult result = real(exec, graph, arguments...);
    if (result == CUDA_SUCCESS) b.Instantiated(*exec, graph);
    return result;
  });
}
CUresult GraphInstantiate1(CUgraphExec* exec, CUgraph graph, CUgraphNode* node, char* log,
                           size_t size) {
  return Instantiate<InstantiateLogged>("cuGraphInstantiate", exec, graph, node, log, size);
}
CUresult GraphInstantiate2(CUgraphExec* exec, CUgraph graph, CUgraphNode* node, char* log,
                           size_t size) {
  return Instantiate<InstantiateLogged>("cuGraphInstantiate_v2", exec, graph, node, log, size);
}
CUresult GraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                                    CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return Instantiate<InstantiateWithParams>("cuGraphInstantiateWithParams", exec, graph, params);
}
CUresult GraphInstantiateWithParamsPerThread(CUgraphExec* exec, CUgraph graph,
                                             CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return Instantiate<InstantiateWithParams>("cuGraphInstantiateWithParams_ptsz", exec, graph,
                                            params);
}
CUresult GraphExecDestroy(CUgraphExec exec) {
  return Booked([&](Books& b) { return b.GraphExecDestroy(exec); });
}
CUresult GraphLaunch(CUgraphExec exec, CUstream stream) {
  return Charge([&](Books& b, const Payer& p) { return b.GraphLaunch(p, exec, stream); },
                [&](const Table& d) { return d.GraphLaunch(exec, stream); });
}
CUresult GraphLaunchPerThread(CUgraphExec exec, CUstream stream) {
  return GraphLaunch(exec, PerThread(stream));
}
CUresult GraphUpload(CUgraphExec exec, CUstream stream) {
  return Charge([&](Books& b, const Payer& p) { return b.GraphUpload(p, exec, stream); },
                [&](const Table& d) { return d.GraphUpload(exec, stream); });
}
CUresult GraphUploadPerThread(CUgraphExec exec, CUstream stream) {
  return GraphUpload(exec, PerThread(stream));
}
CUresult DeviceGraphMemTrim(CUdevice device) {
  return Booked([&](Books& b) { return b.DeviceGraphMemTrim(device); });
}

}  // namespace

void AddPoolHooks(Hooks* hooks) {
  GPUSHARE_HOOK(hooks, cuMemAllocAsync, &MemAllocAsync);
  GPUSHARE_HOOK_VARIANT(hooks, cuMemAllocAsync, "_ptsz", &MemAllocAsyncPerThread);
  GPUSHARE_HOOK(hooks, cuMemAllocFromPoolAsync, &MemAllocFromPoolAsync);
  GPUSHARE_HOOK_VARIANT(hooks, cuMemAllocFromPoolAsync, "_ptsz", &MemAllocFromPoolAsyncPerThread);
  GPUSHARE_HOOK(hooks, cuMemFreeAsync, &MemFreeAsync);
  GPUSHARE_HOOK_VARIANT(hooks, cuMemFreeAsync, "_ptsz", &MemFreeAsyncPerThread);
  GPUSHARE_HOOK(hooks, cuMemPoolTrimTo, &MemPoolTrimTo);
  GPUSHARE_HOOK(hooks, cuMemPoolDestroy, &MemPoolDestroy);
  GPUSHARE_HOOK(hooks, cuGraphInstantiateWithFlags, &GraphInstantiateWithFlags);
  GPUSHARE_HOOK(hooks, cuGraphExecDestroy, &GraphExecDestroy);
  GPUSHARE_HOOK(hooks, cuGraphLaunch, &GraphLaunch);
  GPUSHARE_HOOK_VARIANT(hooks, cuGraphLaunch, "_ptsz", &GraphLaunchPerThread);
  GPUSHARE_HOOK(hooks, cuGraphUpload, &GraphUpload);
  GPUSHARE_HOOK_VARIANT(hooks, cuGraphUpload, "_ptsz", &GraphUploadPerThread);
  GPUSHARE_HOOK(hooks, cuDeviceGraphMemTrim, &DeviceGraphMemTrim);
  GPUSHARE_HOOK(hooks, cuMemPoolCreate, &MemPoolCreate);
  Add<InstantiateLogged>(hooks, "cuGraphInstantiate", &GraphInstantiate1);
  Add<InstantiateLogged>(hooks, "cuGraphInstantiate_v2", &GraphInstantiate2);
  Add<InstantiateWithParams>(hooks, "cuGraphInstantiateWithParams", &GraphInstantiateWithParams);
  Add<InstantiateWithParams>(hooks, "cuGraphInstantiateWithParams_ptsz",
                             &GraphInstantiateWithParamsPerThread);
}

}  // namespace gpushare::shim
