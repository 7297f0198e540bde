// SPDX-License-Identifier: Apache-2.0
// The hooks for a process that is recorded: its launches, the names of its functions, the graphs that it instantiates, and the
// ends of contexts. All calls are passed on unchanged.
#include <type_traits>

#include "shim/gated.h"
#include "shim/hook.h"
#include "shim/record/recorder.h"

namespace gpushare::shim {
namespace recording {
namespace {

// Runs `record(recorder, call)`, or `call()` if nothing is recorded.
template <typename Call, typename With>
CUresult Recorded(const Call& call, const With& record) {
  Recorder* const recorder = Recorder::Find();
  if (recorder == nullptr) return call();
  return Guarded([&] { return record(*recorder, call); });
}

template <Name kName>
constexpr CUstream StreamOf(CUstream stream) {
  return kName.per_thread() ? PerThread(stream) : stream;
}

// ---- Launches ----

template <Name kName>
CUresult LaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                      unsigned by, unsigned bz, unsigned shared, CUstream stream, void** params,
                      void** extra) {
  const auto call = [&] {
    return Driver<kName, CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                  unsigned, unsigned, CUstream, void**, void**)>::Call(function, gx,
                                                                                       gy, gz, bx,
                                                                                       by, bz,
                                                                                       shared,
                                                                                       stream,
                                                                                       params,
                                                                                       extra);
  };
  return Recorded(call, [&](Recorder& recorder, const auto& launch) {
    return recorder.Kernel(function, {{gx, gy, gz}, {bx, by, bz}, shared}, StreamOf<kName>(stream),
                           launch);
  });
}

template <Name kName>
CUresult LaunchCooperative(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                           unsigned by, unsigned bz, unsigned shared, CUstream stream,
                           void** params) {
  const auto call = [&] {
    return Driver<kName, CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                  unsigned, unsigned, CUstream, void**)>::Call(function, gx, gy, gz,
                                                                               bx, by, bz, shared,
                                                                               stream, params);
  };
  return Recorded(call, [&](Recorder& recorder, const auto& launch) {
    return recorder.Kernel(function, {{gx, gy, gz}, {bx, by, bz}, shared}, StreamOf<kName>(stream),
                           launch);
  });
}

template <Name kName>
CUresult LaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params,
                        void** extra) {
  const auto call = [&] {
    return Driver<kName, CUresult(const CUlaunchConfig*, CUfunction, void**, void**)>::Call(
        config, function, params, extra);
  };
  if (config == nullptr) return call();
  return Recorded(call, [&](Recorder& recorder, const auto& launch) {
    return recorder.Kernel(function,
                           {{config->gridDimX, config->gridDimY, config->gridDimZ},
                            {config->blockDimX, config->blockDimY, config->blockDimZ},
                            config->sharedMemBytes},
                           StreamOf<kName>(config->hStream), launch);
  });
}

// Launches of before CUDA 4, where the block's shape is part of the function's state.
template <typename Call>
CUresult LaunchOfOld(CUfunction function, int width, int height, CUstream stream,
                     const Call& call) {
  if (width <= 0 || height <= 0) return call();
  return Recorded(call, [&](Recorder& recorder, const auto& launch) {
    const driver::Dim3 grid{static_cast<unsigned>(width), static_cast<unsigned>(height), 1};
    return recorder.Kernel(function, {grid, {0, 0, 0}, 0}, stream, launch);
  });
}
CUresult LaunchOld(CUfunction function) {
  return LaunchOfOld(function, 1, 1, nullptr,
                     [&] { return Driver<"cuLaunch", CUresult(CUfunction)>::Call(function); });
}
CUresult LaunchGrid(CUfunction function, int width, int height) {
  return LaunchOfOld(function, width, height, nullptr, [&] {
    return Driver<"cuLaunchGrid", CUresult(CUfunction, int, int)>::Call(function, width, height);
  });
}
CUresult LaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
  return LaunchOfOld(function, width, height, stream, [&] {
    return Driver<"cuLaunchGridAsync", CUresult(CUfunction, int, int, CUstream)>::Call(
        function, width, height, stream);
  });
}

