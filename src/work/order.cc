// SPDX-License-Identifier: Apache-2.0
// Calls that order streams and wait for them. None of them is ever held, and all go to the driver unchanged. But markers are
// added where a stream or the host waits anyway.
#include "work/calls.h"
#include "work/submit.h"

namespace gpushare::work {

// ---- A stream waits ----

// The stream waits for the host, or for a value that anyone may write. That takes no device time and delays no other tenant.
CUresult Calls::HostWait(const Payer& payer, CUstream stream, absl::FunctionRef<CUresult()> call) {
  if (Outermost::Inside()) return call();
  const Streams::Adopted adopted = streams_.Find(payer, stream);
  if (adopted.gate == nullptr || streams_.Capturing(stream)) return call();
  const Outermost outermost;
  adopted.gate->StallBegins(adopted.stream);
  const CUresult result = call();
  if (result == CUDA_SUCCESS) adopted.gate->StallEnds(adopted.stream);
  return result;
}

CUresult Calls::LaunchHostFunc(const Payer& payer, CUstream stream, CUhostFn function, void* data) {
  return HostWait(payer, stream, [&] { return driver_.LaunchHostFunc(stream, function, data); });
}
CUresult Calls::StreamAddCallback(const Payer& payer, CUstream stream, CUstreamCallback callback,
                                  void* data, unsigned flags) {
  return HostWait(payer, stream,
                  [&] { return driver_.StreamAddCallback(stream, callback, data, flags); });
}

// The work before the event has been submitted already, so no hold can delay the event.
CUresult Calls::StreamWaitEvent(const Payer& payer, CUstream stream, CUevent event,
                                unsigned flags) {
  const auto call = [&] { return driver_.StreamWaitEvent(stream, event, flags); };
  if (Outermost::Inside()) return call();
  const Streams::Adopted adopted = streams_.Find(payer, stream);
  if (adopted.gate == nullptr || streams_.Capturing(stream)) return call();
  const Outermost outermost;
  // The event may belong to a capture, which the stream then joins.
  if (streams_.AnyCaptures()) adopted.gate->StallBegins(adopted.stream);
  const bool marked = adopted.gate->WaitBegins(adopted.stream);
  const CUresult result = call();
  if (marked && result == CUDA_SUCCESS) adopted.gate->WaitEnds(adopted.stream);
  return result;
}

// ---- The host waits ----

CUresult Calls::Blocking(const Payer& payer, CUstream stream, absl::FunctionRef<CUresult()> call) {
  if (Outermost::Inside()) return call();
  const Streams::Adopted adopted = streams_.Find(payer, stream);
  if (adopted.gate == nullptr) return call();
  const Outermost outermost;
  // The legacy stream waits for all other streams.
  adopted.gate->Synchronizing(stream == nullptr || stream == CU_STREAM_LEGACY ? nullptr
                                                                              : adopted.stream);
  const CUresult result = call();
  adopted.gate->Synchronized();
  return result;
}

CUresult Calls::Blocking(const Payer& payer, absl::FunctionRef<CUresult()> call) {
  CUdevice device = 0;
  if (Outermost::Inside() || driver_.CtxGetDevice(&device) != CUDA_SUCCESS || device < 0 ||
      device >= Gates::kDevices) {
    return call();
  }
  gate::Gate* const held = payer.gates->on[device].load(std::memory_order_acquire);
  if (held == nullptr) return call();
  const Outermost outermost;
  gate::Gate& gate = *held;
  gate.Synchronizing(nullptr);
  const CUresult result = call();
  gate.Synchronized();
  return result;
}

CUresult Calls::StreamSynchronize(const Payer& payer, CUstream stream) {
  return Blocking(payer, stream, [&] { return driver_.StreamSynchronize(stream); });
}
CUresult Calls::CtxSynchronize(const Payer& payer) {
  return Blocking(payer, [&] { return driver_.CtxSynchronize(); });
}
CUresult Calls::EventSynchronize(const Payer& payer, CUevent event) {
  return Blocking(payer, [&] { return driver_.EventSynchronize(event); });
}

// ---- Captures ----

CUresult Calls::StreamBeginCapture(CUstream stream, absl::FunctionRef<CUresult()> call) {
  // Mark the end of the open work first: while the stream captures, no marker can be recorded.
  streams_.Close(stream);
  streams_.CaptureBegan(stream);
  const CUresult result = call();
  if (result != CUDA_SUCCESS) streams_.CaptureMayHaveEnded(stream);
  return result;
}
CUresult Calls::StreamEndCapture(CUstream stream, CUgraph* graph) {
  const CUresult result = driver_.StreamEndCapture(stream, graph);
  streams_.CaptureMayHaveEnded(stream);  // a failed call may have ended it too
  return result;
}

// ---- Ends ----

CUresult Calls::StreamDestroy(CUstream stream) {
  streams_.Forget(stream);
  return driver_.StreamDestroy(stream);
}

CUresult Calls::ContextEnds(CUcontext context, absl::FunctionRef<CUresult()> call) {
  const Streams::ContextEnd end(streams_, context, nullptr);
  spread_.ContextEnds(context);
  return call();
}

CUresult Calls::PrimaryContextEnds(const Payer& payer, CUdevice device,
                                   absl::FunctionRef<CUresult()> call) {
  unsigned flags = 0;
  int active = 0;
  CUcontext context = nullptr;
  if (driver_.DevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active == 0 ||
      driver_.DevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) {
    return call();
  }
  driver_.DevicePrimaryCtxRelease(device);
  gate::Gate* const gate = device < Gates::kDevices ? payer.gates->on[device].load() : nullptr;
  const Streams::ContextEnd end(streams_, context, gate);
  spread_.ContextEnds(context);
  return call();
}

}  // namespace gpushare::work
