// SPDX-License-Identifier: Apache-2.0
#include "sim/api/api.h"

namespace gpushare::sim {

void ApiScope::EnterSlow() {
  state().clock.Enter(thread_->clock);
  entered_ = true;
}

void ApiScope::LeaveSlow() { state().clock.Leave(thread_->clock); }

namespace {

// Calls that neither read nor change the state of a device.
bool NeedsNoDevice(Api api) {
  switch (api) {
    case Api::cuDriverGetVersion:
    case Api::cuGetErrorName:
    case Api::cuGetErrorString:
    case Api::cuGetProcAddress:
    case Api::cuGetProcAddress_v2:
    case Api::cuGetExportTable:
      return true;
    default:
      return false;
  }
}

// Calls that change or query the checkpoint state, which work while the process is locked.
bool IsCheckpoint(Api api) {
  switch (api) {
    case Api::cuCheckpointProcessCheckpoint:
    case Api::cuCheckpointProcessGetRestoreThreadId:
    case Api::cuCheckpointProcessGetState:
    case Api::cuCheckpointProcessLock:
    case Api::cuCheckpointProcessRestore:
    case Api::cuCheckpointProcessUnlock:
      return true;
    default:
      return false;
  }
}

}  // namespace

void ApiScope::CheckSlow(Api api) {
  State& s = state();
  if (thread_->in_host_function) {
    result_ = CUDA_ERROR_NOT_PERMITTED;
    return;
  }
  if (s.checkpoint.held && !IsCheckpoint(api) && !NeedsNoDevice(api)) AwaitUnlock();
  if (!s.initialized && api != Api::cuInit && !NeedsNoDevice(api)) {
    result_ = CUDA_ERROR_NOT_INITIALIZED;
    return;
  }
  if (s.faults.on_calls()) {
    uint64_t host_ns = 0;
    result_ = static_cast<CUresult>(s.faults.OnCall(static_cast<size_t>(api), &host_ns));
    if (host_ns > 0) s.clock.Spend(host_ns);
  }
}

ControlScope::ControlScope() : thread_(CurrentThread()) {
  // A host function runs on a thread that already has the turn, or, on the wall clock, on one without it.
  if (thread_->has_turn) return;
  state().clock.Enter(thread_->clock);
  entered_ = true;
}

ControlScope::~ControlScope() {
  if (entered_) state().clock.Leave(thread_->clock);
}

Context* FindContext(CUcontext handle) {
  Context* const context = state().contexts.Find(handle);
  if (context != nullptr) return context;
  const GreenContext* const green = state().green_as_contexts.Find(handle);
  return green == nullptr ? nullptr : green->primary;
}

CUcontext HandleOf(const Context* context) { return reinterpret_cast<CUcontext>(context->handle); }

CUresult CurrentContext(Context** context) { return CurrentContext(*CurrentThread(), context); }

namespace {

CUresult PerThreadStream(Context* context, Stream** stream) {
  State& s = state();
  uint64_t& handle = CurrentThread()->per_thread_streams[context->handle];
  *stream = s.streams.Find(handle);
  if (*stream != nullptr) return CUDA_SUCCESS;
  Stream* const created = NewStream(context, nullptr);
  handle = created->handle;
  created->per_thread = true;
  *stream = created;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult FindSpecialStream(CUstream handle, NullStream null, Stream** stream) {
  const bool legacy =
      (handle == nullptr && null == NullStream::kLegacy) || handle == CU_STREAM_LEGACY;
  const bool per_thread =
      (handle == nullptr && null == NullStream::kPerThread) || handle == CU_STREAM_PER_THREAD;
  if (!legacy && !per_thread) {
    const bool orphan = state().orphans.count(reinterpret_cast<uint64_t>(handle)) != 0;
    return orphan ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
  }
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  GreenContext* const green = CurrentGreen(*CurrentThread());
  if (per_thread && green != nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (per_thread) return PerThreadStream(context, stream);
  *stream = green == nullptr ? context->legacy.get() : green->legacy.get();
  return CUDA_SUCCESS;
}

CUresult WaitFor(Command* command, Context* context, const char* doing) {
  State& s = state();
  const uint64_t handle = context->handle;
  s.clock.Wait(command->waiters, doing);
  Context* const after = s.contexts.Find(handle);
  if (after == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return static_cast<CUresult>(after->lost);
}

CUresult WaitForStream(Stream* stream, const char* doing) {
  if (stream->tail == nullptr) return static_cast<CUresult>(stream->context->lost);
  return WaitFor(stream->tail, stream->context, doing);
}

namespace {

CUresult WaitForAll(Context* context, const std::vector<Eligible>& last, const char* doing) {
  for (const Eligible& one : last) {
    if (one.command->generation != one.generation) continue;
    const CUresult result = WaitFor(one.command, context, doing);
    if (result != CUDA_SUCCESS) return result;
  }
  return static_cast<CUresult>(context->lost);
}

void AddLast(const Stream* stream, std::vector<Eligible>* last) {
  if (stream->tail != nullptr) last->push_back({stream->tail, stream->tail->generation});
}

}  // namespace

CUresult WaitForContext(Context* context, const char* doing) {
  std::vector<Eligible> last;
  AddLast(context->legacy.get(), &last);
  for (const GreenContext* green : context->greens) AddLast(green->legacy.get(), &last);
  for (const Stream* stream : context->streams) AddLast(stream, &last);
  return WaitForAll(context, last, doing);
}

CUresult WaitForGreen(GreenContext* green, const char* doing) {
  std::vector<Eligible> last;
  AddLast(green->legacy.get(), &last);
  for (const Stream* stream : green->primary->streams) {
    if (stream->green == green) AddLast(stream, &last);
  }
  return WaitForAll(green->primary, last, doing);
}

CUresult WaitForDefaultStream(Stream* legacy, const char* doing) {
  std::vector<Eligible> last;
  AddLast(legacy, &last);
  for (const Stream* stream : legacy->context->streams) {
    if (!stream->non_blocking && stream->green == legacy->green) AddLast(stream, &last);
  }
  return WaitForAll(legacy->context, last, doing);
}

CUresult WaitForSpace(Stream** stream) {
  State& s = state();
  const uint64_t handle = (*stream)->handle;
  Context* const context = (*stream)->context;
  const uint64_t context_handle = context->handle;
  const uint64_t green_handle = (*stream)->green == nullptr ? 0 : (*stream)->green->handle;
  while (!HasSpace(*stream)) {
    s.clock.Wait((*stream)->space, "space in a stream");
    if (s.contexts.Find(context_handle) != context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (context->lost != 0) return static_cast<CUresult>(context->lost);
    if (handle != 0) {
      *stream = s.streams.Find(handle);
    } else if (green_handle != 0) {
      const GreenContext* const green = s.green_contexts.Find(green_handle);
      *stream = green == nullptr ? nullptr : green->legacy.get();
    } else {
      *stream = context->legacy.get();
    }
    if (*stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  }
  return CUDA_SUCCESS;
}

Device* FindDevice(CUdevice device) {
  const State& s = state();
  if (device < 0 || static_cast<size_t>(device) >= s.devices.size()) return nullptr;
  return s.devices[static_cast<size_t>(device)].get();
}

}  // namespace gpushare::sim