CUresult LaunchOnSeveral(CUDA_LAUNCH_PARAMS* launches, unsigned devices, unsigned flags) {
  const auto call = [&] {
    return Driver<"cuLaunchCooperativeKernelMultiDevice",
                  CUresult(CUDA_LAUNCH_PARAMS*, unsigned, unsigned)>::Call(launches, devices,
                                                                           flags);
  };
  return Recorded(
      call, [](Recorder& recorder, const auto& launch) { return recorder.Unmeasured(launch); });
}

// ---- Graphs ----

template <Name kName>
CUresult LaunchGraph(CUgraphExec exec, CUstream stream) {
  const auto call = [&] {
    return Driver<kName, CUresult(CUgraphExec, CUstream)>::Call(exec, stream);
  };
  return Recorded(call, [&](Recorder& recorder, const auto& launch) {
    return recorder.Graph(exec, StreamOf<kName>(stream), launch);
  });
}

template <Name kName, typename... A>
CUresult MakeExec(CUgraphExec* exec, CUgraph graph, A... a) {
  const auto call = [&] {
    return Driver<kName, CUresult(CUgraphExec*, CUgraph, A...)>::Call(exec, graph, a...);
  };
  return Recorded(call, [&](Recorder& recorder, const auto& make) {
    const CUresult result = make();
    if (result == CUDA_SUCCESS) recorder.Instantiated(*exec, graph);
    return result;
  });
}
template <Name kName, typename... A>
void AddMakeExec(Hooks* hooks) {
  Add<CUresult(CUgraphExec*, CUgraph, A...)>(hooks, kName.text, &MakeExec<kName, A...>);
}

// ---- Names ----

template <Name kName, typename Found, typename Where>
CUresult ByName(Found* found, Where where, const char* name) {
  const auto call = [&] {
    return Driver<kName, CUresult(Found*, Where, const char*)>::Call(found, where, name);
  };
  return Recorded(call, [&](Recorder& recorder, const auto& find) {
    const CUresult result = find();
    if (result == CUDA_SUCCESS) recorder.names().Put(*found, name);
    return result;
  });
}

CUresult FunctionOfKernel(CUfunction* function, CUkernel kernel) {
  const auto call = [&] {
    return Driver<"cuKernelGetFunction", CUresult(CUfunction*, CUkernel)>::Call(function, kernel);
  };
  return Recorded(call, [&](Recorder& recorder, const auto& find) {
    const CUresult result = find();
    if (result == CUDA_SUCCESS) recorder.names().PutAlike(*function, kernel);
    return result;
  });
}

CUresult KernelsOfLibrary(CUkernel* kernels, unsigned count, CUlibrary library) {
  const auto call = [&] {
    return Driver<"cuLibraryEnumerateKernels", CUresult(CUkernel*, unsigned, CUlibrary)>::Call(
        kernels, count, library);
  };
  return Recorded(call, [&](Recorder& recorder, const auto& find) {
    const CUresult result = find();
    for (unsigned i = 0; result == CUDA_SUCCESS && i < count; ++i) {
      const char* name = nullptr;
      if (Driver<"cuKernelGetName", CUresult(const char**, CUkernel)>::Call(&name, kernels[i]) ==
              CUDA_SUCCESS &&
          name != nullptr) {
        recorder.names().Put(kernels[i], name);
      }
    }
    return result;
  });
}

// ---- Contexts ----

template <Name kName, typename Handle>
CUresult EndContexts(Handle handle) {
  const auto call = [&] { return Driver<kName, CUresult(Handle)>::Call(handle); };
  return Recorded(call, [](Recorder& recorder, const auto& end) {
    recorder.ContextsEnd();
    return end();
  });
}
template <Name kName, typename Handle>
void AddEndContexts(Hooks* hooks) {
  Add<CUresult(Handle)>(hooks, kName.text, &EndContexts<kName, Handle>);
}

}  // namespace
}  // namespace recording

