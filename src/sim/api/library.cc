// SPDX-License-Identifier: Apache-2.0
// Libraries and their kernels.
#include "sim/module/library.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "sim/api/api.h"
#include "sim/graph/capture.h"
#include "sim/module/image.h"

namespace gpushare::sim {

CUresult ModuleIn(Library* library, Context* context, Module** module) {
  if (const auto at = library->modules.find(context); at != library->modules.end()) {
    *module = at->second;
    return CUDA_SUCCESS;
  }
  const CUresult result = MakeModule(context, library->image, module);
  if (result != CUDA_SUCCESS) return result;
  (*module)->library = library;
  for (const auto& kernel : library->kernels) {
    const auto set = kernel->settings.find(context->device->ordinal);
    if (set != kernel->settings.end()) {
      (*module)->functions[kernel->index]->settings = set->second;
    }
  }
  library->modules[context] = *module;
  return CUDA_SUCCESS;
}

void DestroyLibrary(Library* library) {
  State& s = state();
  while (!library->modules.empty()) DestroyModule(library->modules.begin()->second);
  for (const auto& kernel : library->kernels) s.kernels.Remove(kernel->handle);
  s.libraries.Remove(library->handle);
  delete library;
}

void ForgetModule(Library* library, const Module* module) {
  library->modules.erase(module->context);
}

const Function* FindKernelFunction(CUfunction handle, Context* context) {
  const Kernel* const kernel = state().kernels.Find(handle);
  Module* module;
  if (kernel == nullptr || ModuleIn(kernel->library, context, &module) != CUDA_SUCCESS) {
    return nullptr;
  }
  return module->functions[kernel->index].get();
}

namespace {

struct JitOptions {
  unsigned count;
  const CUjit_option* names;
  void** values;
};

CUresult CheckLibraryOptions(const CUlibraryOption* options, unsigned count) {
  if (count > 0 && options == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    // The other option is about variables that host and device share, which are not modelled.
    if (options[i] != CU_LIBRARY_BINARY_IS_PRESERVED) {
      return options[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE
                 ? CUDA_ERROR_NOT_SUPPORTED
                 : CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult LoadLibrary(const ThreadContext& thread, CUlibrary* handle, const void* code,
                     const JitOptions& jit, const CUlibraryOption* options, unsigned count) {
  State& s = state();
  if (handle == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (jit.count > 0 && (jit.names == nullptr || jit.values == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult result = CheckLibraryOptions(options, count);
  if (result != CUDA_SUCCESS) return result;
  result = CheckUnsafe(thread);
  if (result != CUDA_SUCCESS) return result;
  auto library = std::make_unique<Library>();
  std::string wrong;
  result = ReadImage(code, &library->image, &wrong);
  WriteJitLogs(wrong, jit.count, jit.names, jit.values);
  if (result != CUDA_SUCCESS) return result;
  library->handle = s.libraries.Add(library.get());
  for (size_t i = 0; i < library->image.entries.size(); ++i) {
    auto kernel = std::make_unique<Kernel>();
    kernel->handle = s.kernels.Add(kernel.get());
    kernel->library = library.get();
    kernel->index = i;
    library->kernels.push_back(std::move(kernel));
  }
  *handle = reinterpret_cast<CUlibrary>(library.release()->handle);
  return CUDA_SUCCESS;
}

CUkernel HandleOf(const Kernel& kernel) { return reinterpret_cast<CUkernel>(kernel.handle); }
const PtxEntry& EntryOf(const Kernel& kernel) {
  return kernel.library->image.entries[kernel.index];
}

// The library as a module of the current context.
CUresult CurrentModule(Library* library, Module** module) {
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Context* context;
  const CUresult result = CurrentContext(&context);
  return result != CUDA_SUCCESS ? result : ModuleIn(library, context, module);
}

CUresult GetKernelFunction(CUfunction* function, CUkernel handle) {
  const Kernel* const kernel = state().kernels.Find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Module* module;
  const CUresult result = CurrentModule(kernel->library, &module);
  if (result != CUDA_SUCCESS) return result;
  *function = reinterpret_cast<CUfunction>(module->functions[kernel->index]->handle);
  return CUDA_SUCCESS;
}

FunctionSettings SettingsOn(const Kernel& kernel, int device) {
  const auto set = kernel.settings.find(device);
  return set == kernel.settings.end() ? FunctionSettings() : set->second;
}

CUresult SetOn(Kernel* kernel, CUfunction_attribute attribute, int value, CUdevice device) {
  FunctionSettings settings = SettingsOn(*kernel, device);
  const CUresult result = ChangeSettings(&settings, attribute, value);
  if (result != CUDA_SUCCESS) return result;
  kernel->settings[device] = settings;
  for (const auto& [context, module] : kernel->library->modules) {
    if (context->device->ordinal == device) module->functions[kernel->index]->settings = settings;
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuLibraryLoadData)
(CUlibrary* library, const void* code, CUjit_option* jit_options, void** jit_values,
 unsigned jit_count, CUlibraryOption* options, void**, unsigned count) {
  SIM_ENTER(cuLibraryLoadData, kCall);
  return LoadLibrary(scope.thread(), library, code, {jit_count, jit_options, jit_values}, options,
                     count);
}

SIM_API(cuLibraryLoadFromFile)
(CUlibrary* library, const char* name, CUjit_option* jit_options, void** jit_values,
 unsigned jit_count, CUlibraryOption* options, void**, unsigned count) {
  SIM_ENTER(cuLibraryLoadFromFile, kCall);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The caller has no image in memory that it could promise to preserve.
  if (options != nullptr &&
      std::find(options, options + count, CU_LIBRARY_BINARY_IS_PRESERVED) != options + count) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::ifstream file(name, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::ostringstream text;
  text << file.rdbuf();
  return LoadLibrary(scope.thread(), library, text.str().c_str(),
                     {jit_count, jit_options, jit_values}, options, count);
}

SIM_API(cuLibraryUnload)(CUlibrary handle) {
  SIM_ENTER(cuLibraryUnload, kCall);
  Library* const library = state().libraries.Find(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = CheckUnsafe(scope.thread());
  if (result == CUDA_SUCCESS) DestroyLibrary(library);
  return result;
}

SIM_API(cuLibraryGetKernel)(CUkernel* kernel, CUlibrary handle, const char* name) {
  SIM_ENTER(cuLibraryGetKernel, kNone);
  if (kernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Library* const library = state().libraries.Find(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& one : library->kernels) {
    if (EntryOf(*one).name != name) continue;
    *kernel = HandleOf(*one);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

SIM_API(cuLibraryGetKernelCount)(unsigned* count, CUlibrary handle) {
  SIM_ENTER(cuLibraryGetKernelCount, kNone);
  const Library* const library = state().libraries.Find(handle);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(library->kernels.size());
  return CUDA_SUCCESS;
}

SIM_API(cuLibraryEnumerateKernels)(CUkernel* kernels, unsigned most, CUlibrary handle) {
  SIM_ENTER(cuLibraryEnumerateKernels, kNone);
  const Library* const library = state().libraries.Find(handle);
  if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (size_t i = 0; i < std::min<size_t>(most, library->kernels.size()); ++i) {
    kernels[i] = HandleOf(*library->kernels[i]);
  }
  return CUDA_SUCCESS;
}

SIM_API(cuLibraryGetModule)(CUmodule* handle, CUlibrary library) {
  SIM_ENTER(cuLibraryGetModule, kNone);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Module* module;
  const CUresult result = CurrentModule(state().libraries.Find(library), &module);
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUmodule>(module->handle);
  return result;
}

SIM_API(cuLibraryGetGlobal)
(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
  SIM_ENTER(cuLibraryGetGlobal, kNone);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Module* module;
  const CUresult result = CurrentModule(state().libraries.Find(library), &module);
  return result != CUDA_SUCCESS ? result : FindGlobal(*module, name, address, bytes);
}

// The reader of PTX and cubins supports no managed variables and no unified functions: no library has one.
SIM_API(cuLibraryGetManaged)(CUdeviceptr*, size_t*, CUlibrary library, const char* name) {
  SIM_ENTER(cuLibraryGetManaged, kNone);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return state().libraries.Find(library) == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                                    : CUDA_ERROR_NOT_FOUND;
}
SIM_API(cuLibraryGetUnifiedFunction)(void** function, CUlibrary library, const char* name) {
  SIM_ENTER(cuLibraryGetUnifiedFunction, kNone);
  if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return state().libraries.Find(library) == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                                    : CUDA_ERROR_NOT_FOUND;
}

SIM_API(cuKernelGetFunction)(CUfunction* function, CUkernel kernel) {
  SIM_ENTER(cuKernelGetFunction, kNone);
  return GetKernelFunction(function, kernel);
}

SIM_API(cuKernelGetLibrary)(CUlibrary* library, CUkernel handle) {
  SIM_ENTER(cuKernelGetLibrary, kNone);
  const Kernel* const kernel = state().kernels.Find(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *library = reinterpret_cast<CUlibrary>(kernel->library->handle);
  return CUDA_SUCCESS;
}

SIM_API(cuKernelGetAttribute)
(int* value, CUfunction_attribute attribute, CUkernel handle, CUdevice device) {
  SIM_ENTER(cuKernelGetAttribute, kNone);
  const Kernel* const kernel = state().kernels.Find(handle);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (FindDevice(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return AttributeOf(EntryOf(*kernel), kernel->library->image.version, SettingsOn(*kernel, device),
                     attribute, value);
}

SIM_API(cuKernelSetAttribute)
(CUfunction_attribute attribute, int value, CUkernel handle, CUdevice device) {
  SIM_ENTER(cuKernelSetAttribute, kNone);
  Kernel* const kernel = state().kernels.Find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (FindDevice(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return SetOn(kernel, attribute, value, device);
}

SIM_API(cuKernelSetCacheConfig)(CUkernel kernel, CUfunc_cache, CUdevice device) {
  SIM_ENTER(cuKernelSetCacheConfig, kNone);
  if (state().kernels.Find(kernel) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return FindDevice(device) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

SIM_API(cuKernelGetName)(const char** name, CUkernel handle) {
  SIM_ENTER(cuKernelGetName, kNone);
  const Kernel* const kernel = state().kernels.Find(handle);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = EntryOf(*kernel).name.c_str();
  return CUDA_SUCCESS;
}

SIM_API(cuKernelGetParamInfo)(CUkernel handle, size_t index, size_t* offset, size_t* size) {
  SIM_ENTER(cuKernelGetParamInfo, kNone);
  const Kernel* const kernel = state().kernels.Find(handle);
  if (offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return ParameterOf(EntryOf(*kernel), index, offset, size);
}
