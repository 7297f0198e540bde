// SPDX-License-Identifier: Apache-2.0
// The driver as the layers above see it: typed calls, no cu* names, no CUDA headers.
//
//   GPUSHARE_ASSIGN_OR_RETURN(std::unique_ptr<Driver> driver, Driver::Open({}));
//   Event event = nullptr;
//   GPUSHARE_RETURN_IF_ERROR(ToStatus(driver->CreateEvent(&event, /*timing=*/true), "cuEventCreate"));
//
// Calls return a Result: the driver's own code, unchanged (0 is success); ToStatus() turns it into an
// absl::Status with the call's name and the driver's text. A Driver is a table of function pointers:
// copying the pointer is all that a call costs. Thread-safe as the driver is.
#ifndef GPUSHARE_DRIVER_DRIVER_H_
#define GPUSHARE_DRIVER_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"

struct CUctx_st;
struct CUgreenCtx_st;
struct CUstream_st;
struct CUevent_st;
struct CUmod_st;
struct CUfunc_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUgraphNode_st;
struct CUmemPoolHandle_st;

namespace gpushare::driver {

struct Table;

using Context = CUctx_st*;
using GreenContext = CUgreenCtx_st*;
using Stream = CUstream_st*;
using Event = CUevent_st*;
using Module = CUmod_st*;
using Function = CUfunc_st*;
using Graph = CUgraph_st*;
using GraphExec = CUgraphExec_st*;
using GraphNode = CUgraphNode_st*;
using MemPool = CUmemPoolHandle_st*;
using DevicePtr = unsigned long long;
using PhysicalMemory = unsigned long long;

// A driver's return code, verbatim.
enum class Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kNotPermitted = 800,
  kNotSupported = 801,
  kUnknown = 999,
};

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct LaunchShape {
  Dim3 grid, block;
  unsigned shared_bytes = 0;
};

// A kernel node of a graph. A context-less kernel (CUkernel) is passed as a function, which the driver accepts.
struct GraphKernel {
  Function function;
  LaunchShape shape;
  Context context = nullptr;  // null: the driver does not tell
};
// A copy node of a graph, or a child graph. A child graph moves no bytes itself; the next `inside` entries are its copies.
struct GraphCopy {
  GraphNode node = nullptr;
  uint32_t inside = 0;
  uint64_t to_device = 0, to_host = 0;  // bytes from and to host memory
};
// The kernel `to` begins after the kernel `from` has ended. Both are indices into GraphContents::kernels.
struct GraphEdge {
  uint32_t from = 0, to = 0;
  friend bool operator==(const GraphEdge&, const GraphEdge&) = default;
};
// The contents of a graph, including its child graphs.
struct GraphContents {
  uint32_t commands = 0;  // kernels, copies and sets; 0: the driver does not tell
  std::vector<GraphKernel> kernels;
  std::vector<GraphCopy>
      copies;  // in the driver's order of nodes, including those within the device
  bool all_kernels =
      true;  // false if there may be others: in bodies of conditional nodes, or the driver does not tell
  bool branches = false;  // some of its nodes may run at the same time
  // Of a graph with branches that has kernels alone: which follow which, directly or by way of nodes without commands. None if
  // the driver does not tell, or if there are more than kMostEdges for each kernel.
  std::optional<std::vector<GraphEdge>> edges;
  static constexpr size_t kMostEdges = 8;
  // Bytes that its allocation nodes take at most at the same time; with branches of all together, since these may run at the same
  // time.
  uint64_t memory = 0;
  bool IsOfKernelsAlone() const { return all_kernels && kernels.size() == commands; }
  // Its kernels are all that it has, and follow one another.
  bool IsChainOfKernels() const { return IsOfKernelsAlone() && !branches; }
};

struct OpenOptions {
  // Path or soname of the driver, or "sim" for the simulated GPU (looked for at GPUSHARE_SIM_DRIVER,
  // else where it is installed or built). Empty: GPUSHARE_DRIVER, else "libcuda.so.1".
  std::string path = {};
  // Configuration of the simulated GPU, as in gpushare/testing/sim.h: applied before its cuInit().
  // InvalidArgument when it is not understood, when the simulated GPU is in use already, or when the
  // driver is a real one. Empty: nothing is configured here (GPUSHARE_SIM holds).
  std::string simulation = {};
  // The handle of a driver that the caller has already opened, by the name in `path`. Null: Open() opens it.
  void* handle = nullptr;
};

