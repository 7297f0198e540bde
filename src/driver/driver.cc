// SPDX-License-Identifier: Apache-2.0
// The calls of Driver: each forwards to the driver and returns its code unchanged.
#include "driver/driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "driver/current_context.h"
#include "driver/state.h"

namespace gpushare::driver {
namespace {

static_assert(std::is_same_v<DevicePtr, CUdeviceptr>);
static_assert(std::is_same_v<PhysicalMemory, CUmemGenericAllocationHandle>);
static_assert(std::is_same_v<Context, CUcontext> && std::is_same_v<GreenContext, CUgreenCtx> &&
              std::is_same_v<Stream, CUstream> && std::is_same_v<Event, CUevent> &&
              std::is_same_v<Module, CUmodule> && std::is_same_v<Function, CUfunction> &&
              std::is_same_v<Graph, CUgraph> && std::is_same_v<GraphExec, CUgraphExec> &&
              std::is_same_v<GraphNode, CUgraphNode> && std::is_same_v<MemPool, CUmemoryPool>);

Result Code(CUresult result) { return Result{static_cast<int>(result)}; }

// Of memory that is mapped on its own device and shown to nobody else.
CUmemAllocationProp MemoryOf(int ordinal) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal;
  return properties;
}

}  // namespace

Driver::Driver(std::unique_ptr<State> state) : state_(std::move(state)) {}
Driver::~Driver() = default;

bool Driver::simulated() const { return state_->simulated; }
base::Clock& Driver::clock() const {
  return state_->clock != nullptr ? *state_->clock : base::RealClock();
}
int Driver::version() const { return state_->version; }
const std::string& Driver::path() const { return state_->path; }
void* Driver::Symbol(const char* name) const { return dlsym(state_->handle, name); }
void Driver::ResetSimulation() const {
  if (!simulated()) return;
  using Reset = int (*)();
  if (const auto reset = reinterpret_cast<Reset>(Symbol("gpushare_sim_reset"))) {
    static_cast<void>(reset());
  }
}
const Table& Driver::table() const { return state_->table; }

// -- Contexts --

Result Driver::ReleasePrimaryContext(int ordinal) const {
  CUdevice device = 0;
  if (const CUresult result = state_->table.DeviceGet(&device, ordinal); result != CUDA_SUCCESS) {
    return Code(result);
  }
  const CurrentContext::Change change(CurrentContext::kOfAll);
  return Code(state_->table.DevicePrimaryCtxRelease(device));
}
Result Driver::PushContext(Context context) const {
  const CurrentContext::Change change;
  return Code(state_->table.CtxPushCurrent(context));
}
Result Driver::PopContext() const {
  const CurrentContext::Change change;
  CUcontext popped = nullptr;
  return Code(state_->table.CtxPopCurrent(&popped));
}
Result Driver::SynchronizeContext() const { return Code(state_->table.CtxSynchronize()); }
Result Driver::CurrentContext(Context* context) const {
  return Code(state_->table.CtxGetCurrent(context));
}

Result Driver::CreateContext(Context* context, int ordinal) const {
  const CurrentContext::Change change;
  CUdevice device = 0;
  CUresult result = state_->table.DeviceGet(&device, ordinal);
  if (result == CUDA_SUCCESS) result = state_->table.CtxCreate(context, 0, device);
  if (result != CUDA_SUCCESS) return Code(result);
  CUcontext popped = nullptr;  // cuCtxCreate made it current
  return Code(state_->table.CtxPopCurrent(&popped));
}
Result Driver::DestroyContext(Context context) const {
  const CurrentContext::Change change(CurrentContext::kOfAll);
  return Code(state_->table.CtxDestroy(context));
}

// -- Partitions of the SMs --

static_assert(sizeof(Driver::SmStep) == sizeof(CUdevResource) &&
              alignof(Driver::SmStep) >= alignof(CUdevResource));

Result Driver::SplitSms(int ordinal, std::vector<SmStep>* steps, int* sms_per_step) const {
  CUdevice device = 0;
  CUdevResource all = {};
  CUresult result = state_->table.DeviceGet(&device, ordinal);
  if (result == CUDA_SUCCESS) {
    result = state_->table.DeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM);
  }
  if (result != CUDA_SUCCESS) return Code(result);
  unsigned count = 0;
  result = state_->table.DevSmResourceSplitByCount(nullptr, &count, &all, nullptr, 0, 0);
  if (result != CUDA_SUCCESS) return Code(result);
  std::vector<CUdevResource> groups(count);
  result = state_->table.DevSmResourceSplitByCount(groups.data(), &count, &all, nullptr, 0, 0);
  if (result != CUDA_SUCCESS) return Code(result);
  steps->resize(count);
  for (unsigned i = 0; i < count; ++i) {
    std::memcpy((*steps)[i].resource, &groups[i], sizeof(groups[i]));
  }
  *sms_per_step = count == 0 ? 0 : static_cast<int>(groups[0].sm.smCount);
  return Result::kSuccess;
}

