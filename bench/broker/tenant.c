// SPDX-License-Identifier: Apache-2.0
// An unmodified program that keeps the device busy:
//
//   tenant KERNEL_US SECONDS      launches kernels of KERNEL_US, two in flight, for SECONDS
//
// Prints for each second, counted by the real-time clock, what part of it its kernels took.
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char kPtx[] =
    ".version 7.5\n.target sm_90\n.address_size 64\n"
    "//gpushare.sim cost=param:0 blocks_per_sm=1\n"
    ".visible .entry spin(.param .u64 ns) { ret; }\n";

static void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: %d\n", what, (int)result);
  exit(1);
}
#define CHECK(call) Check(call, #call)

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  unsigned long long ns = (unsigned long long)(1000 * atof(argv[1]));
  const long seconds = atol(argv[2]);
  CUcontext context;
  CUmodule module;
  CUfunction spin;
  CUstream stream;
  CUevent events[2];
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoadData(&module, kPtx));
  CHECK(cuModuleGetFunction(&spin, module, "spin"));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 2; ++i) CHECK(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
  void* parameters[] = {&ns};
  const long first = (long)Now() + 1;  // the second that is under way does not count
  long second = first - 1, ended = 0;
  for (unsigned long launches = 0; second < first + seconds; ++launches) {
    if (launches >= 2) {
      CHECK(cuEventSynchronize(events[launches % 2]));
      ++ended;
    }
    const long now = (long)Now();
    if (now != second) {
      if (second >= first) printf("%.4f\n", 1e-9 * (double)ended * (double)ns);
      second = now;
      ended = 0;
    }
    CHECK(cuLaunchKernel(spin, 132, 1, 1, 1024, 1, 1, 0, stream, parameters, NULL));
    CHECK(cuEventRecord(events[launches % 2], stream));
  }
  return 0;
}
