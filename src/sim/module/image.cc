// SPDX-License-Identifier: Apache-2.0
#include "sim/module/image.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <memory>
#include <utility>

#include "sim/module/cubin.h"

namespace gpushare::sim {

CUresult ReadImage(const void* image, DeviceModule* module, std::string* wrong) {
  const Config& config = state().config;
  const auto* const bytes = static_cast<const unsigned char*>(image);
  if (IsElf(image)) {
    return static_cast<CUresult>(
        ReadCubin(image, config.compute_major, config.compute_minor, module));
  }
  static constexpr unsigned char kFatbin[] = {0x50, 0xed, 0x55, 0xba};
  if (*bytes == kFatbin[0] && std::memcmp(bytes, kFatbin, sizeof(kFatbin)) == 0) {
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  if (*bytes == 0) return CUDA_ERROR_INVALID_IMAGE;
  if (std::isprint(*bytes) == 0 && std::isspace(*bytes) == 0) return CUDA_ERROR_INVALID_IMAGE;
  const std::string error = ParsePtx(static_cast<const char*>(image), module);
  if (error.empty()) return CUDA_SUCCESS;
  state().clock.Report("PTX: " + error);
  *wrong = "ptx input, " + error;
  return CUDA_ERROR_INVALID_PTX;
}

CUresult MakeModule(Context* context, const DeviceModule& image, Module** result) {
  State& s = state();
  auto module = std::make_unique<Module>();
  module->context = context;
  module->charged = s.config.module_memory;
  if (!context->device->memory.Charge(module->charged)) return CUDA_ERROR_OUT_OF_MEMORY;
  for (const PtxGlobal& global : image.globals) {
    Block* const block =
        context->device->memory.AllocateExactly(global.bytes == 0 ? 1 : global.bytes, context);
    if (block == nullptr) {
      for (const Global& placed : module->globals) context->device->memory.Free(placed.address);
      context->device->memory.Return(module->charged);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context->device->memory.Clear(*block);
    if (!global.initial.empty()) {
      block->touched = true;
      std::memcpy(context->device->memory.Bytes(block->address), global.initial.data(),
                  std::min<size_t>(global.initial.size(), global.bytes));
    }
    module->globals.push_back({global.name, block->address, global.bytes});
  }
  for (const PtxEntry& entry : image.entries) {
    auto function = std::make_unique<Function>();
    function->handle = s.functions.Add(function.get());
    function->module = module.get();
    function->entry = entry;
    function->ptx_version = image.version;
    module->functions.push_back(std::move(function));
  }
  module->handle = s.modules.Add(module.get());
  *result = module.release();
  return CUDA_SUCCESS;
}

void DestroyModule(Module* module) {
  State& s = state();
  if (module->library != nullptr) ForgetModule(module->library, module);
  for (const auto& function : module->functions) s.functions.Remove(function->handle);
  for (const Global& global : module->globals) {
    module->context->device->memory.Free(global.address);
  }
  module->context->device->memory.Return(module->charged);
  s.modules.Remove(module->handle);
  delete module;
}

CUresult FindGlobal(const Module& module, const char* name, CUdeviceptr* address, size_t* bytes) {
  for (const Global& global : module.globals) {
    if (global.name != name) continue;
    if (address != nullptr) *address = global.address;
    if (bytes != nullptr) *bytes = global.bytes;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult AttributeOf(const PtxEntry& entry, int version, const FunctionSettings& settings,
                     CUfunction_attribute attribute, int* value) {
  const Config& config = state().config;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(entry.max_threads);
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
      *value = version;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = config.compute_major * 10 + config.compute_minor;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = settings.max_dynamic_shared;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = settings.carveout;
      return CUDA_SUCCESS;
    default:
      if (attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
      *value = 0;  // clusters
      return CUDA_SUCCESS;
  }
}

CUresult ChangeSettings(FunctionSettings* settings, CUfunction_attribute attribute, int value) {
  const auto most =
      static_cast<int>(state().config.shared_per_sm) - static_cast<int>(kReservedShared);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || value > most) return CUDA_ERROR_INVALID_VALUE;
      settings->max_dynamic_shared = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      settings->carveout = value;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult ParameterOf(const PtxEntry& entry, size_t index, size_t* offset, size_t* size) {
  if (index >= entry.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = entry.parameters[index].offset;
  if (size != nullptr) *size = entry.parameters[index].size;
  return CUDA_SUCCESS;
}

namespace {

// Writes as much of `text` as fits into the buffer in the options, and the written length into its size. Writes an empty text
// too, because a caller may print the buffer.
void WriteLog(const std::string& text, CUjit_option buffer, CUjit_option size, unsigned count,
              const CUjit_option* options, void** values) {
  char* log = nullptr;
  void** written = nullptr;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == buffer) log = static_cast<char*>(values[i]);
    if (options[i] == size) written = &values[i];
  }
  if (written == nullptr) {  // a buffer without a size
    if (log != nullptr) *log = 0;
    return;
  }
  // The option's value itself holds the size, of which the driver uses 32 bits.
  const auto most = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(*written));
  const size_t length = log == nullptr || most == 0 ? 0 : std::min<size_t>(text.size(), most - 1);
  if (log != nullptr && most > 0) {
    std::memcpy(log, text.data(), length);
    log[length] = 0;
  }
  *written = reinterpret_cast<void*>(length);
}

}  // namespace

void WriteJitLogs(const std::string& error, unsigned count, const CUjit_option* options,
                  void** values) {
  WriteLog("", CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, count, options, values);
  WriteLog(error, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, count, options,
           values);
}

}  // namespace gpushare::sim
