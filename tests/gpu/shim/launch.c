/* SPDX-License-Identifier: Apache-2.0
 * Measures the host's cost of a launch: the median over bursts, in nanoseconds, for an empty kernel. The program does not use gpushare,
 * and is run with and without the preloaded library. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BURSTS 3000
#define LAUNCHES 10 /* fewer than a gate lets through at once: none of them waits */

static const char kPtx[] =
    ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry nothing() { ret; }\n";

static uint64_t Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int Compare(const void* a, const void* b) {
  const uint64_t x = *(const uint64_t*)a, y = *(const uint64_t*)b;
  return x < y ? -1 : x > y;
}

static void Check(int result, const char* what) {
  if (result == 0) return;
  fprintf(stderr, "%s: %d\n", what, result);
  exit(1);
}

int main(void) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  int (*const init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*const retain)(void**, int) =
      (int (*)(void**, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
  int (*const set)(void*) = (int (*)(void*))dlsym(driver, "cuCtxSetCurrent");
  int (*const load)(void**, const void*) =
      (int (*)(void**, const void*))dlsym(driver, "cuModuleLoadData");
  int (*const get)(void**, void*, const char*) =
      (int (*)(void**, void*, const char*))dlsym(driver, "cuModuleGetFunction");
  int (*const stream_of)(void**, unsigned) =
      (int (*)(void**, unsigned))dlsym(driver, "cuStreamCreate");
  int (*const wait)(void*) = (int (*)(void*))dlsym(driver, "cuStreamSynchronize");
  int (*const launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      void*, void**, void**) =
      (int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
               void**, void**))dlsym(driver, "cuLaunchKernel");
  void *context, *module, *kernel, *stream;
  Check(init(0), "cuInit");
  Check(retain(&context, 0), "cuDevicePrimaryCtxRetain");
  Check(set(context), "cuCtxSetCurrent");
  Check(load(&module, kPtx), "cuModuleLoadData");
  Check(get(&kernel, module, "nothing"), "cuModuleGetFunction");
  Check(stream_of(&stream, 1), "cuStreamCreate");
  static uint64_t took[BURSTS];
  for (int burst = -20; burst < BURSTS; ++burst) { /* the first are not counted */
    const uint64_t begin = Now();
    for (int i = 0; i < LAUNCHES; ++i) {
      Check(launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), "cuLaunchKernel");
    }
    if (burst >= 0) took[burst] = Now() - begin;
    Check(wait(stream), "cuStreamSynchronize");
  }
  qsort(took, BURSTS, sizeof took[0], Compare);
  printf("%.1f\n", (double)took[BURSTS / 2] / LAUNCHES);
  return 0;
}
