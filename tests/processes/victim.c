// SPDX-License-Identifier: Apache-2.0
// An unmodified program that makes all kinds of calls without pause, so that it can be killed at any instruction:
//
//   victim [SECONDS]      registers, then allocates, launches, copies and frees until it is killed, or for SECONDS
//
// With SECONDS it prints the number of its rounds.
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char kPtx[] =
    ".version 7.5\n.target sm_90\n.address_size 64\n"
    "//gpushare.sim cost=param:0 blocks_per_sm=1\n"
    ".visible .entry spin(.param .u64 ns) { ret; }\n";

static void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY) return;
  fprintf(stderr, "%s: %d\n", what, (int)result);
  exit(1);
}

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? atof(argv[1]) : 1e9;
  CUcontext context;
  CUmodule module;
  CUfunction spin;
  CUstream stream;
  Check(cuInit(0), "cuInit");
  Check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  Check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  Check(cuModuleLoadData(&module, kPtx), "cuModuleLoadData");
  Check(cuModuleGetFunction(&spin, module, "spin"), "cuModuleGetFunction");
  Check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  static char host[65536];
  unsigned long rounds = 0;
  for (const double end = Now() + seconds; Now() < end; ++rounds) {
    CUdeviceptr pieces[4] = {0};
    for (int i = 0; i < 4; ++i) Check(cuMemAlloc(&pieces[i], (size_t)(i + 1) << 20), "cuMemAlloc");
    unsigned long long ns = 20000;
    void* parameters[] = {&ns};
    for (int i = 0; i < 8; ++i) {
      Check(cuLaunchKernel(spin, 132, 1, 1, 1024, 1, 1, 0, stream, parameters, NULL),
            "cuLaunchKernel");
    }
    if (pieces[0] != 0)
      Check(cuMemcpyHtoDAsync(pieces[0], host, sizeof host, stream), "cuMemcpyHtoDAsync");
    Check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    for (int i = 0; i < 4; ++i) {
      if (pieces[i] != 0) Check(cuMemFree(pieces[i]), "cuMemFree");
    }
  }
  printf("%lu\n", rounds);
  return 0;
}
