/* SPDX-License-Identifier: Apache-2.0 */
/* Another preloaded library: it looks at allocations and calls the next definition. */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>

CUresult cuMemAlloc(CUdeviceptr* pointer, size_t bytes) {
  CUresult (*next)(CUdeviceptr*, size_t);
  *(void**)&next = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
  return next == NULL ? CUDA_ERROR_NOT_FOUND : next(pointer, bytes);
}