void AddRecordHooks(Hooks* hooks) {
  using namespace recording;  // NOLINT(google-build-using-namespace): its own
  using Kernel = CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          unsigned, CUstream, void**, void**);
  Add<Kernel>(hooks, "cuLaunchKernel", &LaunchKernel<"cuLaunchKernel">);
  Add<Kernel>(hooks, "cuLaunchKernel_ptsz", &LaunchKernel<"cuLaunchKernel_ptsz">);
  using Cooperative = CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                               unsigned, unsigned, CUstream, void**);
  Add<Cooperative>(hooks, "cuLaunchCooperativeKernel",
                   &LaunchCooperative<"cuLaunchCooperativeKernel">);
  Add<Cooperative>(hooks, "cuLaunchCooperativeKernel_ptsz",
                   &LaunchCooperative<"cuLaunchCooperativeKernel_ptsz">);
  using Ex = CUresult(const CUlaunchConfig*, CUfunction, void**, void**);
  Add<Ex>(hooks, "cuLaunchKernelEx", &LaunchKernelEx<"cuLaunchKernelEx">);
  Add<Ex>(hooks, "cuLaunchKernelEx_ptsz", &LaunchKernelEx<"cuLaunchKernelEx_ptsz">);
  Add<CUresult(CUfunction)>(hooks, "cuLaunch", &LaunchOld);
  Add<CUresult(CUfunction, int, int)>(hooks, "cuLaunchGrid", &LaunchGrid);
  Add<CUresult(CUfunction, int, int, CUstream)>(hooks, "cuLaunchGridAsync", &LaunchGridAsync);
  Add<CUresult(CUDA_LAUNCH_PARAMS*, unsigned, unsigned)>(
      hooks, "cuLaunchCooperativeKernelMultiDevice", &LaunchOnSeveral);

  using Graph = CUresult(CUgraphExec, CUstream);
  Add<Graph>(hooks, "cuGraphLaunch", &LaunchGraph<"cuGraphLaunch">);
  Add<Graph>(hooks, "cuGraphLaunch_ptsz", &LaunchGraph<"cuGraphLaunch_ptsz">);
  AddMakeExec<"cuGraphInstantiate", CUgraphNode*, char*, size_t>(hooks);
  AddMakeExec<"cuGraphInstantiate_v2", CUgraphNode*, char*, size_t>(hooks);
  AddMakeExec<"cuGraphInstantiateWithFlags", unsigned long long>(hooks);
  AddMakeExec<"cuGraphInstantiateWithParams", CUDA_GRAPH_INSTANTIATE_PARAMS*>(hooks);
  AddMakeExec<"cuGraphInstantiateWithParams_ptsz", CUDA_GRAPH_INSTANTIATE_PARAMS*>(hooks);

  Add<CUresult(CUfunction*, CUmodule, const char*)>(
      hooks, "cuModuleGetFunction", &ByName<"cuModuleGetFunction", CUfunction, CUmodule>);
  Add<CUresult(CUkernel*, CUlibrary, const char*)>(
      hooks, "cuLibraryGetKernel", &ByName<"cuLibraryGetKernel", CUkernel, CUlibrary>);
  Add<CUresult(CUfunction*, CUkernel)>(hooks, "cuKernelGetFunction", &FunctionOfKernel);
  Add<CUresult(CUkernel*, unsigned, CUlibrary)>(hooks, "cuLibraryEnumerateKernels",
                                                &KernelsOfLibrary);

  AddEndContexts<"cuCtxDestroy", CUcontext>(hooks);
  AddEndContexts<"cuCtxDestroy_v2", CUcontext>(hooks);
  AddEndContexts<"cuCtxDetach", CUcontext>(hooks);
  AddEndContexts<"cuGreenCtxDestroy", CUgreenCtx>(hooks);
  AddEndContexts<"cuDevicePrimaryCtxRelease", CUdevice>(hooks);
  AddEndContexts<"cuDevicePrimaryCtxRelease_v2", CUdevice>(hooks);
  AddEndContexts<"cuDevicePrimaryCtxReset", CUdevice>(hooks);
  AddEndContexts<"cuDevicePrimaryCtxReset_v2", CUdevice>(hooks);
}

}  // namespace gpushare::shim