Result Driver::CreateGreenContext(GreenContext* green, int ordinal,
                                  const std::vector<SmStep>& steps) const {
  std::vector<CUdevResource> resources(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    std::memcpy(&resources[i], steps[i].resource, sizeof(resources[i]));
  }
  CUdevice device = 0;
  CUdevResourceDesc descriptor = nullptr;
  CUresult result = state_->table.DeviceGet(&device, ordinal);
  if (result == CUDA_SUCCESS) {
    result = state_->table.DevResourceGenerateDesc(&descriptor, resources.data(),
                                                   static_cast<unsigned>(resources.size()));
  }
  if (result != CUDA_SUCCESS) return Code(result);
  return Code(state_->table.GreenCtxCreate(green, descriptor, device, CU_GREEN_CTX_DEFAULT_STREAM));
}
Result Driver::DestroyGreenContext(GreenContext green) const {
  return Code(state_->table.GreenCtxDestroy(green));
}
Result Driver::AsContext(Context* context, GreenContext green) const {
  return Code(state_->table.CtxFromGreenCtx(context, green));
}

// -- Memory --

Result Driver::MemAlloc(DevicePtr* pointer, size_t bytes) const {
  return Code(state_->table.MemAlloc(pointer, bytes));
}
Result Driver::MemFree(DevicePtr pointer) const { return Code(state_->table.MemFree(pointer)); }
Result Driver::MemInfo(size_t* free, size_t* total) const {
  return Code(state_->table.MemGetInfo(free, total));
}
Result Driver::AddressRange(DevicePtr* base, size_t* bytes, DevicePtr pointer) const {
  return Code(state_->table.MemGetAddressRange(base, bytes, pointer));
}
Result Driver::AllocPinned(void** memory, size_t bytes) const {
  return Code(state_->table.MemHostAlloc(memory, bytes, CU_MEMHOSTALLOC_PORTABLE));
}
Result Driver::FreePinned(void* memory) const { return Code(state_->table.MemFreeHost(memory)); }
Result Driver::MemoryGranularity(size_t* bytes, int ordinal) const {
  const CUmemAllocationProp properties = MemoryOf(ordinal);
  return Code(state_->table.MemGetAllocationGranularity(bytes, &properties,
                                                        CU_MEM_ALLOC_GRANULARITY_MINIMUM));
}
Result Driver::ReserveAddresses(DevicePtr* pointer, size_t bytes) const {
  return Code(state_->table.MemAddressReserve(pointer, bytes, 0, 0, 0));
}
Result Driver::FreeAddresses(DevicePtr pointer, size_t bytes) const {
  return Code(state_->table.MemAddressFree(pointer, bytes));
}
Result Driver::CreateMemory(PhysicalMemory* memory, size_t bytes, int ordinal) const {
  const CUmemAllocationProp properties = MemoryOf(ordinal);
  return Code(state_->table.MemCreate(memory, bytes, &properties, 0));
}
Result Driver::ReleaseMemory(PhysicalMemory memory) const {
  return Code(state_->table.MemRelease(memory));
}
Result Driver::MapMemory(DevicePtr pointer, size_t bytes, PhysicalMemory memory) const {
  return Code(state_->table.MemMap(pointer, bytes, 0, memory, 0));
}
Result Driver::UnmapMemory(DevicePtr pointer, size_t bytes) const {
  return Code(state_->table.MemUnmap(pointer, bytes));
}
Result Driver::AllowAccess(DevicePtr pointer, size_t bytes, int ordinal) const {
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = ordinal;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return Code(state_->table.MemSetAccess(pointer, bytes, &access, 1));
}
Result Driver::CreatePool(MemPool* pool, int ordinal, uint64_t most) const {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  // Sets `maxSize`, a reserved field in older headers.
  std::memcpy(reinterpret_cast<char*>(&properties) +
                  offsetof(CUmemPoolProps, win32SecurityAttributes) + sizeof(void*),
              &most, sizeof(most));
  MemPool made = nullptr;
  CUresult result = state_->table.MemPoolCreate(&made, &properties);
  if (result != CUDA_SUCCESS) return Code(result);
  cuuint64_t keep = UINT64_MAX;
  result = state_->table.MemPoolSetAttribute(made, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
  int waits = 0;
  if (result == CUDA_SUCCESS) {
    result = state_->table.MemPoolSetAttribute(
        made, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &waits);
  }
  if (result == CUDA_SUCCESS) {
    *pool = made;
  } else {
    static_cast<void>(state_->table.MemPoolDestroy(made));
  }
  return Code(result);
}
Result Driver::DestroyPool(MemPool pool) const { return Code(state_->table.MemPoolDestroy(pool)); }
Result Driver::TrimPool(MemPool pool, size_t keep) const {
  return Code(state_->table.MemPoolTrimTo(pool, keep));
}
Result Driver::ReadPool(MemPool pool, PoolUsage* usage, bool peaks) const {
  const auto read = [&](CUmemPool_attribute attribute, uint64_t* value) {
    cuuint64_t now = 0;
    const CUresult result = state_->table.MemPoolGetAttribute(pool, attribute, &now);
    *value = now;
    return result;
  };
  CUresult result = read(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &usage->reserved);
  if (result == CUDA_SUCCESS) result = read(CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &usage->used);
  if (!peaks || result != CUDA_SUCCESS) return Code(result);
  result = read(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &usage->peak_reserved);
  if (result == CUDA_SUCCESS) result = read(CU_MEMPOOL_ATTR_USED_MEM_HIGH, &usage->peak_used);
  return Code(result);
}
Result Driver::AllocFromPool(DevicePtr* pointer, size_t bytes, MemPool pool, Stream stream) const {
  return Code(state_->table.MemAllocFromPoolAsync(pointer, bytes, pool, stream));
}
Result Driver::FreeAsync(DevicePtr pointer, Stream stream) const {
  return Code(state_->table.MemFreeAsync(pointer, stream));
}
Result Driver::CopyHtoD(DevicePtr to, const void* from, size_t bytes) const {
  return Code(state_->table.MemcpyHtoD(to, from, bytes));
}
Result Driver::CopyDtoH(void* to, DevicePtr from, size_t bytes) const {
  return Code(state_->table.MemcpyDtoH(to, from, bytes));
}
Result Driver::CopyHtoDAsync(DevicePtr to, const void* from, size_t bytes, Stream stream) const {
  return Code(state_->table.MemcpyHtoDAsync(to, from, bytes, stream));
}
Result Driver::CopyDtoHAsync(void* to, DevicePtr from, size_t bytes, Stream stream) const {
  return Code(state_->table.MemcpyDtoHAsync(to, from, bytes, stream));
}
Result Driver::CopyDtoDAsync(DevicePtr to, DevicePtr from, size_t bytes, Stream stream) const {
  return Code(state_->table.MemcpyDtoDAsync(to, from, bytes, stream));
}
Result Driver::SetD8Async(DevicePtr to, unsigned char value, size_t bytes, Stream stream) const {
  return Code(state_->table.MemsetD8Async(to, value, bytes, stream));
}

// -- Streams and events --

Result Driver::CreateStream(Stream* stream, int priority) const {
  return Code(state_->table.StreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, priority));
}
Result Driver::CreateStreamOn(Stream* stream, GreenContext green, int priority) const {
  return Code(state_->table.GreenCtxStreamCreate(stream, green, CU_STREAM_NON_BLOCKING, priority));
}
Result Driver::StreamContext(Stream stream, Context* context) const {
  return Code(state_->table.StreamGetCtx(stream, context));
}
Result Driver::DestroyStream(Stream stream) const {
  return Code(state_->table.StreamDestroy(stream));
}
Result Driver::SynchronizeStream(Stream stream) const {
  return Code(state_->table.StreamSynchronize(stream));
}
Result Driver::QueryStream(Stream stream) const { return Code(state_->table.StreamQuery(stream)); }
Result Driver::StreamPriorityRange(int* least, int* greatest) const {
  return Code(state_->table.CtxGetStreamPriorityRange(least, greatest));
}
Result Driver::StreamPriority(Stream stream, int* priority) const {
  return Code(state_->table.StreamGetPriority(stream, priority));
}
Result Driver::StreamId(Stream stream, uint64_t* id) const {
  unsigned long long number = 0;
  const CUresult result = state_->table.StreamGetId(stream, &number);
  *id = number;
  return Code(result);
}
Result Driver::StreamCapture(Stream stream, Capture* capture) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = state_->table.StreamIsCapturing(stream, &status);
  *capture = status == CU_STREAM_CAPTURE_STATUS_NONE     ? Capture::kNone
             : status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? Capture::kActive
                                                         : Capture::kInvalidated;
  return Code(result);
}
Result Driver::CreateEvent(Event* event, bool timing) const {
  return Code(
      state_->table.EventCreate(event, timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING));
}
Result Driver::DestroyEvent(Event event) const { return Code(state_->table.EventDestroy(event)); }
Result Driver::RecordEvent(Event event, Stream stream) const {
  return Code(state_->table.EventRecord(event, stream));
}
Result Driver::QueryEvent(Event event) const { return Code(state_->table.EventQuery(event)); }
Result Driver::SynchronizeEvent(Event event) const {
  return Code(state_->table.EventSynchronize(event));
}
Result Driver::ElapsedMs(float* ms, Event start, Event end) const {
  return Code(state_->table.EventElapsedTime(ms, start, end));
}
Result Driver::StreamWaitEvent(Stream stream, Event event) const {
  return Code(state_->table.StreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT));
}
Result Driver::RelaxThreadCaptureMode() const {
  int mode = kRelaxedCapture;
  return ExchangeThreadCaptureMode(&mode);
}

