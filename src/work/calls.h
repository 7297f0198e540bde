// SPDX-License-Identifier: Apache-2.0
// The driver's calls that submit work to a device, held and charged for a payer.
//
//   Calls calls(*driver);
//   Gates gates;
//   gates.on[0] = gate;                                   // the identity's gate on device 0
//   CUresult result = calls.LaunchKernel({.gates = &gates}, function, 80, 1, 1, 256, 1, 1, 0, stream, params, nullptr);
//   ...
//   calls.Forget(gate);                                   // before its tenant is removed
//
// There is one object per process and driver. Each function is the driver's function of that name, with the same parameters and
// result; the payer is an additional first parameter. A call is held until it is its payer's turn, goes to the driver
// unchanged, and is charged once, unless the driver refuses it. Work that is captured into a graph is neither held nor charged,
// and nothing is ever added to the capture; the graph's launch is held and charged. docs/launches.md says what each family
// costs whom.
//
// A null `stream` is the legacy stream. For a _ptsz variant the caller passes CU_STREAM_PER_THREAD instead of null, and for a
// _ptds variant NullStream::kPerThread.
//
// Threading: thread-safe. No lock is held across a call of the driver.
#ifndef GPUSHARE_WORK_CALLS_H_
#define GPUSHARE_WORK_CALLS_H_

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "driver/driver.h"
#include "driver/table.h"
#include "gate/engine.h"
#include "gate/footprint.h"
#include "gate/graphs.h"
#include "gate/work_keys.h"
#include "work/outermost.h"
#include "work/payer.h"
#include "work/spread.h"
#include "work/streams.h"

namespace gpushare::work {

// The stream of a call without a stream parameter.
enum class NullStream { kLegacy, kPerThread };

class Calls {
 public:
  // `driver` and `graphs` must outlive it. With null `graphs` it keeps its own data about graphs.
  explicit Calls(const driver::Driver& driver, gate::Graphs* graphs = nullptr);
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  // Call it in a forked child, where the driver does not work: the fast paths of launches are off from then on.
  // Async-signal-safe.
  void Forked() { streams_.KnowNothing(); }

  // For the assembly version of LaunchKernelAgain().
  const std::atomic<uint64_t>& known_epoch() const { return streams_.known_epoch(); }

  // -- Kernels (kernels.cc) --
  CUresult LaunchKernel(const Payer& payer, CUfunction function, unsigned grid_x, unsigned grid_y,
                        unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                        unsigned shared_bytes, CUstream stream, void** params, void** extra);
  // The fast path of nearly every launch, short enough to be inlined: the thread repeats an earlier launch on this stream, and
  // its pocket has credit for it. If it returns false, nothing has happened, and the caller has to use LaunchKernel(). `gates`
  // is null if there is only one identity.
  bool LaunchKernelAgain(const Gates* gates, CUfunction function, unsigned grid_x, unsigned grid_y,
                         unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                         unsigned shared_bytes, CUstream stream, void** params, void** extra,
                         CUresult* result);
  // The fast path of most other launches: the kernel's cost is settled and there is credit for it.
  bool LaunchKernelAtOnce(const Gates* gates, CUfunction function, unsigned grid_x, unsigned grid_y,
                          unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned shared_bytes, CUstream stream, void** params, void** extra,
                          CUresult* result);
  CUresult LaunchKernelEx(const Payer& payer, const CUlaunchConfig* config, CUfunction function,
                          void** params, void** extra);
  CUresult LaunchCooperativeKernel(const Payer& payer, CUfunction function, unsigned grid_x,
                                   unsigned grid_y, unsigned grid_z, unsigned block_x,
                                   unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                   CUstream stream, void** params);

  // Launches of before CUDA 4, where the block's shape is part of the function's state and is not seen here.
  CUresult Launch(const Payer& payer, CUfunction function);
  CUresult LaunchGrid(const Payer& payer, CUfunction function, int width, int height);
  CUresult LaunchGridAsync(const Payer& payer, CUfunction function, int width, int height,
                           CUstream stream);
  // Gets all its devices to itself. It waits for them in the order of their UUIDs.
  CUresult LaunchCooperativeKernelMultiDevice(const Payer& payer, CUDA_LAUNCH_PARAMS* launches,
                                              unsigned devices, unsigned flags);

