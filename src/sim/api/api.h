// SPDX-License-Identifier: Apache-2.0
// How to write an entry point.
//
//   SIM_API(cuStreamQuery)(CUstream stream) {
//     SIM_ENTER(cuStreamQuery, kQuery);
//     ...
//   }
//
// SIM_ENTER takes the turn, counts the call, handles injected faults and a missing cuInit(), and charges the caller with the
// call's cost. src/driver/symbols.def says which entry points have a SIM_API; the build makes a stub for each of the others.
#ifndef GPUSHARE_SIM_API_API_H_
#define GPUSHARE_SIM_API_API_H_

// Both the old and the new names are defined here: no macro may turn one into the other.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <cstdint>

#include "sim/clock/thread.h"
#include "sim/state.h"

namespace gpushare::sim {

// What a call costs its caller.
enum class Cost : uint8_t { kNone, kCall, kQuery, kRecord, kLaunch };

class ApiScope {
 public:
  ApiScope(Api api, Cost cost) : thread_(CurrentThread()) {
    if (!thread_->has_turn) [[unlikely]]
      EnterSlow();
    State& s = state();
    ++s.calls[static_cast<size_t>(api)];
    if (!s.initialized || s.faults.on_calls() || s.checkpoint.held || thread_->in_host_function)
        [[unlikely]] {
      CheckSlow(api);
      if (result_ != CUDA_SUCCESS) return;
    }
    switch (cost) {
      case Cost::kNone:
        break;
      case Cost::kCall:
        s.clock.Spend(s.config.call_host);
        break;
      case Cost::kQuery:
        s.clock.Spend(s.config.query_host);
        break;
      case Cost::kRecord:
        s.clock.Spend(s.config.record_host);
        break;
      case Cost::kLaunch:
        s.clock.Spend(s.config.launch_host);
        break;
    }
  }
  ~ApiScope() {
    if (entered_) [[unlikely]]
      LeaveSlow();
  }
  ApiScope(const ApiScope&) = delete;
  ApiScope& operator=(const ApiScope&) = delete;

  CUresult result() const { return result_; }
  ThreadContext& thread() const { return *thread_; }

 private:
  void EnterSlow();
  void LeaveSlow();
  void CheckSlow(Api api);

  ThreadContext* const thread_;
  CUresult result_ = CUDA_SUCCESS;
  bool entered_ = false;
};

// Takes the turn for gpushare_sim_*: does not count the call, has no cost, and works before cuInit().
class ControlScope {
 public:
  ControlScope();
  ~ControlScope();
  ControlScope(const ControlScope&) = delete;
  ControlScope& operator=(const ControlScope&) = delete;

 private:
  ThreadContext* const thread_;
  bool entered_ = false;
};

// Which stream the null handle means.
enum class NullStream : uint8_t { kLegacy, kPerThread };

// The current context. Fails when there is none, or when a fault took it down.
inline CUresult CurrentContext(const ThreadContext& thread, Context** context) {
  if (thread.contexts.empty() || thread.contexts.back() == 0) return CUDA_ERROR_INVALID_CONTEXT;
  *context = state().contexts.Find(thread.contexts.back());
  if (*context == nullptr) {
    const GreenContext* const green = CurrentGreen(thread);
    if (green == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *context = green->primary;
  }
  return static_cast<CUresult>((*context)->lost);
}
CUresult CurrentContext(Context** context);
// The context with this handle, in any state; for a green context's handle, the primary context.
Context* FindContext(CUcontext handle);
// The stream of a null or special handle. Fails as CurrentContext() does.
CUresult FindSpecialStream(CUstream handle, NullStream null, Stream** stream);
// The stream of any handle, including null and special ones.
inline CUresult FindStream(CUstream handle, NullStream null, Stream** stream) {
  *stream = state().streams.Find(handle);
  if (*stream != nullptr) [[likely]]
    return static_cast<CUresult>((*stream)->context->lost);
  return FindSpecialStream(handle, null, stream);
}
inline Event* FindEvent(CUevent handle) { return state().events.Find(handle); }

// Waits until the command has completed. The result says whether the context survived it.
CUresult WaitFor(Command* command, Context* context, const char* doing);
// Waits until everything that is in the stream now has completed.
CUresult WaitForStream(Stream* stream, const char* doing);
// Waits until everything that is in the context's streams now has completed; later work does not count.
CUresult WaitForContext(Context* context, const char* doing);
// The same for the streams of a green context, and for a default stream together with the streams that it orders.
CUresult WaitForGreen(GreenContext* green, const char* doing);
CUresult WaitForDefaultStream(Stream* legacy, const char* doing);
// Waits while the stream's queue is full. Other threads may take the turn meanwhile, so the caller has to look up everything
// else again. Checking HasSpace() first only saves the call.
inline bool HasSpace(const Stream* stream) { return stream->queued < state().config.queue_depth; }
CUresult WaitForSpace(Stream** stream);

// Waits until the process is running again, if a checkpoint holds it.
void AwaitUnlock();

Device* FindDevice(CUdevice device);
CUcontext HandleOf(const Context* context);
// Null when the device has no memory left for it.
Context* NewContext(Device* device, unsigned flags, bool primary);
CUresult RetainPrimary(CUcontext* handle, CUdevice device);
CUresult ReleasePrimary(CUdevice device);
// Frees everything in the context. Every handle into it is invalid afterwards.
void DestroyContext(Context* context);

// The kernel with this handle, which may be that of a function or of a library's kernel.
const Function* FindKernelFunction(CUfunction handle, Context* context);
inline const Function* FindFunction(CUfunction handle, Context* context) {
  const Function* const function = state().functions.Find(handle);
  return function != nullptr ? function : FindKernelFunction(handle, context);
}
void DestroyModule(Module* module);
// Removes `module`, which is about to be destroyed, from its library.
void ForgetModule(Library* library, const Module* module);

}  // namespace gpushare::sim

#define SIM_API(name) extern "C" __attribute__((visibility("default"))) CUresult CUDAAPI name
#define GPUSHARE_SIM_CONTROL extern "C" __attribute__((visibility("default")))
#define SIM_ENTER(name, cost)                                                                     \
  const ::gpushare::sim::ApiScope scope(::gpushare::sim::Api::name, ::gpushare::sim::Cost::cost); \
  if (scope.result() != CUDA_SUCCESS) return scope.result()

// Defines an entry point and its variant for the per-thread default stream, which differ in what the null stream means: `call`
// is an expression in the parameters and `null`.
#define SIM_STREAM_API(name, suffix, cost, parameters, call) \
  SIM_API(name) parameters {                                 \
    SIM_ENTER(name, cost);                                   \
    constexpr NullStream null = NullStream::kLegacy;         \
    return call;                                             \
  }                                                          \
  SIM_API(name##suffix) parameters {                         \
    SIM_ENTER(name##suffix, cost);                           \
    constexpr NullStream null = NullStream::kPerThread;      \
    return call;                                             \
  }                                                          \
  static_assert(true)

#endif  // GPUSHARE_SIM_API_API_H_
