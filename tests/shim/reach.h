/* SPDX-License-Identifier: Apache-2.0 */
/* Asks for more memory than the quota, through entry points that a program found in its own way. */
#ifndef GPUSHARE_TESTS_SHIM_REACH_H_
#define GPUSHARE_TESTS_SHIM_REACH_H_

#include <cuda.h>
#include <stdio.h>

enum { kLimited = 0, kNotLimited = 1, kFailed = 2 };

typedef struct Driver {
  CUresult (*init)(unsigned);
  CUresult (*device_get)(CUdevice*, int);
  CUresult (*retain)(CUcontext*, CUdevice);
  CUresult (*set_current)(CUcontext);
  CUresult (*alloc)(CUdeviceptr*, size_t);
  CUresult (*free)(CUdeviceptr);
} Driver;

/* The quota of these tests is 1 GiB, of a GPU with many. */
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
  /* What was freed is there again. */
  return driver->alloc(&fits, (size_t)600 << 20) == CUDA_SUCCESS ? kLimited : kFailed;
}

/* The entry points by dlsym() on `handle`. */
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

#endif /* GPUSHARE_TESTS_SHIM_REACH_H_ */
