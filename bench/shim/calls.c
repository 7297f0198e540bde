// SPDX-License-Identifier: Apache-2.0
// What calls of the driver cost a program that knows nothing of what it runs under: nanoseconds a call, a line each
// as "name value", the fastest of several rounds.
//
//   calls [rounds]                                  on whatever driver libcuda.so.1 is
//
// bench/shim/overhead.py runs it bare and preloaded, in turns.
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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
    "//gpushare.sim cost=1us blocks_per_sm=1\n"
    ".visible .entry short_one() { ret; }\n";

enum { kCalls = 20000, kBatch = 10, kInFlight = 200, kLive = 100000 };

static CUfunction function;
static CUstream stream;
static CUdeviceptr* live;

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

// Each: `kCalls` calls; what they take that is no part of the call is outside of the time.
static double PassedOn(void) {
  int value = 0;
  const double begin = Now();
  for (int i = 0; i < kCalls; ++i) OK(cuDriverGetVersion(&value));
  return Now() - begin;
}
static double MemGetInfo(void) {
  size_t free_bytes = 0, total = 0;
  const double begin = Now();
  for (int i = 0; i < kCalls; ++i) OK(cuMemGetInfo(&free_bytes, &total));
  return Now() - begin;
}
static double AllocFree(void) {
  const double begin = Now();
  for (int i = 0; i < kCalls; ++i) {
    CUdeviceptr pointer = 0;
    OK(cuMemAlloc(&pointer, 4096));
    OK(cuMemFree(pointer));
  }
  return Now() - begin;
}
static double AllocFreeManyLive(void) {
  for (int i = 0; i < kLive; ++i) OK(cuMemAlloc(&live[i], 512));
  const double took = AllocFree();
  for (int i = 0; i < kLive; ++i) OK(cuMemFree(live[i]));
  return took;
}
static int Ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}
// By the median of short batches: in some the gate asks for the next grant. The kernels are so short that no cap is
// met.
static double Launch(void) {
  double took[kCalls / kBatch];
  for (int i = 0; i < kCalls / kBatch; ++i) {
    const double begin = Now();
    for (int k = 0; k < kBatch; ++k) {
      OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    }
    took[i] = Now() - begin;
    if (i % (kInFlight / kBatch) == 0) OK(cuStreamSynchronize(stream));
  }
  qsort(took, kCalls / kBatch, sizeof(took[0]), &Ascending);
  return took[kCalls / kBatch / 2] * (kCalls / kBatch);
}
static double GetProcAddress(void) {
  void* found = NULL;
  CUdriverProcAddressQueryResult status;
  const double begin = Now();
  for (int i = 0; i < kCalls; ++i) {
    OK(cuGetProcAddress("cuLaunchKernel", &found, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
  }
  return Now() - begin;
}

static const struct {
  const char* name;
  double (*run)(void);
} kFigures[] = {{"passed_on", PassedOn},   {"mem_get_info", MemGetInfo},
                {"alloc_free", AllocFree}, {"alloc_free_100k_live", AllocFreeManyLive},
                {"launch", Launch},        {"get_proc_address", GetProcAddress}};
enum { kCount = sizeof(kFigures) / sizeof(kFigures[0]) };

// On the simulated GPU's virtual clock a thread that is registered calls without a hand-over: GPUSHARE_SIMULATED
// names the simulated driver by a path that is not the driver's.
static void Register(void) {
  const char* const path = getenv("GPUSHARE_SIMULATED");
  void* const handle = path != NULL ? dlopen(path, RTLD_NOW) : NULL;
  int (*const enter)(const char*) =
      handle != NULL ? (int (*)(const char*))dlsym(handle, "gpushare_sim_thread_enter") : NULL;
  if (enter != NULL) enter("calls");
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 5;
  CUcontext context;
  CUmodule module;
  live = malloc(kLive * sizeof(*live));
  Register();
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetFunction(&function, module, "short_one"));
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < kCount; ++i) {
    double best = kFigures[i].run();  // the first warms up
    for (int k = 0; k < rounds; ++k) {
      const double took = kFigures[i].run();
      if (k == 0 || took < best) best = took;
    }
    printf("%s %.2f\n", kFigures[i].name, best / kCalls);
  }
  free(live);
  return 0;
}