  // -- Graphs (graphs.cc) --
  CUresult GraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags);
  // Call it after instantiating in any other way. Records the number of commands, and the GPUs on which the kernels run.
  void GraphInstantiated(CUgraphExec exec, CUgraph graph);
  // Call it after an executable was updated as a whole to match another graph.
  void GraphUpdated(CUgraphExec exec, CUgraph graph);
  // Call these after a copy node or a child graph of an executable changed, or a node was enabled or disabled; in addition to
  // GraphChanged().
  void GraphCopyChanged(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D& copy);
  void GraphChildChanged(CUgraphExec exec, CUgraphNode node, CUgraph child);
  void GraphNodeEnabled(CUgraphExec exec, CUgraphNode node, bool enabled) {
    graphs_.NodeEnabled(exec, node, enabled);
  }
  CUresult GraphLaunch(const Payer& payer, CUgraphExec exec, CUstream stream);
  // The same, with another function that calls the driver, such as the books'.
  CUresult GraphLaunchBy(const Payer& payer, CUgraphExec exec, CUstream stream,
                         absl::FunctionRef<CUresult()> call);
  // Call it after every call that changes an executable: its next launches are measured anew. From now on all of its kernels are
  // assumed to have the footprint `changed`, or their earlier one if that is larger, since it is unknown how wide the replaced
  // kernels were. 1 means that nothing is known of the kernels.
  void GraphChanged(CUgraphExec exec, float changed = 1) { graphs_.Changed(exec, changed); }
  float KernelFootprint(const driver::GraphKernel& kernel) {
    return KernelFootprint(gate::KernelKey(kernel.function, kernel.shape), kernel.function,
                           kernel.shape);
  }
  float GraphFootprint(CUgraph graph) { return GraphFootprint(opened_.ContentsOf(graph)); }
  CUresult GraphExecDestroy(CUgraphExec exec);
  // Call it before the executable is destroyed in any other way.
  void GraphDestroyed(CUgraphExec exec) {
    spread_.Put(exec, {});
    graphs_.Ended(exec);
  }

  // -- Lines of bytes (copies.cc) --
  CUresult Memcpy(const Payer& payer, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                  NullStream null = NullStream::kLegacy);
  CUresult MemcpyHtoD(const Payer& payer, CUdeviceptr to, const void* from, size_t bytes,
                      NullStream null = NullStream::kLegacy);
  CUresult MemcpyDtoH(const Payer& payer, void* to, CUdeviceptr from, size_t bytes,
                      NullStream null = NullStream::kLegacy);
  CUresult MemcpyDtoD(const Payer& payer, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                      NullStream null = NullStream::kLegacy);
  CUresult MemcpyDtoA(const Payer& payer, CUarray to, size_t to_offset, CUdeviceptr from,
                      size_t bytes, NullStream null = NullStream::kLegacy);
  CUresult MemcpyAtoD(const Payer& payer, CUdeviceptr to, CUarray from, size_t from_offset,
                      size_t bytes, NullStream null = NullStream::kLegacy);
  CUresult MemcpyAtoA(const Payer& payer, CUarray to, size_t to_offset, CUarray from,
                      size_t from_offset, size_t bytes, NullStream null = NullStream::kLegacy);
  CUresult MemcpyHtoA(const Payer& payer, CUarray to, size_t to_offset, const void* from,
                      size_t bytes, NullStream null = NullStream::kLegacy);
  CUresult MemcpyAtoH(const Payer& payer, void* to, CUarray from, size_t from_offset, size_t bytes,
                      NullStream null = NullStream::kLegacy);
  CUresult MemcpyPeer(const Payer& payer, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t bytes, NullStream null = NullStream::kLegacy);
  CUresult MemcpyAsync(const Payer& payer, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                       CUstream stream);
  CUresult MemcpyHtoDAsync(const Payer& payer, CUdeviceptr to, const void* from, size_t bytes,
                           CUstream stream);
  CUresult MemcpyDtoHAsync(const Payer& payer, void* to, CUdeviceptr from, size_t bytes,
                           CUstream stream);
  CUresult MemcpyDtoDAsync(const Payer& payer, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                           CUstream stream);
  CUresult MemcpyHtoAAsync(const Payer& payer, CUarray to, size_t to_offset, const void* from,
                           size_t bytes, CUstream stream);
  CUresult MemcpyAtoHAsync(const Payer& payer, void* to, CUarray from, size_t from_offset,
                           size_t bytes, CUstream stream);
  CUresult MemcpyPeerAsync(const Payer& payer, CUdeviceptr to, CUcontext to_context,
                           CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream);