static_assert(Driver::kRelaxedCapture == CU_STREAM_CAPTURE_MODE_RELAXED);
Result Driver::ExchangeThreadCaptureMode(int* mode) const {
  auto exchanged = static_cast<CUstreamCaptureMode>(*mode);
  const CUresult result = state_->table.ThreadExchangeStreamCaptureMode(&exchanged);
  *mode = static_cast<int>(exchanged);
  return Code(result);
}

// -- Code --

Result Driver::LoadModule(Module* module, const void* image, std::string* log) const {
  if (log == nullptr) return Code(state_->table.ModuleLoadData(module, image));
  char text[2048] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {text, reinterpret_cast<void*>(uintptr_t{sizeof(text)})};
  const CUresult result = state_->table.ModuleLoadDataEx(module, image, 2, options, values);
  if (result == CUDA_ERROR_NOT_SUPPORTED) return LoadModule(module, image);
  log->assign(text, strnlen(text, sizeof(text)));
  return Code(result);
}
Result Driver::UnloadModule(Module module) const {
  return Code(state_->table.ModuleUnload(module));
}
Result Driver::GetFunction(Function* function, Module module, const char* name) const {
  return Code(state_->table.ModuleGetFunction(function, module, name));
}
Result Driver::BlocksPerSm(int* blocks, Function function, int threads, size_t shared_bytes) const {
  return Code(state_->table.OccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads,
                                                                      shared_bytes));
}
Result Driver::SetMaxDynamicShared(Function function, int bytes) const {
  return Code(state_->table.FuncSetAttribute(
      function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes));
}
Result Driver::Launch(Function function, const LaunchShape& shape, Stream stream,
                      void** params) const {
  return Code(state_->table.LaunchKernel(function, shape.grid.x, shape.grid.y, shape.grid.z,
                                         shape.block.x, shape.block.y, shape.block.z,
                                         shape.shared_bytes, stream, params, nullptr));
}
Result Driver::LaunchAt(int priority, Function function, const LaunchShape& shape, Stream stream,
                        void** params) const {
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attribute.value.priority = priority;
  CUlaunchConfig config = {};
  config.gridDimX = shape.grid.x, config.gridDimY = shape.grid.y, config.gridDimZ = shape.grid.z;
  config.blockDimX = shape.block.x, config.blockDimY = shape.block.y;
  config.blockDimZ = shape.block.z;
  config.sharedMemBytes = static_cast<unsigned>(shape.shared_bytes);
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return Code(state_->table.LaunchKernelEx(&config, function, params, nullptr));
}
Result Driver::LaunchCooperative(Function function, const LaunchShape& shape, Stream stream,
                                 void** params) const {
  return Code(state_->table.LaunchCooperativeKernel(
      function, shape.grid.x, shape.grid.y, shape.grid.z, shape.block.x, shape.block.y,
      shape.block.z, shape.shared_bytes, stream, params));
}
Result Driver::LaunchHost(Stream stream, void (*function)(void*), void* argument) const {
  return Code(state_->table.LaunchHostFunc(stream, function, argument));
}

// -- Graphs --

Result Driver::BeginCapture(Stream stream) const {
  return Code(state_->table.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}
Result Driver::EndCapture(Stream stream, Graph* graph) const {
  return Code(state_->table.StreamEndCapture(stream, graph));
}
Result Driver::Instantiate(GraphExec* exec, Graph graph) const {
  return Code(state_->table.GraphInstantiateWithFlags(exec, graph, 0));
}

Result Driver::LaunchGraph(GraphExec exec, Stream stream) const {
  return Code(state_->table.GraphLaunch(exec, stream));
}
Result Driver::DestroyGraph(Graph graph) const { return Code(state_->table.GraphDestroy(graph)); }
Result Driver::TrimGraphMemory(int ordinal) const {
  return Code(state_->table.DeviceGraphMemTrim(ordinal));
}
Result Driver::DestroyGraphExec(GraphExec exec) const {
  return Code(state_->table.GraphExecDestroy(exec));
}

}  // namespace gpushare::driver
