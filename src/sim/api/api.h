// SPDX-License-Identifier: Apache-2.0
// How an entry point is written.
//
//   SIM_API(cuStreamQuery)(CUstream stream) {
//     SIM_ENTER(cuStreamQuery, kQuery);
//     ...
//   }
//
// SIM_ENTER takes the turn, counts the call, answers injected faults and a missing cuInit(), and
// charges the caller. Which entry points have a SIM_API is said by src/driver/symbols.def; the build
// makes a stub of every other.
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

// Takes the turn for gpushare_sim_*: no count, no cost, no need of cuInit().
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

// The current context; an error when there is none or a fault took it down.
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
// The context with this handle, whatever its state; of a green one's, the primary.
Context* FindContext(CUcontext handle);
// The stream of a null or special handle. Fails as CurrentContext().
CUresult FindSpecialStream(CUstream handle, NullStream null, Stream** stream);
// The stream, null and special handles resolved.
inline CUresult FindStream(CUstream handle, NullStream null, Stream** stream) {
  *stream = state().streams.Find(handle);
  if (*stream != nullptr) [[likely]]
    return static_cast<CUresult>((*stream)->context->lost);
  return FindSpecialStream(handle, null, stream);
}
inline Event* FindEvent(CUevent handle) { return state().events.Find(handle); }

// Waits until the command has completed. The result says whether the context outlived it.
CUresult WaitFor(Command* command, Context* context, const char* doing);
// Waits until what is in the stream now has completed.
CUresult WaitForStream(Stream* stream, const char* doing);
// Waits until what is in the streams of the context now has completed; later work does not count.
CUresult WaitForContext(Context* context, const char* doing);
// Of a green context the same of its own streams; of a default stream, itself and those that it orders.
CUresult WaitForGreen(GreenContext* green, const char* doing);
CUresult WaitForDefaultStream(Stream* legacy, const char* doing);
// Waits while the stream holds as many commands as it takes. Others may have their turn meanwhile: what
// the caller knew of other objects has to be looked up again. HasSpace() before it only saves the call.
inline bool HasSpace(const Stream* stream) { return stream->queued < state().config.queue_depth; }
CUresult WaitForSpace(Stream** stream);

// Waits until the process runs again, which a checkpoint holds.
void AwaitUnlock();

Device* FindDevice(CUdevice device);
CUcontext HandleOf(const Context* context);
// Null: the device has no memory left for it.
Context* NewContext(Device* device, unsigned flags, bool primary);
CUresult RetainPrimary(CUcontext* handle, CUdevice device);
CUresult ReleasePrimary(CUdevice device);
// Frees everything of the context; every handle into it is invalid afterwards.
void DestroyContext(Context* context);

// A kernel by its handle, which may be that of a function or of a library's kernel.
const Function* FindKernelFunction(CUfunction handle, Context* context);
inline const Function* FindFunction(CUfunction handle, Context* context) {
  const Function* const function = state().functions.Find(handle);
  return function != nullptr ? function : FindKernelFunction(handle, context);
}
void DestroyModule(Module* module);
// `module` of the library's is about to go.
void ForgetModule(Library* library, const Module* module);

}  // namespace gpushare::sim

#define SIM_API(name) extern "C" __attribute__((visibility("default"))) CUresult CUDAAPI name
#define GPUSHARE_SIM_CONTROL extern "C" __attribute__((visibility("default")))
#define SIM_ENTER(name, cost)                                                                     \
  const ::gpushare::sim::ApiScope scope(::gpushare::sim::Api::name, ::gpushare::sim::Cost::cost); \
  if (scope.result() != CUDA_SUCCESS) return scope.result()

// An entry point and its variant for the per-thread default stream, which differ in what the null
// stream means: `call` is an expression in the parameters and `null`.
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
