// SPDX-License-Identifier: Apache-2.0
// Libraries: modules without a context. The first use of a library's kernel or variable in a context makes the library a module
// of that context, until the library is unloaded or the context ends.
#ifndef GPUSHARE_SIM_MODULE_LIBRARY_H_
#define GPUSHARE_SIM_MODULE_LIBRARY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "sim/api/api.h"
#include "sim/module/module.h"

namespace gpushare::sim {

struct Library;

struct Kernel {
  uint64_t handle = 0;
  Library* library = nullptr;
  size_t index = 0;                          // index into the entries
  std::map<int, FunctionSettings> settings;  // by device; only differences from the default
};

struct Library {
  uint64_t handle = 0;
  DeviceModule image;
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::map<Context*, Module*> modules;
};

// The library as a module of the context. CUDA_ERROR_OUT_OF_MEMORY: no room for its variables.
CUresult ModuleIn(Library* library, Context* context, Module** module);
void DestroyLibrary(Library* library);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MODULE_LIBRARY_H_