  // -- Rows and boxes (boxes.cc) --
  CUresult Memcpy2D(const Payer& payer, const CUDA_MEMCPY2D* copy,
                    NullStream null = NullStream::kLegacy);
  CUresult Memcpy2DUnaligned(const Payer& payer, const CUDA_MEMCPY2D* copy,
                             NullStream null = NullStream::kLegacy);
  CUresult Memcpy2DAsync(const Payer& payer, const CUDA_MEMCPY2D* copy, CUstream stream);
  CUresult Memcpy3D(const Payer& payer, const CUDA_MEMCPY3D* copy,
                    NullStream null = NullStream::kLegacy);
  CUresult Memcpy3DAsync(const Payer& payer, const CUDA_MEMCPY3D* copy, CUstream stream);
  CUresult Memcpy3DPeer(const Payer& payer, const CUDA_MEMCPY3D_PEER* copy,
                        NullStream null = NullStream::kLegacy);
  CUresult Memcpy3DPeerAsync(const Payer& payer, const CUDA_MEMCPY3D_PEER* copy, CUstream stream);

  // -- Batches and prefetches (batches.cc); V1 is the older ABI; `operations` has the type of the CUDA header --
  CUresult MemcpyBatchAsync(const Payer& payer, CUdeviceptr* to, CUdeviceptr* from, size_t* bytes,
                            size_t count, void* attributes, size_t* attribute_of,
                            size_t attribute_count, CUstream stream);
  CUresult MemcpyBatchAsyncV1(const Payer& payer, CUdeviceptr* to, CUdeviceptr* from, size_t* bytes,
                              size_t count, void* attributes, size_t* attribute_of,
                              size_t attribute_count, size_t* failed, CUstream stream);
  CUresult Memcpy3DBatchAsync(const Payer& payer, size_t count, void* operations,
                              unsigned long long flags, CUstream stream);
  CUresult Memcpy3DBatchAsyncV1(const Payer& payer, size_t count, void* operations, size_t* failed,
                                unsigned long long flags, CUstream stream);
  CUresult MemPrefetchAsync(const Payer& payer, CUdeviceptr pointer, size_t bytes,
                            CUmemLocation location, unsigned flags, CUstream stream);
  CUresult MemPrefetchAsyncV1(const Payer& payer, CUdeviceptr pointer, size_t bytes,
                              CUdevice device, CUstream stream);
  CUresult MemPrefetchBatchAsync(const Payer& payer, CUdeviceptr* pointers, size_t* bytes,
                                 size_t count, CUmemLocation* locations, size_t* location_of,
                                 size_t location_count, unsigned long long flags, CUstream stream);
  CUresult MemBatchDecompressAsync(const Payer& payer, void* operations, size_t count,
                                   unsigned flags, size_t* failed, CUstream stream);

