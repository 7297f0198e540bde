// SPDX-License-Identifier: Apache-2.0
// The preloaded objects: what their files share. Nothing here may need libstdc++, allocate, print, or change
// anything of the process: programs that never call the driver load them too.
//
// There are two, one that stands in for the driver and one for NVML, each with entry points of its own
// (preload_sizes.inc, preload_entries.inc and preload_names.inc are other files for each).
#ifndef GPUSHARE_SHIM_PRELOAD_PRELOAD_H_
#define GPUSHARE_SHIM_PRELOAD_PRELOAD_H_

#include <dlfcn.h>
#include <stddef.h>

#include "preload_sizes.inc"
#include "shim/attach_abi.h"

extern "C" {

// What each entry point jumps to (entry_points.S).
__attribute__((visibility("hidden"))) extern void* gpushare_preload_slots[PRELOAD_ENTRY_COUNT];
// What to go on to from the entry point at `index`, whose slot leads here (resolve.cc, resolve_nvml.cc).
__attribute__((visibility("hidden"))) void* gpushare_preload_resolve(size_t index);

// The C library's own, or of whoever is preloaded behind us.
using DlopenFunction = void* (*)(const char*, int);
using DlmopenFunction = void* (*)(Lmid_t, const char*, int);
__attribute__((visibility("hidden"))) extern DlopenFunction gpushare_preload_next_dlopen;
__attribute__((visibility("hidden"))) extern DlmopenFunction gpushare_preload_next_dlmopen;

}  // extern "C"

namespace gpushare::preload {

// Finds what is opened by, past our own hooks. Any thread, any time.
void FindNextLoader();

// This object's own file, as the loader knows it.
const char* OwnPath();
// The path of a file in this object's folder. False: it has none, or the path is too long.
bool PathBeside(const char* file, char* path, size_t size);
bool Join(char* path, size_t size, const char* folder, size_t length, const char* file);

// Opens a library by a path. Null: it is not there, or it is this object or another copy of it.
void* OpenAt(const char* path);
// Opens the first `library` of LD_LIBRARY_PATH, the loader's cache and the usual folders. By name the loader
// gives us ourselves. `path` gets what it was opened by.
void* OpenOfSystem(const char* library, char* path, size_t size);
// Opens the real driver: GPUSHARE_DRIVER ("sim": the simulated GPU, beside this object or at
// GPUSHARE_SIM_DRIVER), else the system's. Null: there is none.
void* OpenRealDriver(char* path, size_t size);
// Opens the real NVML: GPUSHARE_NVML, else that beside the driver that GPUSHARE_DRIVER asks for, else the system's.
void* OpenRealNvml(char* path, size_t size);

// Where the loader's cache says that `name` is; "" when it does not. Reads untrusted bytes.
void FindInLoaderCache(const unsigned char* cache, size_t size, const char* name, char* path,
                       size_t path_size);

// The entry points, sorted by name.
struct EntryPoint {
  const char* name;
  unsigned char hooked;
};
extern const EntryPoint kEntryPoints[PRELOAD_ENTRY_COUNT];
void SetSlot(size_t index, void* function);
// The place of a name in kEntryPoints; PRELOAD_ENTRY_COUNT: it has none.
size_t FindEntryPoint(const char* name);

// The function of libgpushare.so called `name`: of the program's own when it has one, else of that beside us.
// Null: there is none.
void* FindInEngine(const char* name);

// Whether GPUSHARE_DISABLE takes gpushare out of this process.
bool IsDisabled();

}  // namespace gpushare::preload

#endif  // GPUSHARE_SHIM_PRELOAD_PRELOAD_H_
