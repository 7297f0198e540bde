// SPDX-License-Identifier: Apache-2.0
// Modules and functions.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "sim/api.h"
#include "sim/capture.h"

namespace gpushare::sim {

CUresult LoadModule(Context* context, const void* image, Module** result) {
  State& s = state();
  const auto* const bytes = static_cast<const unsigned char*>(image);
  // A cubin or a fat binary holds machine code: there is none for this device.
  static constexpr unsigned char kElf[] = {0x7f, 'E', 'L', 'F'};
  static constexpr unsigned char kFatbin[] = {0x50, 0xed, 0x55, 0xba};
  if (std::memcmp(bytes, kElf, 1) == 0 || std::memcmp(bytes, kFatbin, 1) == 0) {
    if (std::memcmp(bytes, kElf, 4) == 0 || std::memcmp(bytes, kFatbin, 4) == 0) {
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
  }
  if (*bytes == 0) return CUDA_ERROR_INVALID_IMAGE;
  if (std::isprint(*bytes) == 0 && std::isspace(*bytes) == 0) return CUDA_ERROR_INVALID_IMAGE;
  PtxModule ptx;
  const std::string error = ParsePtx(static_cast<const char*>(image), &ptx);
  if (!error.empty()) {
    s.clock.Report("PTX: " + error);
    return CUDA_ERROR_INVALID_PTX;
  }
  auto module = std::make_unique<Module>();
  module->context = context;
  for (const PtxGlobal& global : ptx.globals) {
    const Block* const block =
        context->device->memory.Allocate(global.bytes == 0 ? 1 : global.bytes, context);
    if (block == nullptr) {
      for (const Global& placed : module->globals) context->device->memory.Free(placed.address);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    module->globals.push_back({global.name, block->address, global.bytes});
  }
  for (PtxEntry& entry : ptx.entries) {
    auto function = std::make_unique<Function>();
    function->handle = s.functions.Add(function.get());
    function->module = module.get();
    function->entry = std::move(entry);
    function->ptx_version = ptx.version;
    module->functions.push_back(std::move(function));
  }
  module->handle = s.modules.Add(module.get());
  *result = module.release();
  return CUDA_SUCCESS;
}

void DestroyModule(Module* module) {
  State& s = state();
  for (const auto& function : module->functions) s.functions.Remove(function->handle);
  for (const Global& global : module->globals) {
    module->context->device->memory.Free(global.address);
  }
  s.modules.Remove(module->handle);
  delete module;
}

namespace {

CUresult Load(const ThreadContext& thread, CUmodule* handle, const void* image) {
  if (handle == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context;
  CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  result = CheckUnsafe(thread);
  if (result != CUDA_SUCCESS) return result;
  Module* module;
  result = LoadModule(context, image, &module);
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUmodule>(module->handle);
  return result;
}

// What the options hold of `text`: its buffer is written, empty too, since a caller may print it; its size becomes what
// was written.
void WriteLog(const std::string& text, CUjit_option buffer, CUjit_option size, unsigned count,
              const CUjit_option* options, void** values) {
  char* log = nullptr;
  void** written = nullptr;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == buffer) log = static_cast<char*>(values[i]);
    if (options[i] == size) written = &values[i];
  }
  if (written == nullptr) {  // of a buffer whose size nobody gave
    if (log != nullptr) *log = 0;
    return;
  }
  // The value itself holds the size, of which the driver takes 32 bits.
  const auto most = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(*written));
  const size_t length = log == nullptr || most == 0 ? 0 : std::min<size_t>(text.size(), most - 1);
  if (log != nullptr && most > 0) {
    std::memcpy(log, text.data(), length);
    log[length] = 0;
  }
  *written = reinterpret_cast<void*>(length);
}

CUresult GetGlobal(CUdeviceptr* address, size_t* bytes, CUmodule handle, const char* name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Module* const module = state().modules.Find(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (const Global& global : module->globals) {
    if (global.name != name) continue;
    if (address != nullptr) *address = global.address;
    if (bytes != nullptr) *bytes = global.bytes;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

Function* Find(CUfunction handle) { return state().functions.Find(handle); }

CUresult GetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  const Function* const function = Find(handle);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Config& config = state().config;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(function->entry.max_threads);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 32;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = function->ptx_version;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = config.compute_major * 10 + config.compute_minor;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = function->max_dynamic_shared;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = function->carveout;
      return CUDA_SUCCESS;
    default:
      if (attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
      *value = 0;  // clusters
      return CUDA_SUCCESS;
  }
}

CUresult SetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  Function* const function = Find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto most =
      static_cast<int>(state().config.shared_per_sm) - static_cast<int>(kReservedShared);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || value > most) return CUDA_ERROR_INVALID_VALUE;
      function->max_dynamic_shared = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      function->carveout = value;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Occupancy(int* blocks, CUfunction handle, int threads, size_t shared) {
  const Function* const function = Find(handle);
  if (blocks == nullptr || threads <= 0 || threads > 1024) return CUDA_ERROR_INVALID_VALUE;
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (shared > static_cast<size_t>(function->max_dynamic_shared)) {
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
  const CUresult result = Load(scope.thread(), module, image);
  std::string wrong;
  if (result == CUDA_ERROR_INVALID_PTX) {
    PtxModule none;
    wrong = "ptx input, " + ParsePtx(static_cast<const char*>(image), &none);
  }
  WriteLog("", CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, count, options, values);
  WriteLog(wrong, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, count, options,
           values);
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
  if (index >= function->entry.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = function->entry.parameters[index].offset;
  if (size != nullptr) *size = function->entry.parameters[index].size;
  return CUDA_SUCCESS;
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