  // -- Sets (sets.cc) --
  CUresult MemsetD8(const Payer& payer, CUdeviceptr to, unsigned char value, size_t count,
                    NullStream null = NullStream::kLegacy);
  CUresult MemsetD16(const Payer& payer, CUdeviceptr to, unsigned short value, size_t count,
                     NullStream null = NullStream::kLegacy);
  CUresult MemsetD32(const Payer& payer, CUdeviceptr to, unsigned value, size_t count,
                     NullStream null = NullStream::kLegacy);
  CUresult MemsetD2D8(const Payer& payer, CUdeviceptr to, size_t pitch, unsigned char value,
                      size_t width, size_t height, NullStream null = NullStream::kLegacy);
  CUresult MemsetD2D16(const Payer& payer, CUdeviceptr to, size_t pitch, unsigned short value,
                       size_t width, size_t height, NullStream null = NullStream::kLegacy);
  CUresult MemsetD2D32(const Payer& payer, CUdeviceptr to, size_t pitch, unsigned value,
                       size_t width, size_t height, NullStream null = NullStream::kLegacy);
  CUresult MemsetD8Async(const Payer& payer, CUdeviceptr to, unsigned char value, size_t count,
                         CUstream stream);
  CUresult MemsetD16Async(const Payer& payer, CUdeviceptr to, unsigned short value, size_t count,
                          CUstream stream);
  CUresult MemsetD32Async(const Payer& payer, CUdeviceptr to, unsigned value, size_t count,
                          CUstream stream);
  CUresult MemsetD2D8Async(const Payer& payer, CUdeviceptr to, size_t pitch, unsigned char value,
                           size_t width, size_t height, CUstream stream);
  CUresult MemsetD2D16Async(const Payer& payer, CUdeviceptr to, size_t pitch, unsigned short value,
                            size_t width, size_t height, CUstream stream);
  CUresult MemsetD2D32Async(const Payer& payer, CUdeviceptr to, size_t pitch, unsigned value,
                            size_t width, size_t height, CUstream stream);

  // -- Order (order.cc): never held --
  CUresult LaunchHostFunc(const Payer& payer, CUstream stream, CUhostFn function, void* data);
  CUresult StreamAddCallback(const Payer& payer, CUstream stream, CUstreamCallback callback,
                             void* data, unsigned flags);
  CUresult StreamWaitEvent(const Payer& payer, CUstream stream, CUevent event, unsigned flags);
  // For every other call that makes `stream` wait for the host or for a value: cuStreamWaitValue, cuStreamBatchMemOp with a
  // wait, waits for external semaphores. `call` makes the call.
  CUresult HostWait(const Payer& payer, CUstream stream, absl::FunctionRef<CUresult()> call);
  // Whether any stream captures, of those whose captures began through these calls.
  bool AnyCaptures() const { return streams_.AnyCaptures(); }
  CUresult StreamSynchronize(const Payer& payer, CUstream stream);
  CUresult CtxSynchronize(const Payer& payer);
  CUresult EventSynchronize(const Payer& payer, CUevent event);
  // For every other call in which the host waits for the device (cuMemFree), or for one of its streams.
  CUresult Blocking(const Payer& payer, absl::FunctionRef<CUresult()> call);
  CUresult Blocking(const Payer& payer, CUstream stream, absl::FunctionRef<CUresult()> call);

  // -- Captures: while there is one, the driver is asked about each stream --
  CUresult StreamBeginCapture(CUstream stream, absl::FunctionRef<CUresult()> call);
  CUresult StreamEndCapture(CUstream stream, CUgraph* graph);

  // -- Calls before something ends, or after its handle was reused --
  CUresult StreamDestroy(CUstream stream);
  void StreamCreated(CUstream stream) { streams_.Forget(stream); }
  // For the driver's calls that may end a context.
  CUresult ContextEnds(CUcontext context, absl::FunctionRef<CUresult()> call);
  CUresult PrimaryContextEnds(const Payer& payer, CUdevice device,
                              absl::FunctionRef<CUresult()> call);
  void ModuleEnds() { footprints_.Clear(); }
  void ThreadEnds() { streams_.ForgetThread(); }  // forgets the calling thread's per-thread streams
  void Forget(const gate::Gate* gate) { streams_.ForgetGate(gate); }
  size_t known_streams() { return streams_.size(); }
  // The device of a stream, independent of the current context; -1 if the driver does not know the stream.
  CUdevice DeviceOf(const Payer& payer, CUstream stream) {
    const Streams::Adopted adopted = streams_.Find(payer, stream);
    return adopted.gate != nullptr || adopted.refused ? adopted.device : -1;
  }

