// SPDX-License-Identifier: Apache-2.0
// Contexts: primary and created ones, and each thread's stack of them.
#include "sim/api/api.h"
#include "sim/graph/capture.h"

namespace gpushare::sim {
namespace {

constexpr unsigned kContextFlags = 0xff;

CUresult Create(CUcontext* handle, unsigned flags, CUdevice dev) {
  Device* const device = FindDevice(dev);
  if (handle == nullptr || (flags & ~kContextFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Context* const context = NewContext(device, flags, false);
  if (context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CurrentThread()->contexts.push_back(context->handle);
  *handle = HandleOf(context);
  return CUDA_SUCCESS;
}

CUresult Destroy(CUcontext handle) {
  Context* const context = FindContext(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->is_primary) return CUDA_ERROR_INVALID_CONTEXT;
  std::vector<uint64_t>& stack = CurrentThread()->contexts;
  if (!stack.empty() && stack.back() == context->handle) stack.pop_back();
  DestroyContext(context);
  return CUDA_SUCCESS;
}

CUresult Push(CUcontext handle) {
  if (FindContext(handle) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CurrentThread()->contexts.push_back(reinterpret_cast<uint64_t>(handle));
  return CUDA_SUCCESS;
}

CUresult Pop(CUcontext* handle) {
  std::vector<uint64_t>& stack = CurrentThread()->contexts;
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != nullptr) *handle = reinterpret_cast<CUcontext>(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult Synchronize(const ThreadContext& thread, Context* context) {
  Device* const device = context->device;
  // Synchronising the primary context also waits for its green contexts.
  GreenContext* const green = CurrentGreen(thread);
  CUresult result = CheckContextIdle(thread, context, green);
  if (result != CUDA_SUCCESS) return result;
  result = green != nullptr ? WaitForGreen(green, "cuCtxSynchronize")
                            : WaitForContext(context, "cuCtxSynchronize");
  if (result == CUDA_SUCCESS && !device->pools.empty()) PoolsSynchronized(device, 0);
  return result;
}

CUresult ResetPrimary(CUdevice dev) {
  Device* const device = FindDevice(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (device->primary == nullptr) return CUDA_SUCCESS;
  DestroyContext(device->primary);
  ResetPools(device);
  device->graph_memory.Reset();
  // The lost context counts as retained: the next retain revives it.
  return CUDA_SUCCESS;
}

CUresult SetPrimaryFlags(CUdevice dev, unsigned flags) {
  Device* const device = FindDevice(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if ((flags & ~kContextFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  device->primary_flags = flags;
  if (device->primary != nullptr) device->primary->flags = flags;
  return CUDA_SUCCESS;
}

size_t* LimitOf(Context* context, CUlimit limit) {
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      return &context->stack_limit;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      return &context->printf_limit;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      return &context->heap_limit;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

// Newer than the oldest header that is supported.
extern "C" CUresult CUDAAPI cuCtxCreate_v4(CUcontext*, struct CUctxCreateParams_st*, unsigned,
                                           CUdevice);

SIM_API(cuCtxCreate)(CUcontext* context, unsigned flags, CUdevice dev) {
  SIM_ENTER(cuCtxCreate, kCall);
  return Create(context, flags, dev);
}
SIM_API(cuCtxCreate_v2)(CUcontext* context, unsigned flags, CUdevice dev) {
  SIM_ENTER(cuCtxCreate_v2, kCall);
  return Create(context, flags, dev);
}
SIM_API(cuCtxCreate_v3)
(CUcontext* context, CUexecAffinityParam* affinity, int count, unsigned flags, CUdevice dev) {
  SIM_ENTER(cuCtxCreate_v3, kCall);
  if (affinity != nullptr || count != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return Create(context, flags, dev);
}
SIM_API(cuCtxCreate_v4)
(CUcontext* context, struct CUctxCreateParams_st* parameters, unsigned flags, CUdevice dev) {
  SIM_ENTER(cuCtxCreate_v4, kCall);
  if (parameters != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return Create(context, flags, dev);
}

SIM_API(cuCtxDestroy)(CUcontext context) {
  SIM_ENTER(cuCtxDestroy, kCall);
  return Destroy(context);
}
SIM_API(cuCtxDestroy_v2)(CUcontext context) {
  SIM_ENTER(cuCtxDestroy_v2, kCall);
  return Destroy(context);
}

SIM_API(cuCtxPushCurrent)(CUcontext context) {
  SIM_ENTER(cuCtxPushCurrent, kNone);
  return Push(context);
}
SIM_API(cuCtxPushCurrent_v2)(CUcontext context) {
  SIM_ENTER(cuCtxPushCurrent_v2, kNone);
  return Push(context);
}
SIM_API(cuCtxPopCurrent)(CUcontext* context) {
  SIM_ENTER(cuCtxPopCurrent, kNone);
  return Pop(context);
}
SIM_API(cuCtxPopCurrent_v2)(CUcontext* context) {
  SIM_ENTER(cuCtxPopCurrent_v2, kNone);
  return Pop(context);
}

SIM_API(cuCtxSetCurrent)(CUcontext context) {
  SIM_ENTER(cuCtxSetCurrent, kNone);
  std::vector<uint64_t>& stack = scope.thread().contexts;
  if (context == nullptr) {
    if (!stack.empty()) stack.pop_back();
    return CUDA_SUCCESS;
  }
  if (FindContext(context) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const auto handle = reinterpret_cast<uint64_t>(context);
  if (stack.empty()) {
    stack.push_back(handle);
  } else {
    stack.back() = handle;
  }
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetCurrent)(CUcontext* context) {
  SIM_ENTER(cuCtxGetCurrent, kNone);
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<uint64_t>& stack = scope.thread().contexts;
  *context = stack.empty() ? nullptr : reinterpret_cast<CUcontext>(stack.back());
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetDevice)(CUdevice* device) {
  SIM_ENTER(cuCtxGetDevice, kNone);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result == CUDA_SUCCESS) *device = context->device->ordinal;
  return result;
}

SIM_API(cuCtxGetFlags)(unsigned* flags) {
  SIM_ENTER(cuCtxGetFlags, kNone);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result == CUDA_SUCCESS) *flags = context->flags;
  return result;
}

SIM_API(cuCtxGetId)(CUcontext handle, unsigned long long* id) {
  SIM_ENTER(cuCtxGetId, kNone);
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = FindContext(handle);
  if (handle == nullptr) {
    const CUresult result = CurrentContext(&context);
    if (result != CUDA_SUCCESS) return result;
  }
  if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *id = context->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetApiVersion)(CUcontext handle, unsigned* version) {
  SIM_ENTER(cuCtxGetApiVersion, kNone);
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (handle != nullptr && FindContext(handle) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *version = 3020;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxSynchronize)() {
  SIM_ENTER(cuCtxSynchronize, kCall);
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  return Synchronize(scope.thread(), context);
}

SIM_API(cuCtxGetStreamPriorityRange)(int* least, int* greatest) {
  SIM_ENTER(cuCtxGetStreamPriorityRange, kNone);
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = 1 - kPriorityLevels;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxSetLimit)(CUlimit limit, size_t value) {
  SIM_ENTER(cuCtxSetLimit, kCall);
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  size_t* const where = LimitOf(context, limit);
  if (where == nullptr) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *where = value;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetLimit)(size_t* value, CUlimit limit) {
  SIM_ENTER(cuCtxGetLimit, kNone);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  const size_t* const where = LimitOf(context, limit);
  if (where == nullptr) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *value = *where;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxSetCacheConfig)(CUfunc_cache config) {
  SIM_ENTER(cuCtxSetCacheConfig, kNone);
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result == CUDA_SUCCESS) context->cache_config = config;
  return result;
}

SIM_API(cuCtxGetCacheConfig)(CUfunc_cache* config) {
  SIM_ENTER(cuCtxGetCacheConfig, kNone);
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result == CUDA_SUCCESS) *config = static_cast<CUfunc_cache>(context->cache_config);
  return result;
}

SIM_API(cuDevicePrimaryCtxRetain)(CUcontext* context, CUdevice dev) {
  SIM_ENTER(cuDevicePrimaryCtxRetain, kCall);
  return RetainPrimary(context, dev);
}
SIM_API(cuDevicePrimaryCtxRelease)(CUdevice dev) {
  SIM_ENTER(cuDevicePrimaryCtxRelease, kCall);
  return ReleasePrimary(dev);
}
SIM_API(cuDevicePrimaryCtxRelease_v2)(CUdevice dev) {
  SIM_ENTER(cuDevicePrimaryCtxRelease_v2, kCall);
  return ReleasePrimary(dev);
}
SIM_API(cuDevicePrimaryCtxReset)(CUdevice dev) {
  SIM_ENTER(cuDevicePrimaryCtxReset, kCall);
  return ResetPrimary(dev);
}
SIM_API(cuDevicePrimaryCtxReset_v2)(CUdevice dev) {
  SIM_ENTER(cuDevicePrimaryCtxReset_v2, kCall);
  return ResetPrimary(dev);
}
SIM_API(cuDevicePrimaryCtxSetFlags)(CUdevice dev, unsigned flags) {
  SIM_ENTER(cuDevicePrimaryCtxSetFlags, kNone);
  return SetPrimaryFlags(dev, flags);
}
SIM_API(cuDevicePrimaryCtxSetFlags_v2)(CUdevice dev, unsigned flags) {
  SIM_ENTER(cuDevicePrimaryCtxSetFlags_v2, kNone);
  return SetPrimaryFlags(dev, flags);
}
SIM_API(cuDevicePrimaryCtxGetState)(CUdevice dev, unsigned* flags, int* active) {
  SIM_ENTER(cuDevicePrimaryCtxGetState, kNone);
  const Device* const device = FindDevice(dev);
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *flags = device->primary_flags;
  *active = device->primary != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}
