// SPDX-License-Identifier: Apache-2.0
// Events.
#include "sim/api/api.h"
#include "sim/graph/capture.h"
#include "sim/processes/device.h"

namespace gpushare::sim {
namespace {

// For an event that processes share: whether its latest record is complete.
bool IsComplete(const Event& event) {
  if (state().shared == nullptr) return true;
  SharedEvents& events = state().shared->events();
  return events.IsComplete(event.shared, events.Recorded(event.shared));
}

CUresult Create(CUevent* handle, unsigned flags) {
  constexpr unsigned kKnown =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (handle == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool shared = (flags & CU_EVENT_INTERPROCESS) != 0;
  if (shared && (flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (shared && state().shared == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  const uint32_t index = shared ? state().shared->events().Create() : Event::kNotShared;
  if (shared && index == Event::kNotShared) return CUDA_ERROR_OUT_OF_MEMORY;
  auto* const event = new Event;
  event->shared = index;
  event->handle = state().events.Add(event);
  event->context = context;
  event->flags = flags;
  event->timing = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  *handle = reinterpret_cast<CUevent>(event->handle);
  return CUDA_SUCCESS;
}

CUresult Destroy(CUevent handle) {
  Event* const event = FindEvent(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  state().events.Remove(event->handle);
  if (event->shared != Event::kNotShared) {
    event->handle = 0;
    CloseIfDone(event);
    return CUDA_SUCCESS;
  }
  if (event->record != nullptr) event->record->event = nullptr;
  delete event;
  return CUDA_SUCCESS;
}

CUresult Record(CUevent handle, CUstream stream_handle, unsigned flags, NullStream null) {
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  Event* event = FindEvent(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Stream* stream;
  CUresult result = FindStream(stream_handle, null, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  result = CheckSubmit(stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture != nullptr) {
    if ((flags & CU_EVENT_RECORD_EXTERNAL) == 0) return CaptureRecord(stream, event);
    AddCapturedNode(stream, NodeType::kEventRecord)->event = event->handle;
    return CUDA_SUCCESS;
  }
  if (!HasSpace(stream)) [[unlikely]] {
    result = WaitForSpace(&stream);
    if (result != CUDA_SUCCESS) return result;
    event = FindEvent(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  }
  Command* const command = NewCommand(stream, CommandType::kRecord);
  command->timed = event->timing;
  command->event = event;
  if (event->shared != Event::kNotShared) {
    ++event->shared_records;
    if (state().shared != nullptr) state().shared->events().Record(event->shared);
  } else if (event->record != nullptr) {
    event->record->event = nullptr;
  }
  event->record = command;
  event->recorded = true;
  event->capture = nullptr;
  event->capture_tail.clear();
  Submit(stream, command);
  return CUDA_SUCCESS;
}

CUresult Query(const ThreadContext& thread, CUevent handle) {
  const Event* const event = FindEvent(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->context->lost != 0) return static_cast<CUresult>(event->context->lost);
  if (event->capture != nullptr) {
    Invalidate(event->capture);
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  const CUresult result = CheckUnsafe(thread);
  if (result != CUDA_SUCCESS) return result;
  if (event->shared != Event::kNotShared && !IsComplete(*event)) return CUDA_ERROR_NOT_READY;
  return event->record != nullptr ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

// For an event that processes share: its latest record may be another process's.
CUresult SynchronizeShared(const Event& event) {
  State& s = state();
  constexpr uint64_t kLookEvery = 50'000;  // wall time: a process cannot wake another's threads
  const uint32_t index = event.shared;
  const uint64_t record = s.shared->events().Recorded(index);
  const uint64_t context = event.context->handle;
  while (!s.shared->events().IsComplete(index, record)) {
    const uint64_t deadline = s.clock.is_virtual() ? kForever : s.clock.now() + kLookEvery;
    s.shared->events().BeginWait(index, record);
    s.clock.Wait(s.shared->events().waiters(), "cuEventSynchronize", deadline);
    s.shared->events().EndWait(index, record);
    const Context* const after = s.contexts.Find(context);
    if (after == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (after->lost != 0) return static_cast<CUresult>(after->lost);
  }
  return CUDA_SUCCESS;
}

CUresult Synchronize(const ThreadContext& thread, CUevent handle) {
  const CUresult result = Query(thread, handle);
  if (result != CUDA_ERROR_NOT_READY) return result;
  const Event* const event = FindEvent(handle);
  if (event->shared != Event::kNotShared && state().shared != nullptr) {
    return SynchronizeShared(*event);
  }
  return WaitFor(event->record, event->context, "cuEventSynchronize");
}

// Memory pools shrink when the host waits for the device.
CUresult SynchronizeAndTrim(const ThreadContext& thread, CUevent handle) {
  const Event* const event = FindEvent(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Device* const device = event->context->device;
  constexpr uint64_t kNone = UINT64_MAX;
  const uint64_t stream = event->record != nullptr ? event->record->stream->id : kNone;
  const CUresult result = Synchronize(thread, handle);
  if (result == CUDA_SUCCESS && !device->pools.empty()) PoolsSynchronized(device, stream);
  return result;
}

CUresult ElapsedTime(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Event* const start = FindEvent(start_handle);
  const Event* const end = FindEvent(end_handle);
  if (start == nullptr || end == nullptr || !start->recorded || !end->recorded || !start->timing ||
      !end->timing || start->context->device != end->context->device) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (start->context->lost != 0) return static_cast<CUresult>(start->context->lost);
  if (start->capture != nullptr || end->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  if (start->record != nullptr || end->record != nullptr) return CUDA_ERROR_NOT_READY;
  const auto ns = static_cast<int64_t>(end->stamp - start->stamp);
  *milliseconds = static_cast<float>(static_cast<double>(ns) / 1e6);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

// Newer than the oldest header that is supported.
extern "C" CUresult CUDAAPI cuEventElapsedTime_v2(float*, CUevent, CUevent);

SIM_API(cuEventCreate)(CUevent* event, unsigned flags) {
  SIM_ENTER(cuEventCreate, kCall);
  return Create(event, flags);
}

SIM_API(cuEventDestroy)(CUevent event) {
  SIM_ENTER(cuEventDestroy, kCall);
  return Destroy(event);
}
SIM_API(cuEventDestroy_v2)(CUevent event) {
  SIM_ENTER(cuEventDestroy_v2, kCall);
  return Destroy(event);
}

SIM_STREAM_API(cuEventRecord, _ptsz, kRecord, (CUevent event, CUstream stream),
               Record(event, stream, 0, null));
SIM_STREAM_API(cuEventRecordWithFlags, _ptsz, kRecord,
               (CUevent event, CUstream stream, unsigned flags),
               Record(event, stream, flags, null));

SIM_API(cuEventQuery)(CUevent event) {
  SIM_ENTER(cuEventQuery, kQuery);
  return Query(scope.thread(), event);
}

SIM_API(cuEventSynchronize)(CUevent event) {
  SIM_ENTER(cuEventSynchronize, kCall);
  return SynchronizeAndTrim(scope.thread(), event);
}

SIM_API(cuEventElapsedTime)(float* milliseconds, CUevent start, CUevent end) {
  SIM_ENTER(cuEventElapsedTime, kQuery);
  return ElapsedTime(milliseconds, start, end);
}
SIM_API(cuEventElapsedTime_v2)(float* milliseconds, CUevent start, CUevent end) {
  SIM_ENTER(cuEventElapsedTime_v2, kQuery);
  return ElapsedTime(milliseconds, start, end);
}