class Driver {
 public:
  // Loads and initialises a driver. It stays loaded until the process ends.
  // Unavailable when there is no usable one; the message names the simulated GPU and how to ask for it.
  static absl::StatusOr<std::unique_ptr<Driver>> Open(const OpenOptions& options);
  ~Driver();

  bool simulated() const;
  // The clock that belongs to this driver: the simulated GPU's virtual clock, else RealClock().
  base::Clock& clock() const;
  int version() const;  // 13000 is CUDA 13.0
  const std::string& path() const;
  void* Symbol(const char* name) const;  // dlsym; null when absent (for testing/sim.h)
  // Undoes the configuration of the simulated GPU unless it is in use. For a caller that configured it and then failed.
  void ResetSimulation() const;
  const Table& table() const;  // the raw entry points, for layers that may use them (table.h)

  // -- Devices and contexts --
  absl::StatusOr<int> DeviceCount() const;
  struct DeviceInfo {
    std::string name, uuid, pci_bus_id;
    size_t total_memory = 0;
    int sm_count = 0, max_threads_per_sm = 0, compute_major = 0, compute_minor = 0;
    int concurrent_kernels = 0;  // 0: one kernel at a time, however narrow
    bool mig = false;
  };
  absl::StatusOr<DeviceInfo> Describe(int ordinal) const;
  absl::StatusOr<Context> RetainPrimaryContext(int ordinal) const;
  Result ReleasePrimaryContext(int ordinal) const;
  Result PushContext(Context context) const;
  Result PopContext() const;
  Result CurrentContext(Context* context) const;
  Result SynchronizeContext() const;
  // Creates a context beside the primary one, and leaves it current to no thread.
  Result CreateContext(Context* context, int ordinal) const;
  Result DestroyContext(Context context) const;

  // -- Partitions of the SMs --
  // A group of SMs as the driver hands them out. Two steps share no SM.
  struct SmStep {
    alignas(8) unsigned char resource[144];
  };
  Result SplitSms(int ordinal, std::vector<SmStep>* steps, int* sms_per_step) const;
  // Creates a green context with the SMs of `steps`, which come from one SplitSms(). It retains the primary context.
  Result CreateGreenContext(GreenContext* green, int ordinal,
                            const std::vector<SmStep>& steps) const;
  Result DestroyGreenContext(GreenContext green) const;
  // The green context as a CUcontext.
  Result AsContext(Context* context, GreenContext green) const;

  // -- Memory --
  Result MemAlloc(DevicePtr* pointer, size_t bytes) const;
  Result MemFree(DevicePtr pointer) const;
  Result MemInfo(size_t* free, size_t* total) const;
  // The allocation in which `pointer` lies.
  Result AddressRange(DevicePtr* base, size_t* bytes, DevicePtr pointer) const;
  // Pinned host memory that copies of every context can use.
  Result AllocPinned(void** memory, size_t bytes) const;
  Result FreePinned(void* memory) const;
  // Virtual memory management: addresses without memory, and memory without addresses, both in multiples of the granularity.
  // Mapped memory can be used after AllowAccess(). Unmapping may not wait for work that uses it.
  Result MemoryGranularity(size_t* bytes, int ordinal) const;
  Result ReserveAddresses(DevicePtr* pointer, size_t bytes) const;
  Result FreeAddresses(DevicePtr pointer, size_t bytes) const;
  Result CreateMemory(PhysicalMemory* memory, size_t bytes, int ordinal) const;
  Result ReleaseMemory(PhysicalMemory memory) const;
  Result MapMemory(DevicePtr pointer, size_t bytes, PhysicalMemory memory) const;
  Result UnmapMemory(DevicePtr pointer, size_t bytes) const;
  Result AllowAccess(DevicePtr pointer, size_t bytes, int ordinal) const;
  // Creates a stream-ordered pool of device memory that keeps its memory until it is trimmed. Memory that one stream freed
  // goes to another stream only once the first has reached the free; no stream is made to wait. The pool reserves up to
  // `most` bytes (0: no bound). kInvalidValue: the driver is too old for a bound.
  Result CreatePool(MemPool* pool, int ordinal, uint64_t most) const;
  Result DestroyPool(MemPool pool) const;
  Result TrimPool(MemPool pool, size_t keep) const;
  struct PoolUsage {
    uint64_t reserved = 0, used = 0, peak_reserved = 0, peak_used = 0;  // bytes
  };
  Result ReadPool(MemPool pool, PoolUsage* usage, bool peaks) const;
  Result AllocFromPool(DevicePtr* pointer, size_t bytes, MemPool pool, Stream stream) const;
  Result FreeAsync(DevicePtr pointer, Stream stream) const;
  Result CopyHtoD(DevicePtr to, const void* from, size_t bytes) const;
  Result CopyDtoH(void* to, DevicePtr from, size_t bytes) const;
  Result CopyHtoDAsync(DevicePtr to, const void* from, size_t bytes, Stream stream) const;
  Result CopyDtoHAsync(void* to, DevicePtr from, size_t bytes, Stream stream) const;
  Result CopyDtoDAsync(DevicePtr to, DevicePtr from, size_t bytes, Stream stream) const;
  Result SetD8Async(DevicePtr to, unsigned char value, size_t bytes, Stream stream) const;

