// SPDX-License-Identifier: Apache-2.0
// The handles of the C ABI. A handle names an object without being its address, so that a destroyed handle is recognised
// and never followed.
//
//   gpushare_stream handle = Handles::Add<gpushare_stream>(stream);       // shared_ptr<Stream>
//   Stream* stream = Handles::Borrow<Stream>(handle);                     // null: destroyed, or no such handle
//   std::shared_ptr<Stream> owner = Handles::Take<Stream>(handle);        // ends the handle
//
// A handle is [kind:8 | generation:32 | slot:24]. Destroying one increments its slot's generation, so the same value does
// not come back before 2^32 further objects in that slot.
//
// A child of fork() inherits no handles: neither gpushare's threads nor the driver exist in it, so a call with a handle of
// its parent would wait forever.
//
// Threading: thread-safe. Borrow() takes no lock and no reference, since it is on the launch path: its result is valid
// until the handle is destroyed, and destroying a handle during a call on it is the caller's error. Share() is for calls
// that must keep the object alive.
#ifndef GPUSHARE_DEVICE_ABI_HANDLES_H_
#define GPUSHARE_DEVICE_ABI_HANDLES_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

class Runtime;
class Gpu;
class Tenant;
class VirtualDevice;
class Allocator;
class Stream;
class Event;
class Graph;
class Module;
class Lease;
class Gang;
class PendingLease;
class Watch;
class Snapshot;
class Thread;
class Trace;

enum class HandleKind : uint8_t {
  kRuntime = 1,
  kGpu,
  kTenant,
  kVirtualDevice,
  kAllocator,
  kStream,
  kEvent,
  kGraph,
  kModule,
  kLease,
  kSnapshot,
  kThread,
  kTrace,
  kGang,
  kWatch,
  kPendingLease,
};

// The class behind each type of handle.
template <typename H>
struct HandleTraits;
#define GPUSHARE_HANDLE(handle, type, name)                  \
  template <>                                                \
  struct HandleTraits<handle> {                              \
    using Object = type;                                     \
    static constexpr HandleKind kKind = HandleKind::k##type; \
    static constexpr char kName[] = name;                    \
  }
GPUSHARE_HANDLE(gpushare_runtime, Runtime, "runtime");
GPUSHARE_HANDLE(gpushare_gpu, Gpu, "GPU");
GPUSHARE_HANDLE(gpushare_tenant, Tenant, "tenant");
GPUSHARE_HANDLE(gpushare_vdev, VirtualDevice, "virtual device");
GPUSHARE_HANDLE(gpushare_allocator, Allocator, "allocator");
GPUSHARE_HANDLE(gpushare_stream, Stream, "stream");
GPUSHARE_HANDLE(gpushare_event, Event, "event");
GPUSHARE_HANDLE(gpushare_graph, Graph, "graph");
GPUSHARE_HANDLE(gpushare_module, Module, "module");
GPUSHARE_HANDLE(gpushare_lease, Lease, "lease");
GPUSHARE_HANDLE(gpushare_gang, Gang, "gang");
GPUSHARE_HANDLE(gpushare_lease_request, PendingLease, "lease request");
GPUSHARE_HANDLE(gpushare_watchdog, Watch, "watchdog");
GPUSHARE_HANDLE(gpushare_snapshot, Snapshot, "snapshot");
GPUSHARE_HANDLE(gpushare_thread, Thread, "thread");
GPUSHARE_HANDLE(gpushare_trace, Trace, "trace");
#undef GPUSHARE_HANDLE

// The handles and their objects, untyped.
class HandleTable {
 public:
  HandleTable() = default;
  ~HandleTable();
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  // Returns 0 if 2^24 handles are alive.
  uint64_t Add(HandleKind kind, std::shared_ptr<void> object);
  std::shared_ptr<void> Take(HandleKind kind, uint64_t handle);
  std::shared_ptr<void> Share(HandleKind kind, uint64_t handle) const;
  void* Borrow(HandleKind kind, uint64_t handle) const {
    if (handle >> kKindShift != static_cast<uint64_t>(kind)) return nullptr;
    const uint64_t index = handle & kSlotMask;
    const Slot* chunk = chunks_[index >> kChunkBits].load(std::memory_order_acquire);
    if (chunk == nullptr) return nullptr;
    const Slot& slot = chunk[index & kChunkMask];
    return slot.handle.load(std::memory_order_acquire) == handle ? slot.object : nullptr;
  }
  size_t size() const;

  // Called around fork(), so that no thread is in the table while the process is copied; see handles.cc.
  void BeforeFork() ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex_);
  void AfterForkInParent() ABSL_UNLOCK_FUNCTION(mutex_);
  void AfterForkInChild() ABSL_UNLOCK_FUNCTION(mutex_);
  // Whether this process or one of its ancestors was forked while there were handles.
  bool forked() const { return forked_.load(std::memory_order_relaxed); }

 private:
  static constexpr int kSlotBits = 24, kKindShift = 56, kChunkBits = 12;
  static constexpr uint64_t kSlotMask = (uint64_t{1} << kSlotBits) - 1;
  static constexpr uint64_t kChunkMask = (uint64_t{1} << kChunkBits) - 1;

  struct Slot {
    std::atomic<uint64_t> handle{0};  // 0: free
    void* object = nullptr;
    std::shared_ptr<void> owner;
    uint32_t generation = 0;
  };

  std::array<std::atomic<Slot*>, size_t{1} << (kSlotBits - kChunkBits)> chunks_{};
  mutable base::Mutex mutex_;
  std::vector<uint32_t> free_ ABSL_GUARDED_BY(mutex_);
  uint32_t used_ ABSL_GUARDED_BY(mutex_) = 0;  // slots ever used
  size_t alive_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> forked_{false};
};

// Typed access to the process's table.
class Handles {
 public:
  template <typename H>
  static H Add(std::shared_ptr<typename HandleTraits<H>::Object> object) {
    return reinterpret_cast<H>(Table().Add(HandleTraits<H>::kKind, std::move(object)));
  }
  template <typename H>
  static std::shared_ptr<typename HandleTraits<H>::Object> Take(H handle) {
    return std::static_pointer_cast<typename HandleTraits<H>::Object>(
        Table().Take(HandleTraits<H>::kKind, reinterpret_cast<uint64_t>(handle)));
  }
  template <typename H>
  static std::shared_ptr<typename HandleTraits<H>::Object> Share(H handle) {
    return std::static_pointer_cast<typename HandleTraits<H>::Object>(
        Table().Share(HandleTraits<H>::kKind, reinterpret_cast<uint64_t>(handle)));
  }
  template <typename H>
  static typename HandleTraits<H>::Object* Borrow(H handle) {
    return static_cast<typename HandleTraits<H>::Object*>(
        Table().Borrow(HandleTraits<H>::kKind, reinterpret_cast<uint64_t>(handle)));
  }

  // Never destroyed, since threads may make calls during exit.
  static HandleTable& Table() {
    static HandleTable& table = MakeTable();
    return table;
  }

 private:
  static HandleTable& MakeTable();
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_ABI_HANDLES_H_
