// SPDX-License-Identifier: Apache-2.0
// Measures calls of NVML in a program that does not know what it runs under. Prints nanoseconds per call, one line each as
// "name value", from the fastest of several rounds: first as a monitor that never calls the driver, then with a context.
//
//   nvml_calls [rounds]                                  on whatever libnvidia-ml.so.1 and libcuda.so.1 are
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define OK(call)                                  \
  do {                                            \
    const int result = (int)(call);               \
    if (result != 0) {                            \
      fprintf(stderr, "%s: %d\n", #call, result); \
      exit(1);                                    \
    }                                             \
  } while (0)

typedef struct Memory {
  unsigned long long total, free, used;
} Memory;
typedef struct Process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
} Process;

int nvmlInit_v2(void);
int nvmlSystemGetCudaDriverVersion_v2(int* version);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device);
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory);
int nvmlDeviceGetUtilizationRates(void* device, unsigned rates[2]);
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* list);

enum { kCalls = 2000 };

static void* device;

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void PassedOn(void) {
  int version = 0;
  OK(nvmlSystemGetCudaDriverVersion_v2(&version));
}
static void MemoryInfo(void) {
  Memory memory;
  OK(nvmlDeviceGetMemoryInfo(device, &memory));
}
static void Utilization(void) {
  unsigned rates[2];
  OK(nvmlDeviceGetUtilizationRates(device, rates));
}
static void Processes(void) {
  Process list[8];
  unsigned count = 8;
  OK(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list));
}

static const struct {
  const char* name;
  void (*call)(void);
} kFigures[] = {{"passed_on", PassedOn},
                {"memory_info", MemoryInfo},
                {"utilization", Utilization},
                {"processes", Processes}};

static void Measure(const char* prefix, int rounds) {
  for (size_t i = 0; i < sizeof(kFigures) / sizeof(kFigures[0]); ++i) {
    double best = 1e18;
    for (int round = 0; round < rounds; ++round) {
      const double begin = Now();
      for (int call = 0; call < kCalls; ++call) kFigures[i].call();
      const double took = (Now() - begin) / kCalls;
      if (took < best) best = took;
    }
    printf("%s%s %.2f\n", prefix, kFigures[i].name, best);
  }
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 5;
  CUcontext context;
  CUdeviceptr pointer;
  OK(nvmlInit_v2());
  OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
  Measure("monitor_", rounds);
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuMemAlloc(&pointer, 1 << 20));
  Measure("nvml_", rounds);
  return 0;
}
