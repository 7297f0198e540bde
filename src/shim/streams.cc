// SPDX-License-Identifier: Apache-2.0
// Hooks of streams: creating and destroying them, making them wait, waiting for them, and capturing them. None of these calls
// is ever held; the gate only has to know of them (src/work/order.cc).
#include "shim/gated.h"
#include "shim/hook.h"

namespace gpushare::shim {
namespace {

using work::Calls;
using work::Payer;

// ---- Creation and destruction ----

template <Name kName, typename... A>
CUresult Create(CUstream* stream, A... a) {
  return Submitted([&](Calls& calls, const Payer&) {
    const CUresult result = Driver<kName, CUresult(CUstream*, A...)>::Call(stream, a...);
    // An earlier stream may have had the same handle.
    if (result == CUDA_SUCCESS) calls.StreamCreated(*stream);
    return result;
  });
}
CUresult Destroy(CUstream stream) {
  return Submitted([&](Calls& calls, const Payer&) { return calls.StreamDestroy(stream); });
}

// ---- A stream waits for the host, or for a value ----

template <Name kName>
constexpr CUstream Meant(CUstream stream) {
  return kName.per_thread() ? PerThread(stream) : stream;
}

template <Name kName, typename Value>
CUresult WaitValue(CUstream stream, CUdeviceptr pointer, Value value, unsigned flags) {
  return Submitted([&](Calls& calls, const Payer& payer) {
    return calls.HostWait(payer, Meant<kName>(stream), [&] {
      return Driver<kName, CUresult(CUstream, CUdeviceptr, Value, unsigned)>::Call(stream, pointer,
                                                                                   value, flags);
    });
  });
}

// The driver takes at most 256 operations. A longer array will be refused and is not read; treating it as a wait costs two
// markers.
bool Waits(unsigned count, const CUstreamBatchMemOpParams* operations) {
  if (count > 256) return true;
  for (unsigned i = 0; operations != nullptr && i < count; ++i) {
    if (operations[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
        operations[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64) {
      return true;
    }
  }
  return false;
}
template <Name kName>
CUresult BatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations,
                    unsigned flags) {
  return Submitted([&](Calls& calls, const Payer& payer) {
    const auto call = [&] {
      return Driver<kName, CUresult(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned)>::Call(
          stream, count, operations, flags);
    };
    return Waits(count, operations) ? calls.HostWait(payer, Meant<kName>(stream), call) : call();
  });
}

template <Name kName>
CUresult WaitSemaphores(const CUexternalSemaphore* semaphores,
                        const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* params, unsigned count,
                        CUstream stream) {
  return Submitted([&](Calls& calls, const Payer& payer) {
    return calls.HostWait(payer, Meant<kName>(stream), [&] {
      return Driver<kName,
                    CUresult(const CUexternalSemaphore*, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS*,
                             unsigned, CUstream)>::Call(semaphores, params, count, stream);
    });
  });
}

// ---- The host waits ----

CUresult CtxSynchronizeOf(CUcontext context) {
  return Submitted([&](Calls& calls, const Payer& payer) {
    return calls.Blocking(
        payer, [&] { return Driver<"cuCtxSynchronize_v2", CUresult(CUcontext)>::Call(context); });
  });
}

// ---- Captures ----

template <Name kName, typename... A>
CUresult BeginCapture(CUstream stream, A... a) {
  return Submitted([&](Calls& calls, const Payer&) {
    return calls.StreamBeginCapture(Meant<kName>(stream), [&] {
      return Driver<kName, CUresult(CUstream, A...)>::Call(stream, a...);
    });
  });
}
template <Name kName>
CUresult EndCapture(CUstream stream, CUgraph* graph) {
  return Submitted([&](Calls& calls, const Payer&) {
    return calls.StreamEndCapture(Meant<kName>(stream), graph);
  });
}

template <Name kName, typename... A>
void AddBeginCapture(Hooks* hooks) {
  Add<CUresult(CUstream, A...)>(hooks, kName.text, &BeginCapture<kName, A...>);
}

}  // namespace

void AddStreamHooks(Hooks* hooks) {
  Add<CUresult(CUstream*, unsigned)>(hooks, "cuStreamCreate", &Create<"cuStreamCreate", unsigned>);
  Add<CUresult(CUstream*, unsigned, int)>(hooks, "cuStreamCreateWithPriority",
                                          &Create<"cuStreamCreateWithPriority", unsigned, int>);
  Add<CUresult(CUstream*, CUgreenCtx, unsigned, int)>(
      hooks, "cuGreenCtxStreamCreate",
      &Create<"cuGreenCtxStreamCreate", CUgreenCtx, unsigned, int>);
  Add<CUresult(CUstream)>(hooks, "cuStreamDestroy", &Destroy);
  GPUSHARE_HOOK(hooks, cuStreamDestroy, &Destroy);

  using Wait32 = CUresult(CUstream, CUdeviceptr, cuuint32_t, unsigned);
  using Wait64 = CUresult(CUstream, CUdeviceptr, cuuint64_t, unsigned);
  using Batch = CUresult(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);
  using Semaphores = CUresult(const CUexternalSemaphore*,
                              const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS*, unsigned, CUstream);
#define GPUSHARE_ADD(type, name, hook, ...) \
  Add<type>(hooks, name, &hook<name __VA_OPT__(, ) __VA_ARGS__>)
  GPUSHARE_ADD(Wait32, "cuStreamWaitValue32", WaitValue, cuuint32_t);
  GPUSHARE_ADD(Wait32, "cuStreamWaitValue32_v2", WaitValue, cuuint32_t);
  GPUSHARE_ADD(Wait32, "cuStreamWaitValue32_ptsz", WaitValue, cuuint32_t);
  GPUSHARE_ADD(Wait32, "cuStreamWaitValue32_v2_ptsz", WaitValue, cuuint32_t);
  GPUSHARE_ADD(Wait64, "cuStreamWaitValue64", WaitValue, cuuint64_t);
  GPUSHARE_ADD(Wait64, "cuStreamWaitValue64_v2", WaitValue, cuuint64_t);
  GPUSHARE_ADD(Wait64, "cuStreamWaitValue64_ptsz", WaitValue, cuuint64_t);
  GPUSHARE_ADD(Wait64, "cuStreamWaitValue64_v2_ptsz", WaitValue, cuuint64_t);
  GPUSHARE_ADD(Batch, "cuStreamBatchMemOp", BatchMemOp);
  GPUSHARE_ADD(Batch, "cuStreamBatchMemOp_v2", BatchMemOp);
  GPUSHARE_ADD(Batch, "cuStreamBatchMemOp_ptsz", BatchMemOp);
  GPUSHARE_ADD(Batch, "cuStreamBatchMemOp_v2_ptsz", BatchMemOp);
  GPUSHARE_ADD(Semaphores, "cuWaitExternalSemaphoresAsync", WaitSemaphores);
  GPUSHARE_ADD(Semaphores, "cuWaitExternalSemaphoresAsync_ptsz", WaitSemaphores);

  Add(hooks, "cuStreamWaitEvent", &Gated<&Calls::StreamWaitEvent>::Legacy);
  Add(hooks, "cuStreamWaitEvent_ptsz", &Gated<&Calls::StreamWaitEvent>::PerThread);
  Add(hooks, "cuStreamSynchronize", &Gated<&Calls::StreamSynchronize>::Legacy);
  Add(hooks, "cuStreamSynchronize_ptsz", &Gated<&Calls::StreamSynchronize>::PerThread);
  Add(hooks, "cuEventSynchronize", &Gated<&Calls::EventSynchronize>::Legacy);
  Add(hooks, "cuCtxSynchronize", &Gated<&Calls::CtxSynchronize>::Legacy);
  Add(hooks, "cuCtxSynchronize_v2", &CtxSynchronizeOf);

  using Mode = CUstreamCaptureMode;
  AddBeginCapture<"cuStreamBeginCapture">(hooks);
  AddBeginCapture<"cuStreamBeginCapture_ptsz">(hooks);
  AddBeginCapture<"cuStreamBeginCapture_v2", Mode>(hooks);
  AddBeginCapture<"cuStreamBeginCapture_v2_ptsz", Mode>(hooks);
  AddBeginCapture<"cuStreamBeginCaptureToGraph", CUgraph, const CUgraphNode*,
                  const CUgraphEdgeData*, size_t, Mode>(hooks);
  AddBeginCapture<"cuStreamBeginCaptureToGraph_ptsz", CUgraph, const CUgraphNode*,
                  const CUgraphEdgeData*, size_t, Mode>(hooks);
  using End = CUresult(CUstream, CUgraph*);
  GPUSHARE_ADD(End, "cuStreamEndCapture", EndCapture);
  GPUSHARE_ADD(End, "cuStreamEndCapture_ptsz", EndCapture);
#undef GPUSHARE_ADD
}

}  // namespace gpushare::shim
