// SPDX-License-Identifier: Apache-2.0
// Declarations that the files of the preloaded objects share. Nothing here may need libstdc++, allocate, print, or change
// anything in the process: programs that never call the driver load these objects too.
//
// There are two objects, one that replaces the driver and one that replaces NVML. Each has its own entry points, and so its own
// preload_sizes.inc, preload_entries.inc and preload_names.inc.
#ifndef GPUSHARE_SHIM_PRELOAD_PRELOAD_H_
#define GPUSHARE_SHIM_PRELOAD_PRELOAD_H_

#include <dlfcn.h>
#include <stddef.h>

#include "preload_sizes.inc"
#include "shim/attach_abi.h"

extern "C" {

// The function that each entry point jumps to (entry_points.S).
__attribute__((visibility("hidden"))) extern void* gpushare_preload_slots[PRELOAD_ENTRY_COUNT];
// Returns the function to continue at for the entry point at `index`, whose slot still leads here (resolve.cc,
// resolve_nvml.cc).
__attribute__((visibility("hidden"))) void* gpushare_preload_resolve(size_t index);

// The C library's functions, or those of an object that is preloaded after this one.
using DlopenFunction = void* (*)(const char*, int);
using DlmopenFunction = void* (*)(Lmid_t, const char*, int);
__attribute__((visibility("hidden"))) extern DlopenFunction gpushare_preload_next_dlopen;
__attribute__((visibility("hidden"))) extern DlmopenFunction gpushare_preload_next_dlmopen;

}  // extern "C"

namespace gpushare::preload {

// Finds the functions that open libraries, past our own hooks. Any thread may call it at any time.
void FindNextLoader();

// This object's own file, as the loader knows it.
const char* OwnPath();
// The path of a file in this object's folder. False if the object's path has no folder or the result is too long.
bool PathBeside(const char* file, char* path, size_t size);
bool Join(char* path, size_t size, const char* folder, size_t length, const char* file);

// Opens a library by its path. Null if it does not exist, or is this object or another copy of it.
void* OpenAt(const char* path);
// Opens the first `library` in LD_LIBRARY_PATH, the loader's cache and the usual folders. Opening by name would return this
// object. `path` receives the path that was opened.
void* OpenOfSystem(const char* library, char* path, size_t size);
// Opens the real driver: GPUSHARE_DRIVER ("sim": the simulated GPU, beside this object or at
// GPUSHARE_SIM_DRIVER), else the system's. Null if there is none.
void* OpenRealDriver(char* path, size_t size);
// Opens the real NVML: GPUSHARE_NVML, else the one beside the driver that GPUSHARE_DRIVER names, else the system's.
void* OpenRealNvml(char* path, size_t size);

// The path that the loader's cache has for `name`; "" if none. The cache's bytes are not trusted.
void FindInLoaderCache(const unsigned char* cache, size_t size, const char* name, char* path,
                       size_t path_size);

// The entry points, sorted by name.
struct EntryPoint {
  const char* name;
  unsigned char hooked;
};
extern const EntryPoint kEntryPoints[PRELOAD_ENTRY_COUNT];
void SetSlot(size_t index, void* function);
// The index of a name in kEntryPoints; PRELOAD_ENTRY_COUNT if it is not there.
size_t FindEntryPoint(const char* name);

// The function of libgpushare.so called `name`: from the copy that the program has loaded, else from the one beside this object.
// Null if there is none.
void* FindInEngine(const char* name);

// Whether GPUSHARE_DISABLE takes gpushare out of this process.
bool IsDisabled();

}  // namespace gpushare::preload

#endif  // GPUSHARE_SHIM_PRELOAD_PRELOAD_H_