  // -- Streams and events --
  enum class Capture { kNone, kActive, kInvalidated };
  Result CreateStream(Stream* stream, int priority) const;  // non-blocking
  Result CreateStreamOn(Stream* stream, GreenContext green, int priority) const;
  // For a stream of a green context, that one as a context; for the legacy stream, the current context.
  Result StreamContext(Stream stream, Context* context) const;
  Result DestroyStream(Stream stream) const;
  Result SynchronizeStream(Stream stream) const;
  Result QueryStream(Stream stream) const;  // kSuccess or kNotReady
  Result StreamPriorityRange(int* least, int* greatest) const;
  // The priority it was created with, clamped to the device's range. Lower numbers go first.
  Result StreamPriority(Stream stream, int* priority) const;
  // A number that no other stream of the process has had or will have. A null stream is the legacy default stream.
  Result StreamId(Stream stream, uint64_t* id) const;
  Result StreamCapture(Stream stream, Capture* capture) const;
  Result CreateEvent(Event* event, bool timing) const;
  Result DestroyEvent(Event event) const;
  Result RecordEvent(Event event, Stream stream) const;
  Result QueryEvent(Event event) const;  // kSuccess or kNotReady
  Result SynchronizeEvent(Event event) const;
  Result ElapsedMs(float* ms, Event start, Event end) const;
  Result StreamWaitEvent(Stream stream, Event event) const;
  // Sets the calling thread's capture mode to RELAXED: its calls stay legal while another thread captures.
  Result RelaxThreadCaptureMode() const;
  // Exchanges the thread's mode with `*mode`, a value that the driver gave or kRelaxedCapture.
  static constexpr int kRelaxedCapture = 2;
  Result ExchangeThreadCaptureMode(int* mode) const;

  // -- Code --
  // `log`, unless null, receives the driver's message about an image that it rejects; "" if it gives none.
  Result LoadModule(Module* module, const void* image, std::string* log = nullptr) const;
  Result UnloadModule(Module module) const;
  Result GetFunction(Function* function, Module module, const char* name) const;
  Result BlocksPerSm(int* blocks, Function function, int threads, size_t shared_bytes) const;
  Result SetMaxDynamicShared(Function function, int bytes) const;
  Result Launch(Function function, const LaunchShape& shape, Stream stream, void** params) const;
  // Launches at another priority than the stream's. Only if LaunchesAtPriority().
  bool LaunchesAtPriority() const { return version() >= 11070; }
  Result LaunchAt(int priority, Function function, const LaunchShape& shape, Stream stream,
                  void** params) const;
  Result LaunchCooperative(Function function, const LaunchShape& shape, Stream stream,
                           void** params) const;
  // The driver calls `function` on a thread of its own when the stream reaches it.
  Result LaunchHost(Stream stream, void (*function)(void*), void* argument) const;

  // -- Graphs --
  Result BeginCapture(Stream stream) const;  // thread-local mode
  Result EndCapture(Stream stream, Graph* graph) const;
  Result Instantiate(GraphExec* exec, Graph graph) const;
  GraphContents ContentsOf(Graph graph) const;
  Result LaunchGraph(GraphExec exec, Stream stream) const;
  Result DestroyGraph(Graph graph) const;
  // The device gives back what graphs have taken and none of them uses.
  Result TrimGraphMemory(int ordinal) const;
  Result DestroyGraphExec(GraphExec exec) const;

 private:
  struct State;
  explicit Driver(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: out of memory" with the canonical code of docs/errors.md;
// OK for kSuccess. `call` is the call's name.
absl::Status ToStatus(Result result, const char* call);

}  // namespace gpushare::driver

#endif  // GPUSHARE_DRIVER_DRIVER_H_