 private:
  // The fast path. If it returns false, nothing has happened, and the caller has to use Submit(). `take(known, &launch)` pays
  // for the launch. `gates` is null if there is only one identity.
  template <typename Take, typename Call>
  bool AtOnce(const Gates* gates, CUstream handle, const Take& take, const Call& call,
              CUresult* result);
  // Pays for a launch whose cost is settled, and remembers it as a habit.
  static bool TakeAnew(Streams::Known& known, CUfunction function, const driver::LaunchShape& shape,
                       uint32_t* launch);
  CUresult LaunchKernelHeld(const Payer& payer, CUfunction function, unsigned grid_x,
                            unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                            unsigned block_z, unsigned shared_bytes, CUstream stream, void** params,
                            void** extra);
  template <typename Call>
  CUresult Submit(const Payer& payer, CUstream handle, gate::Work work, const Call& call);
  template <typename Call>
  CUresult Submit(const Streams::Adopted& stream, CUstream handle, const gate::Work& work,
                  const Call& call);

  // A part of a call that submits work to several GPUs: the stream and the work on one of them.
  struct Part {
    Streams::Adopted stream;
    gate::Work work;
    gate::Admission admission;
  };
  using Parts = absl::InlinedVector<Part, 4>;
  // Admits all parts, in the order of the GPUs' UUIDs, or none if host memory runs out. Call it within an Outermost. False if
  // one of them was refused.
  bool AdmitAll(Parts& parts);
  static CUresult CallFor(const Parts& parts, absl::FunctionRef<CUresult()> call);
  static void CompleteAll(const Parts& parts, bool submitted);
  CUresult LaunchSpread(const Payer& payer, const Spread::Places& places, CUstream stream,
                        const gate::Work& work, absl::FunctionRef<CUresult()> call);

  // One end of a copy.
  struct Side {
    bool on_host;
    CUdeviceptr address;  // 0 for an array or the host
  };
  static Side Host() { return {.on_host = true, .address = 0}; }
  static Side Device(CUdeviceptr pointer) { return {.on_host = false, .address = pointer}; }
  static Side Array() { return {.on_host = false, .address = 0}; }
  // The direction of a copy of which exactly one side is the host.
  static gate::CopyDirection DirectionTo(const Side& to) {
    return to.on_host ? gate::CopyDirection::kDeviceToHost : gate::CopyDirection::kHostToDevice;
  }
  Side SideOf(CUdeviceptr pointer) const;
  Side SideOf(const Payer& payer, CUmemorytype type, CUdeviceptr pointer) const;
  Side DeviceSide(const Payer& payer, CUdeviceptr pointer) const;
  struct Traffic {
    uint64_t to_device = 0, to_host = 0, on_device = 0;  // bytes
  };
  static void Count(const Side& to, const Side& from, uint64_t bytes, Traffic* traffic);
  Traffic TrafficOf(const CUdeviceptr* to, const CUdeviceptr* from, const size_t* bytes,
                    size_t count) const;
  Traffic TrafficOf(const void* operations, size_t count) const;

  // transfers.cc
  // Submits the parts of a copy to `stream` with `call`, as the gate admits them.
  CUresult Across(const Payer& payer, CUstream stream, gate::HostCopy copy,
                  absl::FunctionRef<CUresult(uint64_t first, uint64_t count)> call);
  CUresult Within(const Payer& payer, gate::OnDeviceKind kind, CUstream stream, uint64_t bytes,
                  absl::FunctionRef<CUresult()> call);
  CUresult Mixed(const Payer& payer, CUstream stream, const Traffic& traffic,
                 absl::FunctionRef<CUresult()> call);
  // Holds `call` until both copy limits admit its bytes. `call` itself still has to wait for its turn on the device.
  CUresult Crossing(const Payer& payer, CUstream stream, const gate::CopyBytes& bytes,
                    absl::FunctionRef<CUresult()> call);
  // batches.cc. `traffic` reads the `count` entries of the call's arrays.
  CUresult Batch(const Payer& payer, CUstream stream, size_t count,
                 absl::FunctionRef<Traffic()> traffic, absl::FunctionRef<CUresult()> call);
  // copies.cc
  CUresult Line(const Payer& payer, CUstream stream, bool blocks, const Side& to, const Side& from,
                size_t bytes, absl::FunctionRef<CUresult(uint64_t first, uint64_t count)> call);
  // boxes.cc
  template <typename Copy, typename Set>
  CUresult Box(const Payer& payer, const Copy* copy, CUstream stream, bool blocks, uint64_t count,
               uint64_t part_bytes, gate::OnDeviceKind kind, const Set& set,
               absl::FunctionRef<CUresult(const Copy*)> call);
  CUresult Rows(const Payer& payer, const CUDA_MEMCPY2D* copy, CUstream stream, bool blocks,
                absl::FunctionRef<CUresult(const CUDA_MEMCPY2D*)> call);
  template <typename Copy>
  CUresult Slices(const Payer& payer, const Copy* copy, CUstream stream, bool blocks,
                  gate::OnDeviceKind kind, absl::FunctionRef<CUresult(const Copy*)> call);

