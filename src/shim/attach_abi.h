/* SPDX-License-Identifier: Apache-2.0 */
/* The ABI between the preloaded object and libgpushare.so. Not public: both come from the same build.
 *
 * The preloaded object (src/shim/preload) is what programs load in place of libcuda.so.1. It is small and uses neither
 * Abseil nor libstdc++, since every process loads it. On the first call of the driver it opens the real driver and
 * libgpushare.so, and asks libgpushare.so for its hooks. A process has only one libgpushare.so, so a preloaded program
 * that also links the SDK has one engine. A second object of the same kind replaces NVML. */
#ifndef GPUSHARE_SHIM_ATTACH_ABI_H_
#define GPUSHARE_SHIM_ATTACH_ABI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUSHARE_SHIM_ABI_VERSION 3

typedef struct gpushare_shim_driver {
  uint32_t version; /* GPUSHARE_SHIM_ABI_VERSION of the caller */
  uint32_t reserved;
  void* handle;     /* of the real driver, from dlopen() */
  const char* path; /* the path that was passed to dlopen() */
  /* The driver's functions, in the order of driver/symbols.def sorted by name. A function that the driver lacks is replaced
   * by a pointer that no program can get from the driver. Valid for the lifetime of the process. Null for NVML. */
  void* const* functions;
  /* Not 0 if some code has obtained driver functions that change contexts past the hooks. Code that cuInit runs may cause that
   * during gpushare_shim_attach(). Null if no code has; null for NVML. */
  const int* contexts_unseen;
} gpushare_shim_driver;

typedef struct gpushare_shim_hook {
  const char* name; /* the entry point as exported: "cuMemAlloc_v2" */
  void* function;   /* has the entry point's type */
} gpushare_shim_hook;

/* Makes the process a tenant, as its environment says, and returns the entry points to hook. The array is valid for the
 * lifetime of the process. Returns 0, or the CUresult with which every call is to fail; then it may be called again. Call
 * it from one thread at a time. */
__attribute__((visibility("default"))) int gpushare_shim_attach(const gpushare_shim_driver* driver,
                                                                const gpushare_shim_hook** hooks,
                                                                size_t* count);

/* Reports that the program's main thread has left by pthread_exit() while its other threads go on. The process is to end
 * with them. Call it after gpushare_shim_attach() has returned 0, from any thread. */
__attribute__((visibility("default"))) void gpushare_shim_main_thread_left(void);

/* The same for NVML, with its handle and path: returns the entry points that are answered for the share. Initialises nothing
 * and makes no tenant: a process becomes one with its first call of the driver. Returns 0 or an nvmlReturn_t. */
__attribute__((visibility("default"))) int gpushare_shim_attach_nvml(
    const gpushare_shim_driver* nvml, const gpushare_shim_hook** hooks, size_t* count);

#ifdef __cplusplus
}
#endif

#endif /* GPUSHARE_SHIM_ATTACH_ABI_H_ */
