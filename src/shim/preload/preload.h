// SPDX-License-Identifier: Apache-2.0
// The preloaded object: what its files share. Nothing here may need libstdc++, allocate, print, or change
// anything of the process: programs that never call the driver load it too.
#ifndef GPUSHARE_SHIM_PRELOAD_PRELOAD_H_
#define GPUSHARE_SHIM_PRELOAD_PRELOAD_H_

#include <dlfcn.h>
#include <stddef.h>

#include "shim/preload/preload_sizes.inc"

extern "C" {

// What each entry point jumps to (entry_points.S).
__attribute__((visibility("hidden"))) extern void* gpushare_preload_slots[PRELOAD_ENTRY_COUNT];

// The C library's own, or of whoever is preloaded behind us.
using DlopenFunction = void* (*)(const char*, int);
using DlmopenFunction = void* (*)(Lmid_t, const char*, int);
__attribute__((visibility("hidden"))) extern DlopenFunction gpushare_preload_next_dlopen;
__attribute__((visibility("hidden"))) extern DlmopenFunction gpushare_preload_next_dlmopen;

}  // extern "C"

namespace gpushare::preload {

// Finds what the hooks of loader.cc go on to. Any thread, any time.
void FindNextLoader();

// This object's own file, as the loader knows it.
const char* OwnPath();

// Opens the real driver: GPUSHARE_DRIVER ("sim": the simulated GPU, beside this object or at
// GPUSHARE_SIM_DRIVER), else the first libcuda.so.1 that is not ourselves of LD_LIBRARY_PATH, the loader's
// cache and the usual folders. Null: there is none. `path` gets what it was opened by.
void* OpenRealDriver(char* path, size_t size);

// Where the loader's cache says that `name` is; "" when it does not. Reads untrusted bytes.
void FindInLoaderCache(const unsigned char* cache, size_t size, const char* name, char* path,
                       size_t path_size);

}  // namespace gpushare::preload

#endif  // GPUSHARE_SHIM_PRELOAD_PRELOAD_H_