  static CUstream Of(NullStream null) {
    return null == NullStream::kLegacy ? nullptr : CU_STREAM_PER_THREAD;
  }
  template <typename Call>
  static Call Pick(NullStream null, Call legacy, Call per_thread) {
    return null == NullStream::kLegacy ? legacy : per_thread;
  }

  void GraphIs(CUgraphExec exec, CUgraph graph, bool updated);
  CUresult LaunchOfOld(const Payer& payer, CUfunction function, int width, int height,
                       CUstream stream, absl::FunctionRef<CUresult()> call);
  gate::Work KernelWork(CUfunction function, const driver::LaunchShape& shape, bool cooperative);
  bool FindFootprint(CUfunction function, const driver::LaunchShape& shape, float* footprint);
  float KernelFootprint(uint64_t key, CUfunction function, const driver::LaunchShape& shape);
  float GraphFootprint(const driver::GraphContents& graph);
  // SMs of the current device that kernels share; 0: unknown, or it runs one kernel at a time.
  int SharedSms();

  const driver::Driver& opened_;
  const driver::Table& driver_;
  Streams streams_;
  gate::FootprintCache footprints_;
  std::array<std::atomic<int>, Gates::kDevices> shared_sms_{};  // plus one; 0: not asked yet
  const std::unique_ptr<gate::Graphs> own_graphs_;              // null if the caller provides one
  gate::Graphs& graphs_;
  Spread spread_;
};

template <typename Take, typename Call>
[[gnu::always_inline]] inline bool Calls::AtOnce(const Gates* gates, CUstream handle,
                                                 const Take& take, const Call& call,
                                                 CUresult* result) {
  ThreadMark* const mark = Outermost::Mark();
  if (mark->inside) [[unlikely]]
    return false;
  Streams::Known* const known = streams_.FindKnown(mark, gates, handle);
  if (known == nullptr) [[unlikely]]
    return false;
  uint32_t launch;
  gate::StreamGate* stream = nullptr;
  {
    // A signal handler must not see the following in part.
    const InsideOf inside(mark);
    if (!take(*known, &launch)) [[unlikely]]
      return false;
    // Read it before the call: the driver may call back into this function, which may change the entry.
    stream = known->stream;
    *result = call();
  }
  if (*result != CUDA_SUCCESS) [[unlikely]]
    gate::Gate::Refused(*stream, launch);
  return true;
}

[[gnu::always_inline]] inline bool Calls::LaunchKernelAgain(
    const Gates* gates, CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
    void** params, void** extra, CUresult* result) {
  const auto take = [&](Streams::Known & known, uint32_t * launch) __attribute__((always_inline)) {
    const gate::Lane& lane = known.lane;
    const driver::LaunchShape shape = {
        {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
    const uint64_t before = lane.context->load(std::memory_order_relaxed);
    gate::Habit* habit = known.last->next;
    if (!habit->Is(function, shape, before)) [[unlikely]] {
      habit = known.last->other;
      if (!habit->Is(function, shape, before)) return false;
    }
    if (!lane.TakeAgain(*habit, *known.pocket, launch)) [[unlikely]]
      return false;
    known.last = habit;
    return true;
  };
  const auto call = [&]() __attribute__((always_inline)) {
    return driver_.LaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                shared_bytes, stream, params, extra);
  };
  return AtOnce(gates, stream, take, call, result);
}

}  // namespace gpushare::work

#endif  // GPUSHARE_WORK_CALLS_H_
