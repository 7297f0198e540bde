// SPDX-License-Identifier: Apache-2.0
// Modules and functions.
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "sim/api/api.h"
#include "sim/graph/capture.h"
#include "sim/module/image.h"

namespace gpushare::sim {

namespace {

CUresult Load(const ThreadContext& thread, CUmodule* handle, const void* image,
              std::string* wrong = nullptr) {
  if (handle == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context;
  CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  result = CheckUnsafe(thread);
  if (result != CUDA_SUCCESS) return result;
  DeviceModule read;
  std::string ignored;
  result = ReadImage(image, &read, wrong != nullptr ? wrong : &ignored);
  if (result != CUDA_SUCCESS) return result;
  Module* module;
  result = MakeModule(context, read, &module);
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUmodule>(module->handle);
  return result;
}

CUresult GetGlobal(CUdeviceptr* address, size_t* bytes, CUmodule handle, const char* name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Module* const module = state().modules.Find(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return FindGlobal(*module, name, address, bytes);
}

Function* Find(CUfunction handle) { return state().functions.Find(handle); }

CUresult GetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  const Function* const function = Find(handle);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return AttributeOf(function->entry, function->ptx_version, function->settings, attribute, value);
}

CUresult SetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  Function* const function = Find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return ChangeSettings(&function->settings, attribute, value);
}

// For a library's kernel, the answer is that of its module in the current context.
CUresult FindForOccupancy(CUfunction handle, const Function** function) {
  *function = Find(handle);
  if (*function != nullptr) return CUDA_SUCCESS;
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return CUDA_ERROR_INVALID_HANDLE;
  *function = FindFunction(handle, context);
  return *function == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult Occupancy(int* blocks, CUfunction handle, int threads, size_t shared) {
  if (blocks == nullptr || threads <= 0 || threads > 1024) return CUDA_ERROR_INVALID_VALUE;
  const Function* function;
  const CUresult result = FindForOccupancy(handle, &function);
  if (result != CUDA_SUCCESS) return result;
  if (shared > static_cast<size_t>(function->settings.max_dynamic_shared)) {
    *blocks = 0;
    return CUDA_SUCCESS;
  }
  *blocks = function->entry.cost.blocks_per_sm != 0
                ? static_cast<int>(function->entry.cost.blocks_per_sm)
                : static_cast<int>(BlocksPerSm(*function, state().config,
                                               static_cast<uint32_t>(threads), shared));
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuModuleLoadData)(CUmodule* module, const void* image) {
  SIM_ENTER(cuModuleLoadData, kCall);
  return Load(scope.thread(), module, image);
}

SIM_API(cuModuleLoadDataEx)
(CUmodule* module, const void* image, unsigned count, CUjit_option* options, void** values) {
  SIM_ENTER(cuModuleLoadDataEx, kCall);
  if (count > 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::string wrong;
  const CUresult result = Load(scope.thread(), module, image, &wrong);
  WriteJitLogs(wrong, count, options, values);
  return result;
}

SIM_API(cuModuleLoadFatBinary)(CUmodule* module, const void* image) {
  SIM_ENTER(cuModuleLoadFatBinary, kCall);
  return Load(scope.thread(), module, image);
}

SIM_API(cuModuleLoad)(CUmodule* module, const char* name) {
  SIM_ENTER(cuModuleLoad, kCall);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(name, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::ostringstream text;
  text << file.rdbuf();
  return Load(scope.thread(), module, text.str().c_str());
}

SIM_API(cuModuleUnload)(CUmodule handle) {
  SIM_ENTER(cuModuleUnload, kCall);
  Module* const module = state().modules.Find(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (module->library != nullptr) return CUDA_ERROR_NOT_PERMITTED;  // the library unloads it
  const CUresult result = CheckUnsafe(scope.thread());
  if (result != CUDA_SUCCESS) return result;
  DestroyModule(module);
  return CUDA_SUCCESS;
}

SIM_API(cuModuleGetFunction)(CUfunction* function, CUmodule handle, const char* name) {
  SIM_ENTER(cuModuleGetFunction, kNone);
  if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Module* const module = state().modules.Find(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& one : module->functions) {
    if (one->entry.name != name) continue;
    *function = reinterpret_cast<CUfunction>(one->handle);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

SIM_API(cuModuleGetFunctionCount)(unsigned* count, CUmodule handle) {
  SIM_ENTER(cuModuleGetFunctionCount, kNone);
  const Module* const module = state().modules.Find(handle);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(module->functions.size());
  return CUDA_SUCCESS;
}

SIM_API(cuModuleGetGlobal_v2)
(CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name) {
  SIM_ENTER(cuModuleGetGlobal_v2, kNone);
  return GetGlobal(address, bytes, module, name);
}

SIM_API(cuModuleGetLoadingMode)(CUmoduleLoadingMode* mode) {
  SIM_ENTER(cuModuleGetLoadingMode, kNone);
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

SIM_API(cuFuncGetAttribute)(int* value, CUfunction_attribute attribute, CUfunction function) {
  SIM_ENTER(cuFuncGetAttribute, kNone);
  return GetAttribute(value, attribute, function);
}

SIM_API(cuFuncSetAttribute)(CUfunction function, CUfunction_attribute attribute, int value) {
  SIM_ENTER(cuFuncSetAttribute, kNone);
  return SetAttribute(function, attribute, value);
}

SIM_API(cuFuncSetCacheConfig)(CUfunction function, CUfunc_cache) {
  SIM_ENTER(cuFuncSetCacheConfig, kNone);
  return Find(function) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

SIM_API(cuFuncGetModule)(CUmodule* module, CUfunction handle) {
  SIM_ENTER(cuFuncGetModule, kNone);
  const Function* const function = Find(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *module = reinterpret_cast<CUmodule>(function->module->handle);
  return CUDA_SUCCESS;
}

SIM_API(cuFuncGetName)(const char** name, CUfunction handle) {
  SIM_ENTER(cuFuncGetName, kNone);
  const Function* const function = Find(handle);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = function->entry.name.c_str();
  return CUDA_SUCCESS;
}

SIM_API(cuFuncGetParamInfo)(CUfunction handle, size_t index, size_t* offset, size_t* size) {
  SIM_ENTER(cuFuncGetParamInfo, kNone);
  const Function* const function = Find(handle);
  if (offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return ParameterOf(function->entry, index, offset, size);
}

SIM_API(cuOccupancyMaxActiveBlocksPerMultiprocessor)
(int* blocks, CUfunction function, int threads, size_t shared) {
  SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor, kNone);
  return Occupancy(blocks, function, threads, shared);
}

SIM_API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)
(int* blocks, CUfunction function, int threads, size_t shared, unsigned) {
  SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, kNone);
  return Occupancy(blocks, function, threads, shared);
}
