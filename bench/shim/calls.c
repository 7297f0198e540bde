// SPDX-License-Identifier: Apache-2.0
// Measures calls of the driver in a program that does not know what it runs under. Prints nanoseconds per call, one line each
// as "name value direct", from the fastest of several rounds.
//
//   calls [rounds [FIGURE]]                         on whatever driver libcuda.so.1 is; only FIGURE if given
//   calls hold                                      holds 1 MiB until its input ends
//
// `direct` is the same call past everything that may stand before the driver, measured in turns with the other. It needs the
// simulated GPU, under a path in GPUSHARE_SIMULATED that is not the driver's; without that, the value is repeated.
// bench/shim/overhead.py runs this program bare and preloaded, in turns.
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OK(call)                                       \
  do {                                                 \
    const CUresult result = (call);                    \
    if (result != CUDA_SUCCESS) {                      \
      fprintf(stderr, "%s: %d\n", #call, (int)result); \
      exit(1);                                         \
    }                                                  \
  } while (0)

#define KERNEL(name) ".visible .entry " name "() { ret; }\n"
#define COST "//gpushare.sim cost=1us blocks_per_sm=1\n"
static const char kPtx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"  //
    COST KERNEL("short_0") COST KERNEL("short_1") COST KERNEL("short_2") COST KERNEL("short_3");

enum { kCalls = 20000, kBatch = 8, kInFlight = 200, kLive = 100000, kFew = 4 };

typedef CUresult Launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, CUstream, void**, void**);
Launch cuLaunchKernel_ptsz;

// The measured calls, with streams created through the same functions.
typedef struct Driver {
  CUresult (*get_version)(int*);
  CUresult (*mem_get_info)(size_t*, size_t*);
  CUresult (*mem_alloc)(CUdeviceptr*, size_t);
  CUresult (*mem_free)(CUdeviceptr);
  CUresult (*create_stream)(CUstream*, unsigned);
  CUresult (*get_proc_address)(const char*, void**, int, cuuint64_t,
                               CUdriverProcAddressQueryResult*);
  Launch *launch, *launch_ptsz;
  CUstream streams[kFew];
} Driver;

static Driver linked = {.get_version = cuDriverGetVersion,
                        .mem_get_info = cuMemGetInfo,
                        .mem_alloc = cuMemAlloc,
                        .mem_free = cuMemFree,
                        .create_stream = cuStreamCreate,
                        .get_proc_address = cuGetProcAddress,
                        .launch = cuLaunchKernel,
                        .launch_ptsz = cuLaunchKernel_ptsz};
static Driver direct;
static CUfunction functions[kFew];
static CUdeviceptr* live;

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

// The time that `kCalls` calls take in either way. Work that is not part of the call is not timed.
typedef struct Took {
  double linked, direct;
} Took;
#define BOTH(measure) ((Took){measure(&linked), measure(&direct)})

static double GetVersions(const Driver* driver) {
  int value = 0;
  const double begin = Now();
  for (int i = 0; i < kCalls; ++i) OK(driver->get_version(&value));
  return Now() - begin;
}
static Took PassedOn(void) { return BOTH(GetVersions); }

static double MemGetInfos(const Driver* driver) {
  size_t free_bytes = 0, total = 0;
  const double begin = Now();
  for (int i = 0; i < kCalls; ++i) OK(driver->mem_get_info(&free_bytes, &total));
  return Now() - begin;
}
static Took MemGetInfo(void) { return BOTH(MemGetInfos); }

static double AllocsAndFrees(const Driver* driver) {
  const double begin = Now();
  for (int i = 0; i < kCalls; ++i) {
    CUdeviceptr pointer = 0;
    OK(driver->mem_alloc(&pointer, 4096));
    OK(driver->mem_free(pointer));
  }
  return Now() - begin;
}
static Took AllocFree(void) { return BOTH(AllocsAndFrees); }
static double WithManyLive(const Driver* driver) {
  for (int i = 0; i < kLive; ++i) OK(driver->mem_alloc(&live[i], 512));
  const double took = AllocsAndFrees(driver);
  for (int i = 0; i < kLive; ++i) OK(driver->mem_free(live[i]));
  return took;
}
static Took AllocFreeManyLive(void) { return BOTH(WithManyLive); }

static int Ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}
// The median of the times below three times the fastest. On the simulated GPU's virtual clock one thread has the turn at a
// time. With a preloaded library's thread, the turn is handed over and back in every third batch. That takes 4 us and would not
// happen with a real driver; if these batches counted, the median would be the upper quartile of the others. Uses the mean of
// the middle fifth, since a clock with ticks of 10 ns cannot tell single batches apart any better.
static double Median(double* took, int count) {
  double sum = 0;
  int alone = count;
  qsort(took, (size_t)count, sizeof(took[0]), &Ascending);
  while (took[alone - 1] > 3 * took[0]) --alone;
  const int begin = alone * 2 / 5, end = alone * 3 / 5 + 1;
  for (int i = begin; i < end; ++i) sum += took[i];
  return sum / (end - begin);
}

