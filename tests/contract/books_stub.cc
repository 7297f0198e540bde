// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/books_stub.h"

#include <algorithm>

namespace gpushare::books {
namespace {

template <typename Function>
struct Succeeds;
template <typename... Arguments>
struct Succeeds<CUresult(CUDAAPI*)(Arguments...)> {
  static CUresult Call(Arguments...) { return CUDA_SUCCESS; }
};

template <typename Handle>
CUresult Give(Handle* handle, uint64_t value) {
  *handle = (Handle)value;  // NOLINT: casts integers and pointers alike
  return CUDA_SUCCESS;
}

}  // namespace

StubDriver* StubDriver::current_ = nullptr;

StubDriver* StubDriver::Enter(const char* call) {
  StubDriver* const stub = current_;
  std::function<void()> inside;
  {
    const std::lock_guard lock(stub->mutex_);
    ++stub->calls_[call];
    if (const auto at = stub->inside_.find(call); at != stub->inside_.end()) {
      inside = std::move(at->second);
      stub->inside_.erase(at);
    }
  }
  if (inside) inside();
  return stub;
}

StubDriver::StubDriver() {
  current_ = this;
#define X(field, ...) table.field = &Succeeds<decltype(table.field)>::Call;
#include "driver/entries.def"
#undef X
  FillMemory();
  FillPools();
  FillContexts();
}

void StubDriver::FillMemory() {
  table.MemAlloc = [](CUdeviceptr* p, size_t) { return Give(p, Enter("MemAlloc")->Next()); };
  table.MemAllocManaged = [](CUdeviceptr* p, size_t, unsigned) {
    return Give(p, Enter("MemAllocManaged")->Next());
  };
  table.MemAllocPitch = [](CUdeviceptr* p, size_t* pitch, size_t width, size_t, unsigned) {
    StubDriver* const stub = Enter("MemAllocPitch");
    *pitch = (width + stub->pitch_unit - 1) / stub->pitch_unit * stub->pitch_unit;
    return Give(p, stub->Next());
  };
  table.MemFree = [](CUdeviceptr) { return Enter("MemFree"), CUDA_SUCCESS; };
  table.MemFreeAsync = [](CUdeviceptr, CUstream) { return Enter("MemFreeAsync"), CUDA_SUCCESS; };
  table.MemCreate = [](CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*,
                       unsigned long long) { return Give(handle, Enter("MemCreate")->Next()); };
  table.MemMap = [](CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) {
    return Enter("MemMap"), CUDA_SUCCESS;
  };
  table.MemRetainAllocationHandle = [](CUmemGenericAllocationHandle* handle, void*) {
    return Give(handle, Enter("MemRetainAllocationHandle")->Next());
  };
  table.MemExportToShareableHandle = [](void* shareable, CUmemGenericAllocationHandle,
                                        CUmemAllocationHandleType, unsigned long long) {
    *static_cast<int*>(shareable) = Enter("MemExportToShareableHandle")->descriptor;
    return CUDA_SUCCESS;
  };
  table.MemImportFromShareableHandle = [](CUmemGenericAllocationHandle* handle, void*,
                                          CUmemAllocationHandleType) {
    return Give(handle, Enter("MemImportFromShareableHandle")->Next());
  };
  table.ImportExternalMemory = [](CUexternalMemory* handle,
                                  const CUDA_EXTERNAL_MEMORY_HANDLE_DESC*) {
    return Give(handle, Enter("ImportExternalMemory")->Next());
  };
  table.ExternalMemoryGetMappedBuffer = [](CUdeviceptr* p, CUexternalMemory,
                                           const CUDA_EXTERNAL_MEMORY_BUFFER_DESC*) {
    return Give(p, 0x500000);
  };
  table.ArrayCreate = [](CUarray* array, const CUDA_ARRAY_DESCRIPTOR*) {
    return Give(array, Enter("ArrayCreate")->Next());
  };
  table.CtxGetDevice = [](CUdevice* device) { return *device = 0, CUDA_SUCCESS; };
  table.Array3DCreate = [](CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* shape) {
    constexpr unsigned kDeferredMapping = 0x80;
    const bool twin = (shape->Flags & kDeferredMapping) != 0;
    if (twin && current_->array_needs == 0) return CUDA_ERROR_INVALID_VALUE;
    return Give(array, Enter(twin ? "Array3DCreate deferred" : "Array3DCreate")->Next());
  };
  table.ArrayGetMemoryRequirements = [](CUDA_ARRAY_MEMORY_REQUIREMENTS* needs, CUarray, CUdevice) {
    return needs->size = current_->array_needs, CUDA_SUCCESS;
  };
  table.ArrayDestroy = [](CUarray) { return Enter("ArrayDestroy"), CUDA_SUCCESS; };
}

void StubDriver::FillPools() {
  table.DeviceGetCount = [](int* count) { return *count = 1, CUDA_SUCCESS; };
  table.DeviceGetDefaultMemPool =
      table.DeviceGetMemPool = [](CUmemoryPool* pool, CUdevice) { return Give(pool, 0x900); };
  table.PointerGetAttribute = [](void* data, CUpointer_attribute, CUdeviceptr) {
    return *static_cast<int*>(data) = 0, CUDA_SUCCESS;
  };
  table.StreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
    return *status = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
  };
  table.MemPoolCreate = [](CUmemoryPool* pool, const CUmemPoolProps*) {
    return Give(pool, Enter("MemPoolCreate")->Next());
  };
  table.MemPoolDestroy = [](CUmemoryPool) { return Enter("MemPoolDestroy"), CUDA_SUCCESS; };
  table.MemPoolTrimTo = [](CUmemoryPool, size_t) { return Enter("MemPoolTrimTo"), CUDA_SUCCESS; };
  table.MemPoolGetAttribute = [](CUmemoryPool, CUmemPool_attribute, void* data) {
    // The value is read before the other threads run, so it may be out of date when this call continues.
    const uint64_t reserved = current_->pool_reserved;
    Enter("MemPoolGetAttribute");
    return *static_cast<uint64_t*>(data) = reserved, CUDA_SUCCESS;
  };
  table.MemAllocFromPoolAsync = [](CUdeviceptr* p, size_t bytes, CUmemoryPool, CUstream) {
    StubDriver* const stub = Enter("MemAllocFromPoolAsync");
    if (stub->pool_result != CUDA_SUCCESS) return stub->pool_result;
    stub->pool_reserved += bytes + stub->pool_grows;
    return Give(p, stub->Next());
  };
  table.GraphGetNodes = [](CUgraph, CUgraphNode* nodes, size_t* count) {
    *count = current_->graph_needs == 0 ? 0 : std::max(size_t{1}, 2 * current_->graph_steps);
    for (size_t i = 0; nodes != nullptr && i < *count; ++i) {
      nodes[i] = reinterpret_cast<CUgraphNode>(static_cast<uintptr_t>(i));
    }
    return CUDA_SUCCESS;
  };
  // Allocations and frees take turns; a free is of the address that is the number of the node before it.
  table.GraphNodeGetType = [](CUgraphNode node, CUgraphNodeType* type) {
    const bool frees = reinterpret_cast<uintptr_t>(node) % 2 == 1;
    return *type = frees ? CU_GRAPH_NODE_TYPE_MEM_FREE : CU_GRAPH_NODE_TYPE_MEM_ALLOC, CUDA_SUCCESS;
  };
  table.GraphMemAllocNodeGetParams = [](CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
    parameters->bytesize = current_->graph_needs;
    parameters->dptr = reinterpret_cast<uintptr_t>(node);
    return CUDA_SUCCESS;
  };
  table.GraphMemFreeNodeGetParams = [](CUgraphNode node, CUdeviceptr* pointer) {
    return *pointer = reinterpret_cast<uintptr_t>(node) - 1, CUDA_SUCCESS;
  };
  table.GraphLaunch = [](CUgraphExec, CUstream) {
    StubDriver* const stub = Enter("GraphLaunch");
    stub->graph_reserved = std::max(stub->graph_reserved, stub->graph_takes);
    return CUDA_SUCCESS;
  };
  table.GraphUpload = [](CUgraphExec, CUstream) { return Enter("GraphUpload"), CUDA_SUCCESS; };
  table.DeviceGetGraphMemAttribute = [](CUdevice, CUgraphMem_attribute, void* data) {
    const uint64_t reserved = Enter("DeviceGetGraphMemAttribute")->graph_reserved;
    return *static_cast<uint64_t*>(data) = reserved, CUDA_SUCCESS;
  };
  table.DeviceGraphMemTrim = [](CUdevice) {
    StubDriver* const stub = Enter("DeviceGraphMemTrim");
    if (!stub->busy) stub->graph_reserved = 0;
    return CUDA_SUCCESS;
  };
  table.MemGetAllocationGranularity = [](size_t* unit, const CUmemAllocationProp*,
                                         CUmemAllocationGranularity_flags) {
    return *unit = 1 << 20, CUDA_SUCCESS;
  };
}

