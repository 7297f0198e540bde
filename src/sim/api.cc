// SPDX-License-Identifier: Apache-2.0
#include "sim/api.h"

namespace gpushare::sim {

void ApiScope::EnterSlow() {
  state().clock.Enter(thread_->clock);
  entered_ = true;
}

void ApiScope::LeaveSlow() { state().clock.Leave(thread_->clock); }

void ApiScope::CheckSlow(Api api) {
  State& s = state();
  if (thread_->in_host_function) {
    result_ = CUDA_ERROR_NOT_PERMITTED;
    return;
  }
  if (!s.initialized) {
    switch (api) {
      case Api::cuInit:
      case Api::cuDriverGetVersion:
      case Api::cuGetErrorName:
      case Api::cuGetErrorString:
      case Api::cuGetProcAddress:
      case Api::cuGetProcAddress_v2:
      case Api::cuGetExportTable:
        break;
      default:
        result_ = CUDA_ERROR_NOT_INITIALIZED;
        return;
    }
  }
  if (s.faults.on_calls()) {
    uint64_t host_ns = 0;
    result_ = static_cast<CUresult>(s.faults.OnCall(static_cast<size_t>(api), &host_ns));
    if (host_ns > 0) s.clock.Spend(host_ns);
  }
}

ControlScope::ControlScope() : thread_(CurrentThread()) {
  // A host function runs on a thread that has the turn, or on the wall clock without it.
  if (thread_->has_turn) return;
  state().clock.Enter(thread_->clock);
  entered_ = true;
}

ControlScope::~ControlScope() {
  if (entered_) state().clock.Leave(thread_->clock);
}

Context* FindContext(CUcontext handle) { return state().contexts.Find(handle); }

CUcontext HandleOf(const Context* context) { return reinterpret_cast<CUcontext>(context->handle); }

CUresult CurrentContext(Context** context) { return CurrentContext(*CurrentThread(), context); }

namespace {

CUresult PerThreadStream(Context* context, Stream** stream) {
  State& s = state();
  uint64_t& handle = CurrentThread()->per_thread_streams[context->handle];
  *stream = s.streams.Find(handle);
  if (*stream != nullptr) return CUDA_SUCCESS;
  auto* const created = new Stream;
  created->handle = handle = s.streams.Add(created);
  created->id = ++s.stream_ids;
  created->context = context;
  created->device = context->device;
  created->account = context->device->FindAccount(0);
  created->per_thread = true;
  context->streams.push_back(created);
  *stream = created;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult FindSpecialStream(CUstream handle, NullStream null, Stream** stream) {
  const bool legacy =
      (handle == nullptr && null == NullStream::kLegacy) || handle == CU_STREAM_LEGACY;
  const bool per_thread =
      (handle == nullptr && null == NullStream::kPerThread) || handle == CU_STREAM_PER_THREAD;
  if (!legacy && !per_thread) return CUDA_ERROR_INVALID_HANDLE;
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  if (per_thread) return PerThreadStream(context, stream);
  *stream = context->legacy.get();
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

CUresult WaitForContext(Context* context, Streams which, const char* doing) {
  std::vector<Eligible> last;
  const auto add = [&](const Stream* stream) {
    if (stream->tail != nullptr) last.push_back({stream->tail, stream->tail->generation});
  };
  add(context->legacy.get());
  for (const Stream* stream : context->streams) {
    if (which == Streams::kAll || !stream->non_blocking) add(stream);
  }
  for (const Eligible& one : last) {
    if (one.command->generation != one.generation) continue;
    const CUresult result = WaitFor(one.command, context, doing);
    if (result != CUDA_SUCCESS) return result;
  }
  return static_cast<CUresult>(context->lost);
}

CUresult WaitForSpace(Stream** stream) {
  State& s = state();
  const uint64_t handle = (*stream)->handle;
  Context* const context = (*stream)->context;
  const uint64_t context_handle = context->handle;
  while (!HasSpace(*stream)) {
    s.clock.Wait((*stream)->space, "space in a stream");
    if (s.contexts.Find(context_handle) != context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (context->lost != 0) return static_cast<CUresult>(context->lost);
    *stream = handle == 0 ? context->legacy.get() : s.streams.Find(handle);
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
