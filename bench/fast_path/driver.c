// SPDX-License-Identifier: Apache-2.0
// The hooks of a program that uses only the driver API and runs under the preloaded library, with marks around the pieces to
// count.
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/fast_path/steps_here.h"

#define OK(call)                                       \
  do {                                                 \
    const CUresult result = (call);                    \
    if (result != CUDA_SUCCESS) {                      \
      fprintf(stderr, "%s: %d\n", #call, (int)result); \
      exit(1);                                         \
    }                                                  \
  } while (0)

static const char kPtx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    "//gpushare.sim cost=10us blocks_per_sm=1\n.visible .entry shortly() { ret; }\n";

enum { kWarmUp = 200, kSamples = 5 };

static CUcontext current;
static CUfunction function;
static CUstream stream;
static CUdeviceptr memory;
static char host[4096];

static void Nothing(void) {}
static void Launch(void) { OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL)); }
static void LaunchOnLegacy(void) {
  OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
}
static void SynchronizeLegacy(void) { OK(cuStreamSynchronize(NULL)); }
static void SetContext(void) { OK(cuCtxSetCurrent(current)); }
static void Synchronize(void) { OK(cuStreamSynchronize(stream)); }
static void AllocAndFree(void) {
  CUdeviceptr pointer = 0;
  OK(cuMemAlloc(&pointer, 65536));
  OK(cuMemFree(pointer));
}
static void Copy(void) { OK(cuMemcpyHtoDAsync(memory, host, sizeof(host), stream)); }
static void GetInfo(void) {
  size_t left = 0, all = 0;
  OK(cuMemGetInfo(&left, &all));
}
static void GetContext(void) {
  CUcontext context = NULL;
  OK(cuCtxGetCurrent(&context));
}

static void Measure(const char* name, void (*hook)(void), void (*rest)(void)) {
  for (int i = 0; i < kWarmUp; ++i) {
    hook();
    if (i % 8 == 7) rest();
  }
  rest();
  for (int i = 0; i < kSamples; ++i) {
    hook();
    GPUSHARE_STEPS_BEGIN(name);
    hook();
    GPUSHARE_STEPS_END();
    rest();
  }
}

int main(void) {
  CUcontext context = NULL;
  CUmodule module = NULL;
  // A registered thread calls without a hand-over on the virtual clock. To register, the program looks behind the preloaded
  // library, which is the driver to this program and has no such function.
  void* const simulated = dlopen(getenv("FAST_PATH_SIMULATED"), RTLD_NOW);
  int (*enter)(const char*) = NULL;
  *(void**)&enter = simulated == NULL ? NULL : dlsym(simulated, "gpushare_sim_thread_enter");
  if (enter != NULL) enter("fast_path");
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  current = context;
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetFunction(&function, module, "shortly"));
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemAlloc(&memory, 65536));
  for (int i = 0; i < kSamples; ++i) {
    GPUSHARE_STEPS_BEGIN("nothing");
    Nothing();
    GPUSHARE_STEPS_END();
  }
  Measure("cuCtxGetCurrent, passed on", GetContext, Nothing);
  Measure("cuCtxSetCurrent, to the same one", SetContext, Nothing);
  Measure("cuLaunchKernel under a cap", Launch, Synchronize);
  Measure("cuLaunchKernel under a cap, on the legacy stream", LaunchOnLegacy, SynchronizeLegacy);
  Measure("cuStreamSynchronize, idle", Synchronize, Nothing);
  Measure("cuMemAlloc and cuMemFree", AllocAndFree, Nothing);
  Measure("cuMemcpyHtoDAsync, not limited", Copy, Synchronize);
  Measure("cuMemGetInfo", GetInfo, Nothing);
  return 0;
}