void StubDriver::FillContexts() {
  table.CtxGetCurrent = [](CUcontext* one) { return *one = current_->context, CUDA_SUCCESS; };
  table.StreamGetCtx = [](CUstream, CUcontext* one) {
    CUcontext const own = current_->stream_context;
    return *one = own != nullptr ? own : current_->context, CUDA_SUCCESS;
  };
  table.CtxPushCurrent = [](CUcontext one) {
    current_->below_.push_back(std::exchange(current_->context, one));
    return CUDA_SUCCESS;
  };
  table.CtxPopCurrent = [](CUcontext* one) {
    *one = std::exchange(current_->context, current_->below_.back());
    current_->below_.pop_back();
    return CUDA_SUCCESS;
  };
  table.EventRecord = [](CUevent, CUstream) {
    CUcontext const own = current_->stream_context;
    return own == nullptr || own == current_->context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  };
  table.StreamSynchronize = [](CUstream) { return Enter("StreamSynchronize"), CUDA_SUCCESS; };
  table.CtxGetDevice = [](CUdevice* device) { return *device = 0, CUDA_SUCCESS; };
  table.CtxDestroy = [](CUcontext) { return Enter("CtxDestroy"), CUDA_SUCCESS; };
  table.CtxDetach = [](CUcontext) { return --Enter("CtxDetach")->attached, CUDA_SUCCESS; };
  table.CtxGetApiVersion = [](CUcontext, unsigned*) {
    return current_->attached > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  };
  table.CtxFromGreenCtx = [](CUcontext* one, CUgreenCtx) {
    return *one = current_->green, CUDA_SUCCESS;
  };
  table.GreenCtxDestroy = [](CUgreenCtx) {
    return --Enter("GreenCtxDestroy")->primary_count, CUDA_SUCCESS;
  };
  table.DevicePrimaryCtxRetain = [](CUcontext* one, CUdevice) {
    ++Enter("DevicePrimaryCtxRetain")->primary_count;
    return *one = Primary(), CUDA_SUCCESS;
  };
  table.DevicePrimaryCtxRelease = [](CUdevice) {
    --Enter("DevicePrimaryCtxRelease")->primary_count;
    return CUDA_SUCCESS;
  };
  table.DevicePrimaryCtxGetState = [](CUdevice, unsigned*, int* active) {
    // The value is read before the other threads run, so it may be out of date when this call continues.
    *active = current_->primary_count > 0 ? 1 : 0;
    if (current_->primary_count == 1) Enter("DevicePrimaryCtxGetState of the last");
    return CUDA_SUCCESS;
  };
  table.EventQuery = [](CUevent) {
    return Enter("EventQuery")->busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  };
  table.StreamQuery = [](CUstream) { return current_->busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; };
}

}  // namespace gpushare::books
