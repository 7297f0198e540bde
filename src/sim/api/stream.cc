// SPDX-License-Identifier: Apache-2.0
// Streams.
#include <algorithm>
#include <memory>

#include "sim/api/api.h"
#include "sim/graph/capture.h"
#include "sim/processes/device.h"
#include "sim/stream/memory_operation.h"

namespace gpushare::sim {
namespace {

CUresult Create(CUstream* handle, unsigned flags, int priority) {
  if (handle == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  Stream* const stream = NewStream(context, CurrentGreen(*CurrentThread()));
  // Priorities out of range are clamped, as the driver does.
  stream->priority = std::clamp(priority, 1 - kPriorityLevels, 0);
  stream->non_blocking = (flags & CU_STREAM_NON_BLOCKING) != 0;
  *handle = reinterpret_cast<CUstream>(stream->handle);
  return CUDA_SUCCESS;
}

CUresult Destroy(CUstream handle) {
  State& s = state();
  Stream* const stream = s.streams.Find(handle);
  if (stream == nullptr && s.orphans.count(reinterpret_cast<uint64_t>(handle)) != 0) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  if (stream == nullptr || stream->per_thread) return CUDA_ERROR_INVALID_HANDLE;
  AbandonCapture(stream);
  s.streams.Remove(stream->handle);
  stream->destroyed = true;
  if (stream->head == nullptr) {
    std::vector<Stream*>& streams = stream->context->streams;
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
  }
  return CUDA_SUCCESS;
}

CUresult Query(const ThreadContext& thread, CUstream handle, NullStream null) {
  Stream* stream;
  CUresult result = FindStream(handle, null, &stream);
  if (result != CUDA_SUCCESS) return result;
  result = CheckStreamIdle(thread, stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->tail != nullptr) return CUDA_ERROR_NOT_READY;
  // The legacy stream also represents every blocking stream.
  if (stream->legacy) {
    for (const Stream* other : stream->context->streams) {
      if (!other->non_blocking && other->green == stream->green && other->tail != nullptr) {
        return CUDA_ERROR_NOT_READY;
      }
    }
  }
  return CUDA_SUCCESS;
}

CUresult Synchronize(const ThreadContext& thread, CUstream handle, NullStream null) {
  Stream* stream;
  CUresult result = FindStream(handle, null, &stream);
  if (result != CUDA_SUCCESS) return result;
  result = CheckStreamIdle(thread, stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->legacy && !state().captures.active.empty()) {
    result = CheckSubmit(stream);
    if (result != CUDA_SUCCESS) return result;
  }
  Device* const device = stream->device;
  const uint64_t id = stream->legacy ? 0 : stream->id;
  // The legacy stream also represents every blocking stream.
  result = stream->legacy ? WaitForDefaultStream(stream, "cuStreamSynchronize")
                          : WaitForStream(stream, "cuStreamSynchronize");
  if (result == CUDA_SUCCESS && !device->pools.empty()) PoolsSynchronized(device, id);
  return result;
}

CUresult WaitEvent(CUstream handle, CUevent event_handle, unsigned flags, NullStream null) {
  State& s = state();
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  Event* const event = FindEvent(event_handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Stream* stream;
  CUresult result = FindStream(handle, null, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (event->capture != nullptr || stream->capture != nullptr) {
    if (stream->capture != nullptr && stream->capture->invalidated) {
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (stream->capture != nullptr && (flags & CU_EVENT_WAIT_EXTERNAL) != 0) {
      AddCapturedNode(stream, NodeType::kEventWait)->event = event->handle;
      return CUDA_SUCCESS;
    }
    return CaptureWait(stream, event);
  }
  result = CheckSubmit(stream);
  if (result != CUDA_SUCCESS) return result;
  if (event->shared != Event::kNotShared && s.shared != nullptr) {
    const uint64_t record = s.shared->events().Recorded(event->shared);
    if (s.shared->events().IsComplete(event->shared, record)) return CUDA_SUCCESS;
    Command* const wait = NewCommand(stream, CommandType::kWaitValue);
    wait->earliest = 0;
    wait->value = SharedRecord(event->shared, record);
    Submit(stream, wait);
    return CUDA_SUCCESS;
  }
  if (event->record == nullptr) return CUDA_SUCCESS;  // nothing to wait for
  Command* const command = NewCommand(stream, CommandType::kEmpty);
  command->earliest = 0;
  s.pool.AddEdge(event->record, command);
  Submit(stream, command);
  return CUDA_SUCCESS;
}

CUresult LaunchHost(CUstream handle, const HostWork& work, NullStream null) {
  State& s = state();
  Stream* stream;
  CUresult result = FindStream(handle, null, &stream);
  if (result != CUDA_SUCCESS) return result;
  result = CheckSubmit(stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture != nullptr) {
    if (work.function == nullptr) return RefuseCapture(stream);
    AddCapturedNode(stream, NodeType::kHost)->host = work;
    return CUDA_SUCCESS;
  }
  if (!s.host_functions.Prepare()) return CUDA_ERROR_OPERATING_SYSTEM;
  result = WaitForSpace(&stream);
  if (result != CUDA_SUCCESS) return result;
  Command* const command = NewCommand(stream, CommandType::kHost);
  command->host = work;
  command->host.stream_handle = stream->handle;
  Submit(stream, command);
  return CUDA_SUCCESS;
}

CUresult AddCallback(CUstream handle, CUstreamCallback callback, void* data, unsigned flags,
                     NullStream null) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  HostWork work{};
  work.callback = reinterpret_cast<void (*)(void*, int, void*)>(callback);
  work.data = data;
  return LaunchHost(handle, work, null);
}

CUresult LaunchHostFunction(CUstream handle, CUhostFn function, void* data, NullStream null) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  HostWork work{};
  work.function = function;
  work.data = data;
  return LaunchHost(handle, work, null);
}

CUresult Priority(CUstream handle, int* priority, NullStream null) {
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  const CUresult result = FindStream(handle, null, &stream);
  if (result == CUDA_SUCCESS) *priority = stream->priority;
  return result;
}

CUresult Flags(CUstream handle, unsigned* flags, NullStream null) {
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  const CUresult result = FindStream(handle, null, &stream);
  if (result == CUDA_SUCCESS) *flags = stream->non_blocking ? CU_STREAM_NON_BLOCKING : 0;
  return result;
}

CUresult Id(CUstream handle, unsigned long long* id, NullStream null) {
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  const CUresult result = FindStream(handle, null, &stream);
  if (result == CUDA_SUCCESS) *id = stream->id;
  return result;
}

CUresult ContextOf(CUstream handle, CUcontext* context, NullStream null) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  const CUresult result = FindStream(handle, null, &stream);
  if (result != CUDA_SUCCESS) return result;
  *context = stream->green == nullptr ? HandleOf(stream->context)
                                      : reinterpret_cast<CUcontext>(stream->green->as_context);
  return CUDA_SUCCESS;
}

CUresult DeviceOf(CUstream handle, CUdevice* device, NullStream null) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  const CUresult result = FindStream(handle, null, &stream);
  if (result == CUDA_SUCCESS) *device = stream->device->ordinal;
  return result;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

// Newer than the oldest header that is supported.
extern "C" CUresult CUDAAPI cuStreamGetDevice(CUstream, CUdevice*);
extern "C" CUresult CUDAAPI cuStreamGetDevice_ptsz(CUstream, CUdevice*);

SIM_API(cuStreamCreate)(CUstream* stream, unsigned flags) {
  SIM_ENTER(cuStreamCreate, kCall);
  return Create(stream, flags, 0);
}

SIM_API(cuStreamCreateWithPriority)(CUstream* stream, unsigned flags, int priority) {
  SIM_ENTER(cuStreamCreateWithPriority, kCall);
  return Create(stream, flags, priority);
}

SIM_API(cuStreamDestroy)(CUstream stream) {
  SIM_ENTER(cuStreamDestroy, kCall);
  return Destroy(stream);
}
SIM_API(cuStreamDestroy_v2)(CUstream stream) {
  SIM_ENTER(cuStreamDestroy_v2, kCall);
  return Destroy(stream);
}

SIM_STREAM_API(cuStreamQuery, _ptsz, kQuery, (CUstream stream),
               Query(scope.thread(), stream, null));
SIM_STREAM_API(cuStreamSynchronize, _ptsz, kCall, (CUstream stream),
               Synchronize(scope.thread(), stream, null));
SIM_STREAM_API(cuStreamWaitEvent, _ptsz, kCall, (CUstream stream, CUevent event, unsigned flags),
               WaitEvent(stream, event, flags, null));
SIM_STREAM_API(cuLaunchHostFunc, _ptsz, kCall, (CUstream stream, CUhostFn function, void* data),
               LaunchHostFunction(stream, function, data, null));
SIM_STREAM_API(cuStreamAddCallback, _ptsz, kCall,
               (CUstream stream, CUstreamCallback callback, void* data, unsigned flags),
               AddCallback(stream, callback, data, flags, null));
SIM_STREAM_API(cuStreamGetPriority, _ptsz, kNone, (CUstream stream, int* priority),
               Priority(stream, priority, null));
SIM_STREAM_API(cuStreamGetFlags, _ptsz, kNone, (CUstream stream, unsigned* flags),
               Flags(stream, flags, null));
SIM_STREAM_API(cuStreamGetId, _ptsz, kNone, (CUstream stream, unsigned long long* id),
               Id(stream, id, null));
SIM_STREAM_API(cuStreamGetCtx, _ptsz, kNone, (CUstream stream, CUcontext* context),
               ContextOf(stream, context, null));
SIM_STREAM_API(cuStreamGetDevice, _ptsz, kNone, (CUstream stream, CUdevice* device),
               DeviceOf(stream, device, null));
