/* SPDX-License-Identifier: Apache-2.0 */
/* What the preloaded object and libgpushare.so tell each other. Not public: both are of one build.
 *
 * The preloaded object (src/shim/preload) is what programs load in place of libcuda.so.1: small, without
 * Abseil or libstdc++, since it comes into every process. On the first call of the driver it opens the real
 * one and libgpushare.so, and asks that for its hooks. So a program that links the SDK itself and is
 * preloaded as well has one engine: there is one libgpushare.so in a process. Beside it lies an object of the
 * same kind that stands in for NVML. */
#ifndef GPUSHARE_SHIM_ATTACH_ABI_H_
#define GPUSHARE_SHIM_ATTACH_ABI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUSHARE_SHIM_ABI_VERSION 3

typedef struct gpushare_shim_driver {
  uint32_t version; /* GPUSHARE_SHIM_ABI_VERSION of who calls */
  uint32_t reserved;
  void* handle;     /* of the real driver, from dlopen() */
  const char* path; /* what it was opened by */
  /* Its functions, by the order of driver/symbols.def when that is sorted by name; of one that it does not have any that
   * no program gets from it. For as long as the process. Null: of NVML. */
  void* const* functions;
  /* Not 0: somebody has got what changes contexts past the hooks. It may become so within gpushare_shim_attach(), by what
   * cuInit runs. Null: of NVML, and where nobody has. */
  const int* contexts_unseen;
} gpushare_shim_driver;

typedef struct gpushare_shim_hook {
  const char* name; /* the entry point as exported: "cuMemAlloc_v2" */
  void* function;   /* of its type */
} gpushare_shim_hook;

/* Makes the process a tenant, as its environment says, and answers with the entry points that it wants to
 * see. The array lives as long as the process. 0 or the CUresult that every call is answered with instead;
 * may be asked again then. Called by one thread at a time. */
__attribute__((visibility("default"))) int gpushare_shim_attach(const gpushare_shim_driver* driver,
                                                                const gpushare_shim_hook** hooks,
                                                                size_t* count);

/* The program's main thread has left by pthread_exit(), while others of it go on: the process is to end with them. After
 * gpushare_shim_attach() has answered 0; may be called from any thread. */
__attribute__((visibility("default"))) void gpushare_shim_main_thread_left(void);

/* What gpushare_shim_attach() is, for NVML, with its handle and path: the entry points that are answered for the share.
 * Nothing is initialised, no tenant made: a process becomes one with its first call of the driver. 0 or an nvmlReturn_t. */
__attribute__((visibility("default"))) int gpushare_shim_attach_nvml(
    const gpushare_shim_driver* nvml, const gpushare_shim_hook** hooks, size_t* count);

#ifdef __cplusplus
}
#endif

#endif /* GPUSHARE_SHIM_ATTACH_ABI_H_ */