// How a program launches: on one of its streams or a default one, one kernel repeatedly or several in turn.
typedef enum Where { kOwn, kLegacy, kPerThread } Where;
static double LaunchBatch(const Driver* driver, Where where, int streams, int kernels) {
  Launch* const launch = where == kPerThread ? driver->launch_ptsz : driver->launch;
  const double begin = Now();
  for (int k = 0; k < kBatch; ++k) {
    OK(launch(functions[k & (kernels - 1)], 1, 1, 1, 32, 1, 1, 0,
              where == kOwn ? driver->streams[k & (streams - 1)] : NULL, NULL, NULL));
  }
  return Now() - begin;
}
// Uses the median of short batches, since in some of them the gate asks for the next grant. The kernels are too short to reach
// any cap.
static Took Launches(Where where, int streams, int kernels) {
  static double took[2][kCalls / kBatch];
  for (int i = 0; i < kCalls / kBatch; ++i) {
    took[0][i] = LaunchBatch(&linked, where, streams, kernels);
    took[1][i] = LaunchBatch(&direct, where, streams, kernels);
    if (i % (kInFlight / kBatch) == 0) OK(cuCtxSynchronize());
  }
  const int batches = kCalls / kBatch;
  return (Took){Median(took[0], batches) * batches, Median(took[1], batches) * batches};
}
static Took LaunchOwn(void) { return Launches(kOwn, 1, 1); }
static Took LaunchKernels(void) { return Launches(kOwn, 1, kFew); }
static Took LaunchStreams(void) { return Launches(kOwn, kFew, 1); }
static Took LaunchLegacy(void) { return Launches(kLegacy, 1, 1); }
static Took LaunchPerThread(void) { return Launches(kPerThread, 1, 1); }

static double GetProcAddresses(const Driver* driver) {
  void* found = NULL;
  CUdriverProcAddressQueryResult status;
  const double begin = Now();
  for (int i = 0; i < kCalls; ++i) {
    OK(driver->get_proc_address("cuLaunchKernel", &found, 12000, CU_GET_PROC_ADDRESS_DEFAULT,
                                &status));
  }
  return Now() - begin;
}
static Took GetProcAddress(void) { return BOTH(GetProcAddresses); }

static const struct {
  const char* name;
  Took (*run)(void);
} kFigures[] = {{"passed_on", PassedOn},
                {"mem_get_info", MemGetInfo},
                {"alloc_free", AllocFree},
                {"alloc_free_100k_live", AllocFreeManyLive},
                {"launch", LaunchOwn},
                {"launch_4_kernels", LaunchKernels},
                {"launch_4_streams", LaunchStreams},
                {"launch_legacy", LaunchLegacy},
                {"launch_per_thread", LaunchPerThread},
                {"get_proc_address", GetProcAddress}};
enum { kCount = sizeof(kFigures) / sizeof(kFigures[0]) };

static void* Find(void* handle, const char* name) {
  void* const found = dlsym(handle, name);
  if (found != NULL) return found;
  fprintf(stderr, "the simulated driver has no %s\n", name);
  exit(1);
}

// On the simulated GPU's virtual clock, a registered thread calls without a hand-over.
static void FindSimulated(void) {
  const char* const path = getenv("GPUSHARE_SIMULATED");
  void* const handle = path != NULL ? dlopen(path, RTLD_NOW) : NULL;
  direct = linked;
  if (handle == NULL) return;
  ((int (*)(const char*))Find(handle, "gpushare_sim_thread_enter"))("calls");
  *(void**)&direct.get_version = Find(handle, "cuDriverGetVersion");
  *(void**)&direct.mem_get_info = Find(handle, "cuMemGetInfo_v2");
  *(void**)&direct.mem_alloc = Find(handle, "cuMemAlloc_v2");
  *(void**)&direct.mem_free = Find(handle, "cuMemFree_v2");
  *(void**)&direct.create_stream = Find(handle, "cuStreamCreate");
  *(void**)&direct.get_proc_address = Find(handle, "cuGetProcAddress_v2");
  *(void**)&direct.launch = Find(handle, "cuLaunchKernel");
  *(void**)&direct.launch_ptsz = Find(handle, "cuLaunchKernel_ptsz");
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 5;
  const char* const only = argc > 2 ? argv[2] : NULL;
  CUcontext context;
  CUmodule module;
  live = malloc(kLive * sizeof(*live));
  FindSimulated();
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  if (argc > 1 && strcmp(argv[1], "hold") == 0) {
    CUdeviceptr held;
    OK(cuMemAlloc(&held, 1 << 20));
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return 0;
  }
  OK(cuModuleLoadData(&module, kPtx));
  for (int i = 0; i < kFew; ++i) {
    const char name[] = {'s', 'h', 'o', 'r', 't', '_', (char)('0' + i), '\0'};
    OK(cuModuleGetFunction(&functions[i], module, name));
    OK(linked.create_stream(&linked.streams[i], CU_STREAM_NON_BLOCKING));
    OK(direct.create_stream(&direct.streams[i], CU_STREAM_NON_BLOCKING));
  }
  for (int i = 0; i < kCount; ++i) {
    if (only != NULL && strcmp(only, kFigures[i].name) != 0) continue;
    Took best = kFigures[i].run();  // the first run warms up
    for (int k = 0; k < rounds; ++k) {
      const Took took = kFigures[i].run();
      if (k == 0 || took.linked < best.linked) best.linked = took.linked;
      if (k == 0 || took.direct < best.direct) best.direct = took.direct;
    }
    printf("%s %.2f %.2f\n", kFigures[i].name, best.linked / kCalls, best.direct / kCalls);
  }
  free(live);
  return 0;
}
