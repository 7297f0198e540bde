/* SPDX-License-Identifier: Apache-2.0
 * What a library that cuInit runs (CUDA_INJECTION64_PATH) may get hold of while gpushare is brought in, on the thread that
 * made the first call: injection HOW SIMULATED. Such code is stood in for by a look at the environment, which the engine
 * takes meanwhile. Prints how often the driver was asked which context is current, within 10 calls that need to know, and
 * ends with status 0. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char** environ;

static const char* how;
static int injected;
static CUresult (*set_current)(CUcontext);

static void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: %d\n", what, (int)result);
  exit(1);
}

static void* Find(const char* name) {
  void* found = NULL;
  CUdriverProcAddressQueryResult status;
  Check(cuGetProcAddress(name, &found, 12000, 0, &status), "cuGetProcAddress");
  return found;
}

static void Inject(void) {
  const void* table = NULL;
  const CUuuid id = {{0}};
  CUcontext context;
  if (strcmp(how, "calls") == 0) cuCtxPopCurrent(&context);
  if (strcmp(how, "changes") == 0) Find("cuCtxSetCurrent");
  if (strcmp(how, "asks") == 0) Find("cuCtxGetCurrent");
  if (strcmp(how, "ends") == 0) Find("cuDevicePrimaryCtxReset");
  if (strcmp(how, "table") == 0 && cuGetExportTable(&table, &id) == CUDA_SUCCESS) exit(3);
}

/* Replaces the C library's getenv() for all objects of the process. */
__attribute__((visibility("default"))) char* getenv(const char* name) {
  const size_t length = strlen(name);
  if (how != NULL && !injected && strcmp(name, "GPUSHARE_OVER_QUOTA") == 0) {
    injected = 1;
    Inject();
  }
  for (char** each = environ; *each != NULL; ++each) {
    if (strncmp(*each, name, length) == 0 && (*each)[length] == '=') return *each + length + 1;
  }
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  how = argv[1];
  if (strcmp(how, "refused") == 0) {
    /* A function that was looked up without a share acts as the hook once there is one. */
    setenv("GPUSHARE_SPEC", "memory=nonsense", 1);
    CUcontext context;
    const void* table = NULL;
    const CUuuid id = {{0}};
    set_current = (CUresult(*)(CUcontext))(uintptr_t)Find("cuCtxSetCurrent");
    printf("%d %d %d %d ", cuInit(0) == CUDA_ERROR_INVALID_VALUE,
           set_current((CUcontext)NULL) == CUDA_ERROR_INVALID_VALUE,
           cuCtxPopCurrent(&context) == CUDA_ERROR_INVALID_VALUE,
           cuGetExportTable(&table, &id) == CUDA_ERROR_INVALID_VALUE);
    setenv("GPUSHARE_SPEC", "memory=1GiB", 1);
  }
  Check(cuInit(0), "cuInit");
  if (!injected) return 4;
  void* const simulated = dlopen(argv[2], RTLD_NOW);
  if (simulated == NULL) return 5;
  unsigned long (*calls)(const char*) =
      (unsigned long (*)(const char*))(uintptr_t)dlsym(simulated, "gpushare_sim_calls");
  CUcontext context;
  size_t available, total;
  Check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  Check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  /* The first call starts the engine for the GPU, which uses its own contexts. */
  for (int i = 0; i < 2; ++i) Check(cuMemGetInfo(&available, &total), "cuMemGetInfo");
  if (total != (size_t)1 << 30) return 6;
  if (strcmp(how, "past") == 0) { /* bypasses the hooks to switch to the second GPU */
    CUresult (*const set_past)(CUcontext) =
        (CUresult(*)(CUcontext))(uintptr_t)dlsym(simulated, "cuCtxSetCurrent");
    CUcontext other;
    CUdeviceptr memory;
    size_t left;
    Check(cuDevicePrimaryCtxRetain(&other, 1), "cuDevicePrimaryCtxRetain");
    Check(set_past(other), "cuCtxSetCurrent");
    Check(cuMemAlloc(&memory, 64 << 20), "cuMemAlloc");
    Check(cuMemGetInfo(&left, &total), "cuMemGetInfo");
    printf("%d ", left + (64 << 20) <= total);
    Check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    Check(cuMemGetInfo(&left, &total), "cuMemGetInfo");
    printf("%d ", left == available);
  }
  const unsigned long before = calls("cuCtxGetCurrent");
  for (int i = 0; i < 10; ++i) {
    if (set_current != NULL && i % 2 == 0) Check(set_current(context), "cuCtxSetCurrent");
    Check(cuMemGetInfo(&available, &total), "cuMemGetInfo");
  }
  printf("asked %lu\n", calls("cuCtxGetCurrent") - before);
  return 0;
}
