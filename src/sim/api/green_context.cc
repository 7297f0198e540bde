// SPDX-License-Identifier: Apache-2.0
// Green contexts, their streams, and events for all work of a green context.
#include <algorithm>
#include <memory>

#include "sim/api/api.h"
#include "sim/graph/capture.h"

namespace gpushare::sim {
namespace {

GreenContext* FindGreen(CUgreenCtx handle) { return state().green_contexts.Find(handle); }

std::unique_ptr<Stream> OwnStream(const GreenContext& green) {
  auto stream = std::make_unique<Stream>();
  stream->id = ++state().stream_ids;
  stream->context = green.primary;
  stream->device = green.primary->device;
  stream->partition = green.partition;
  stream->account = stream->device->FindAccount(0);
  return stream;
}

CUresult Create(CUgreenCtx* handle, CUdevResourceDesc description, CUdevice dev, unsigned flags) {
  State& s = state();
  Device* const device = FindDevice(dev);
  const ResourceDescriptor* const descriptor = s.resource_descriptors.Find(description);
  if (handle == nullptr || descriptor == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (device == nullptr || device->ordinal != descriptor->device) return CUDA_ERROR_INVALID_DEVICE;
  const PartitionId partition = FindPartition(device->ordinal, descriptor->sms);
  if (partition == kWholeDevice) return CUDA_ERROR_OUT_OF_MEMORY;
  CUcontext primary = nullptr;
  const CUresult result = RetainPrimary(&primary, dev);
  if (result != CUDA_SUCCESS) return result;
  auto green = std::make_unique<GreenContext>();
  green->handle = s.green_contexts.Add(green.get());
  green->as_context = s.green_as_contexts.Add(green.get());
  ++s.green_handles;
  green->id = ++s.context_ids;
  green->primary = device->primary;
  green->partition = partition;
  green->legacy = OwnStream(*green);
  green->legacy->green = green.get();
  green->legacy->legacy = true;
  green->order = OwnStream(*green);
  green->order->non_blocking = true;
  device->primary->greens.push_back(green.get());
  device->KnowSms();
  *handle = reinterpret_cast<CUgreenCtx>(green->handle);
  static_cast<void>(green.release());  // owned by the handle table from now on
  return CUDA_SUCCESS;
}

CUresult Destroy(CUgreenCtx handle) {
  GreenContext* const green = FindGreen(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const CUdevice device = green->primary->device->ordinal;
  std::vector<uint64_t>& stack = CurrentThread()->contexts;
  if (!stack.empty() && stack.back() == green->as_context) stack.pop_back();
  DestroyGreenContext(green);
  return ReleasePrimary(device);
}

CUresult CreateStream(CUstream* handle, CUgreenCtx green_handle, unsigned flags, int priority) {
  if (handle == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  GreenContext* const green = FindGreen(green_handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (green->primary->lost != 0) return static_cast<CUresult>(green->primary->lost);
  Stream* const stream = NewStream(green->primary, green);
  stream->priority = std::clamp(priority, 1 - kPriorityLevels, 0);
  stream->non_blocking = true;
  *handle = reinterpret_cast<CUstream>(stream->handle);
  return CUDA_SUCCESS;
}

template <typename F>
void ForEachStream(const GreenContext& green, F&& f) {
  f(green.legacy.get());
  for (Stream* stream : std::vector<Stream*>(green.primary->streams)) {
    if (stream->green == &green && !stream->destroyed) f(stream);
  }
}

// An event for a whole context cannot be captured.
CUresult RefuseCaptures(const GreenContext& green) {
  CUresult result = CUDA_SUCCESS;
  ForEachStream(green, [&](Stream* stream) {
    if (RefuseCapture(stream) != CUDA_SUCCESS) result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  });
  return result;
}

CUresult Record(CUgreenCtx handle, CUevent event_handle) {
  State& s = state();
  GreenContext* const green = FindGreen(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Event* const event = FindEvent(event_handle);
  if (event == nullptr || event->context != green->primary) return CUDA_ERROR_INVALID_HANDLE;
  if (event->shared != Event::kNotShared) return CUDA_ERROR_NOT_SUPPORTED;
  if (green->primary->lost != 0) return static_cast<CUresult>(green->primary->lost);
  const CUresult result = RefuseCaptures(*green);
  if (result != CUDA_SUCCESS) return result;
  Command* const command = NewCommand(green->order.get(), CommandType::kRecord);
  command->timed = event->timing;
  command->event = event;
  if (event->record != nullptr) event->record->event = nullptr;
  event->record = command;
  event->recorded = true;
  event->capture = nullptr;
  event->capture_tail.clear();
  ForEachStream(*green, [&](Stream* stream) {
    if (stream->tail != nullptr) s.pool.AddEdge(stream->tail, command);
  });
  Submit(green->order.get(), command);
  return CUDA_SUCCESS;
}

CUresult WaitEvent(CUgreenCtx handle, CUevent event_handle) {
  State& s = state();
  GreenContext* const green = FindGreen(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Event* const event = FindEvent(event_handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->shared != Event::kNotShared) return CUDA_ERROR_NOT_SUPPORTED;
  if (event->capture != nullptr) {
    Invalidate(event->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  const CUresult result = RefuseCaptures(*green);
  if (result != CUDA_SUCCESS) return result;
  if (event->record == nullptr) return CUDA_SUCCESS;
  std::erase_if(green->waits, [](const GreenContext::Wait& wait) {
    return wait.command->generation != wait.generation;
  });
  green->waits.push_back({event->record, event->record->generation});
  Command* const record = event->record;
  const uint32_t generation = record->generation;
  ForEachStream(*green, [&](Stream* stream) {
    if (record->generation != generation) return;
    Command* const command = NewCommand(stream, CommandType::kEmpty);
    command->earliest = 0;
    s.pool.AddEdge(record, command);
    Submit(stream, command);
  });
  return CUDA_SUCCESS;
}

CUresult Id(CUgreenCtx handle, unsigned long long* id) {
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const GreenContext* const green =
      handle == nullptr ? CurrentGreen(*CurrentThread()) : FindGreen(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *id = green->id;
  return CUDA_SUCCESS;
}

CUresult GreenOf(CUstream handle, CUgreenCtx* green) {
  if (green == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  const CUresult result = FindStream(handle, NullStream::kLegacy, &stream);
  if (result != CUDA_SUCCESS) return result;
  *green = stream->green == nullptr ? nullptr : reinterpret_cast<CUgreenCtx>(stream->green->handle);
  return CUDA_SUCCESS;
}

CUresult ContextsOf(CUstream handle, CUcontext* context, CUgreenCtx* green, NullStream null) {
  if (context == nullptr || green == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  const CUresult result = FindStream(handle, null, &stream);
  if (result != CUDA_SUCCESS) return result;
  *context = HandleOf(stream->context);
  *green = stream->green == nullptr ? nullptr : reinterpret_cast<CUgreenCtx>(stream->green->handle);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

// Newer than the oldest header that is supported.
extern "C" CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream*, CUgreenCtx, unsigned, int);
extern "C" CUresult CUDAAPI cuGreenCtxGetId(CUgreenCtx, unsigned long long*);
extern "C" CUresult CUDAAPI cuStreamGetCtx_v2(CUstream, CUcontext*, CUgreenCtx*);
extern "C" CUresult CUDAAPI cuStreamGetCtx_v2_ptsz(CUstream, CUcontext*, CUgreenCtx*);

SIM_API(cuGreenCtxCreate)
(CUgreenCtx* green, CUdevResourceDesc descriptor, CUdevice dev, unsigned flags) {
  SIM_ENTER(cuGreenCtxCreate, kCall);
  return Create(green, descriptor, dev, flags);
}

SIM_API(cuGreenCtxDestroy)(CUgreenCtx green) {
  SIM_ENTER(cuGreenCtxDestroy, kCall);
  return Destroy(green);
}

SIM_API(cuCtxFromGreenCtx)(CUcontext* context, CUgreenCtx handle) {
  SIM_ENTER(cuCtxFromGreenCtx, kNone);
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const GreenContext* const green = FindGreen(handle);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *context = reinterpret_cast<CUcontext>(green->as_context);
  return CUDA_SUCCESS;
}

SIM_API(cuGreenCtxStreamCreate)
(CUstream* stream, CUgreenCtx green, unsigned flags, int priority) {
  SIM_ENTER(cuGreenCtxStreamCreate, kCall);
  return CreateStream(stream, green, flags, priority);
}

SIM_API(cuGreenCtxRecordEvent)(CUgreenCtx green, CUevent event) {
  SIM_ENTER(cuGreenCtxRecordEvent, kRecord);
  return Record(green, event);
}

SIM_API(cuGreenCtxWaitEvent)(CUgreenCtx green, CUevent event) {
  SIM_ENTER(cuGreenCtxWaitEvent, kCall);
  return WaitEvent(green, event);
}

SIM_API(cuGreenCtxGetId)(CUgreenCtx green, unsigned long long* id) {
  SIM_ENTER(cuGreenCtxGetId, kNone);
  return Id(green, id);
}

SIM_API(cuStreamGetGreenCtx)(CUstream stream, CUgreenCtx* green) {
  SIM_ENTER(cuStreamGetGreenCtx, kNone);
  return GreenOf(stream, green);
}

SIM_STREAM_API(cuStreamGetCtx_v2, _ptsz, kNone,
               (CUstream stream, CUcontext* context, CUgreenCtx* green),
               ContextsOf(stream, context, green, null));
