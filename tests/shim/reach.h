/* SPDX-License-Identifier: Apache-2.0 */
/* Allocates more memory than the quota, through entry points that a program has found in one of several ways. With REACH_NVML it
 * queries NVML for the amount of memory instead. */
#ifndef GPUSHARE_TESTS_SHIM_REACH_H_
#define GPUSHARE_TESTS_SHIM_REACH_H_

#include <stdio.h>

enum { kLimited = 0, kNotLimited = 1, kFailed = 2 };

#ifndef REACH_NVML

#include <cuda.h>

#define REACH_LIBRARY "libcuda.so"

typedef struct Driver {
  CUresult (*init)(unsigned);
  CUresult (*device_get)(CUdevice*, int);
  CUresult (*retain)(CUcontext*, CUdevice);
  CUresult (*set_current)(CUcontext);
  CUresult (*alloc)(CUdeviceptr*, size_t);
  CUresult (*free)(CUdeviceptr);
} Driver;

/* The quota of these tests is 1 GiB of a much larger GPU. */
static int Try(const Driver* driver) {
  CUdevice device;
  CUcontext context;
  CUdeviceptr fits = 0, too_much = 0;
  CUresult result;
  if (driver->init(0) != CUDA_SUCCESS || driver->device_get(&device, 0) != CUDA_SUCCESS ||
      driver->retain(&context, device) != CUDA_SUCCESS ||
      driver->set_current(context) != CUDA_SUCCESS ||
      driver->alloc(&fits, (size_t)600 << 20) != CUDA_SUCCESS) {
    return kFailed;
  }
  result = driver->alloc(&too_much, (size_t)600 << 20);
  if (result == CUDA_SUCCESS) return kNotLimited;
  if (result != CUDA_ERROR_OUT_OF_MEMORY || driver->free(fits) != CUDA_SUCCESS) return kFailed;
  /* Freed memory can be allocated again. */
  return driver->alloc(&fits, (size_t)600 << 20) == CUDA_SUCCESS ? kLimited : kFailed;
}

/* Looks up the entry points by dlsym() on `handle`. */
#define GPUSHARE_REACH_BY_DLSYM(driver, handle)                               \
  do {                                                                        \
    *(void**)&(driver)->init = dlsym((handle), "cuInit");                     \
    *(void**)&(driver)->device_get = dlsym((handle), "cuDeviceGet");          \
    *(void**)&(driver)->retain = dlsym((handle), "cuDevicePrimaryCtxRetain"); \
    *(void**)&(driver)->set_current = dlsym((handle), "cuCtxSetCurrent");     \
    *(void**)&(driver)->alloc = dlsym((handle), "cuMemAlloc_v2");             \
    *(void**)&(driver)->free = dlsym((handle), "cuMemFree_v2");               \
  } while (0)

#define GPUSHARE_REACH_IS_WHOLE(driver)                                                   \
  ((driver)->init && (driver)->device_get && (driver)->retain && (driver)->set_current && \
   (driver)->alloc && (driver)->free)

#define GPUSHARE_REACH_LINKED \
  { cuInit, cuDeviceGet, cuDevicePrimaryCtxRetain, cuCtxSetCurrent, cuMemAlloc, cuMemFree }

#else /* REACH_NVML */

#define REACH_LIBRARY "libnvidia-ml.so"

typedef struct NvmlMemory {
  unsigned long long total, free, used;
} NvmlMemory;

int nvmlInit_v2(void);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device);
int nvmlDeviceGetMemoryInfo(void* device, NvmlMemory* memory);
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* degrees);

typedef struct Driver {
  int (*init)(void);
  int (*by_index)(unsigned, void**);
  int (*memory)(void*, NvmlMemory*);
  int (*temperature)(void*, int, unsigned*);
} Driver;

static int Try(const Driver* driver) {
  void* device = NULL;
  NvmlMemory memory;
  unsigned degrees = 0;
  if (driver->init() != 0 || driver->by_index(0, &device) != 0 ||
      driver->memory(device, &memory) != 0 || memory.free + memory.used != memory.total ||
      driver->temperature(device, 0, &degrees) != 3 /* the simulated one: not supported */) {
    return kFailed;
  }
  if (memory.total == 16ull << 30) return kNotLimited;
  return memory.total == 1ull << 30 && memory.used == 0 ? kLimited : kFailed;
}

#define GPUSHARE_REACH_BY_DLSYM(driver, handle)                                      \
  do {                                                                               \
    *(void**)&(driver)->init = dlsym((handle), "nvmlInit_v2");                       \
    *(void**)&(driver)->by_index = dlsym((handle), "nvmlDeviceGetHandleByIndex_v2"); \
    *(void**)&(driver)->memory = dlsym((handle), "nvmlDeviceGetMemoryInfo");         \
    *(void**)&(driver)->temperature = dlsym((handle), "nvmlDeviceGetTemperature");   \
  } while (0)

#define GPUSHARE_REACH_IS_WHOLE(driver) \
  ((driver)->init && (driver)->by_index && (driver)->memory && (driver)->temperature)

#define GPUSHARE_REACH_LINKED \
  { nvmlInit_v2, nvmlDeviceGetHandleByIndex_v2, nvmlDeviceGetMemoryInfo, nvmlDeviceGetTemperature }

#endif /* REACH_NVML */

#endif /* GPUSHARE_TESTS_SHIM_REACH_H_ */
