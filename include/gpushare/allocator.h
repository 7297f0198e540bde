// SPDX-License-Identifier: Apache-2.0
// Memory of a virtual device, within its quota.
//
//   absl::StatusOr<Allocator> allocator = Allocator::Create(*device);
//   absl::StatusOr<Allocation> weights = allocator->Allocate(MiB(512));
//   if (absl::IsResourceExhausted(weights.status())) ...   // asked, left and limit: error.h
//   stream->CopyToDevice(weights->pointer(), host.data(), weights->size());
//
// The quota is charged to the byte before the driver is asked, and credited when the driver has
// freed. An over-limit request never makes a fitting one fail, and the sum never exceeds the limit.
//
// A program that allocates often should use a pool, which takes segments from the driver and divides them in stream
// order:
//
//   absl::StatusOr<Allocator> pool =
//       Allocator::Create(*device, {.strategy = AllocationStrategy::kSuballocating});
//   absl::StatusOr<Allocation> scratch = pool->Allocate(MiB(3), *stream);   // some 50 ns
//   stream->Launch(kernel, {.grid = {64}, .block = {256}}, scratch->pointer());
//   scratch->Free();   // at once: later work on `stream` may reuse it, other streams when the kernel is done
//
// The same in the order of a stream that was made elsewhere, by its CUstream:
//
//   absl::StatusOr<Allocation> theirs = allocator->Allocate(MiB(3), {.native = framework_stream});
//
// Memory that a pool allocates without a stream may be reused as soon as it is freed, so wait first for the work that
// uses it. (Freeing a direct allocation waits for that work.)
//
// What the driver itself uses (contexts, modules; Gpu::Overhead()) is not charged: the runtime's reserve covers it.
//
// Threading: thread-safe. Memory may be freed by any thread, through any allocator of the same GPU.
#ifndef GPUSHARE_ALLOCATOR_H_
#define GPUSHARE_ALLOCATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gpushare/c/gpushare.h"
#include "gpushare/error.h"
#include "gpushare/internal/callback.h"
#include "gpushare/internal/handle.h"
#include "gpushare/stream.h"
#include "gpushare/units.h"
#include "gpushare/virtual_device.h"

namespace gpushare {

enum class AllocationStrategy {
  kDirect = GPUSHARE_STRATEGY_DIRECT,  // each allocation is an allocation of the driver
  // The driver's stream-ordered pool, one for each virtual device. The quota is charged with what the pool
  // has reserved. Unimplemented if the driver has no pools.
  kPool = GPUSHARE_STRATEGY_POOL,
  // Allocations are cut from segments, in stream order. The quota is charged with the segments.
  kSuballocating = GPUSHARE_STRATEGY_SUBALLOCATING,
  // Each allocation keeps its addresses while its memory is out: VirtualDevice::Suspend() copies it to the host and gives it
  // back to the device and the quota, Resume() brings it back. Charged in multiples of 2 MiB, on most drivers.
  // Unimplemented where the driver has no virtual memory management.
  kSwappable = GPUSHARE_STRATEGY_SWAPPABLE,
};

// What to do when the quota is used up.
enum class OverQuota {
  kFail = GPUSHARE_OVER_QUOTA_FAIL,  // ResourceExhausted
  // Wait for a free or a resize; DeadlineExceeded after `timeout`.
  kWait = GPUSHARE_OVER_QUOTA_WAIT,
  kReclaim = GPUSHARE_OVER_QUOTA_RECLAIM,  // call `reclaim`
};

struct AllocatorOptions {
  AllocationStrategy strategy = AllocationStrategy::kDirect;
  OverQuota over_quota = OverQuota::kFail;
  absl::Duration timeout = absl::InfiniteDuration();  // for kWait; zero does not wait
  // Frees memory of the same virtual device and returns true to try again. Runs on the allocating thread, without a
  // lock of gpushare, at most 16 times per allocation. It may allocate; what it allocates from this allocator does not call it
  // again. If it throws, the allocation fails at once with Internal and
  // what() in the message.
  std::function<bool(Bytes asked, Bytes left)> reclaim = nullptr;
};

// The state of a pool at one moment.
struct PoolStats {
  Bytes reserved;  // size of the segments, which is charged to the quota
  Bytes live;      // size of the allocations, each rounded up to a multiple of 512
  Bytes peak_reserved, peak_live;
  Bytes largest_free;  // the largest allocation that one free piece would serve
  Bytes set_apart;     // free pieces that are kept for requests of exactly their size
  uint64_t segments = 0;
  uint64_t allocations = 0;
  uint64_t waiting = 0;  // threads that wait for memory
  uint64_t served = 0;   // allocations so far
  uint64_t hits = 0;     // the allocations among them for which the pool did not have to grow

  Bytes idle() const { return reserved - live; }
  // The part of the idle memory that no single allocation could get; 0 if the driver does not tell.
  double fragmentation() const {
    if (segments == 0 || idle().count() == 0) return 0;
    return 1 - static_cast<double>(largest_free.count()) / static_cast<double>(idle().count());
  }
};

// Options of one allocation.
struct AllocateOptions {
  // The stream in whose order the memory is allocated: a Stream, or any CUDA stream by its handle, even if gpushare does
  // not know it (null: the legacy default stream). At most one of the two.
  const Stream* stream = nullptr;
  std::optional<CUstream_st*> native = std::nullopt;
  // How long to wait when the quota is used up and `reclaim` has given up. Overrides the allocator's options; zero does
  // not wait.
  std::optional<absl::Duration> timeout = std::nullopt;
  uint64_t alignment = 0;  // a power of two up to 256; all addresses are multiples of 256 anyway
};

class Allocator;

// Owns one piece of device memory and frees it when destroyed; errors, such as a device that is gone, are ignored.
// Memory that was allocated for a stream is freed in that stream's order; a native stream has to outlive it.
// May outlive its Allocator, but not the last handle of its Runtime.
class Allocation {
 public:
  Allocation() = default;
  Allocation(Allocation&& other) noexcept
      : allocator_(std::move(other.allocator_)),
        pointer_(std::exchange(other.pointer_, DevicePtr())),
        size_(std::exchange(other.size_, Bytes())),
        native_(other.native_) {}
  Allocation& operator=(Allocation&& other) noexcept {
    if (this != &other) {
      static_cast<void>(Free());
      allocator_ = std::move(other.allocator_);
      pointer_ = std::exchange(other.pointer_, DevicePtr());
      size_ = std::exchange(other.size_, Bytes());
      native_ = other.native_;
    }
    return *this;
  }
  ~Allocation() { static_cast<void>(Free()); }

  DevicePtr pointer() const { return pointer_; }
  Bytes size() const { return size_; }

  // Gives up ownership.
  DevicePtr release() {
    size_ = Bytes();
    return std::exchange(pointer_, DevicePtr());
  }
  // Frees now, and returns the driver's error, if any.
  absl::Status Free();

 private:
  friend class Allocator;
  struct Shared;
  std::shared_ptr<const Shared> allocator_;
  DevicePtr pointer_;
  Bytes size_;
  std::optional<CUstream_st*> native_;  // the stream in whose order it is freed
};

struct Allocation::Shared {
  std::function<bool(Bytes, Bytes)> reclaim;
  internal::Handle<gpushare_allocator, gpushare_allocator_destroy> handle;
};

inline absl::Status Allocation::Free() {
  size_ = Bytes();
  const DevicePtr pointer = std::exchange(pointer_, DevicePtr());
  if (!pointer) return absl::OkStatus();
  const auto allocator = std::move(allocator_);
  const gpushare_allocator handle = allocator->handle.get();
  return internal::ToStatus(native_ ? gpushare_free_native(handle, pointer.value(), *native_)
                                    : gpushare_free(handle, pointer.value()));
}

class Allocator {
 public:
  static absl::StatusOr<Allocator> Create(const VirtualDevice& device,
                                          AllocatorOptions options = {}) {
    auto shared = std::make_shared<Allocation::Shared>();
    shared->reclaim = std::move(options.reclaim);
    gpushare_allocator_options c = {};
    c.struct_size = sizeof(c);
    c.strategy = static_cast<int32_t>(options.strategy);
    c.over_quota = static_cast<int32_t>(options.over_quota);
    c.timeout_ns = absl::ToInt64Nanoseconds(options.timeout);
    if (shared->reclaim) {
      c.reclaim = [](void* context, uint64_t asked, uint64_t left) {
        return internal::CallBack("allocator: 'reclaim'", GPUSHARE_RECLAIM_STOP, [&] {
          const auto& reclaim = *static_cast<decltype(shared->reclaim)*>(context);
          return reclaim(Bytes(asked), Bytes(left)) ? 1 : 0;
        });
      };
      c.reclaim_context = &shared->reclaim;
    }
    gpushare_allocator allocator = nullptr;
    const gpushare_status code = gpushare_allocator_create(device.handle(), &c, &allocator);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    shared->handle = internal::Handle<gpushare_allocator, gpushare_allocator_destroy>(allocator);
    return Allocator(std::move(shared));
  }

  // InvalidArgument: 0 bytes. ResourceExhausted: over the quota, or the device itself is full.
  absl::StatusOr<Allocation> Allocate(Bytes size) const { return Own(AllocateRaw(size), size); }
  // In the order of a stream of the same GPU, for work that is launched on it from now on.
  absl::StatusOr<Allocation> Allocate(Bytes size, const Stream& stream) const {
    return Own(AllocateRaw(size, stream), size);
  }
  absl::StatusOr<Allocation> Allocate(Bytes size, const AllocateOptions& options) const {
    absl::StatusOr<Allocation> allocation = Own(AllocateRaw(size, options), size);
    if (allocation.ok()) allocation->native_ = options.native;
    return allocation;
  }

  // The same without an owner.
  absl::StatusOr<DevicePtr> AllocateRaw(Bytes size) const {
    return Ask([&](gpushare_device_ptr* pointer) {
      return gpushare_alloc(handle(), size.count(), pointer);
    });
  }
  absl::StatusOr<DevicePtr> AllocateRaw(Bytes size, const Stream& stream) const {
    return Ask([&](gpushare_device_ptr* pointer) {
      return gpushare_alloc_on(handle(), size.count(), stream.handle(), pointer);
    });
  }
  absl::StatusOr<DevicePtr> AllocateRaw(Bytes size, const AllocateOptions& options) const {
    gpushare_alloc_options c = {};
    c.struct_size = sizeof(c);
    if (options.stream != nullptr) {
      c.stream = options.stream->handle();
      // Without the stream the memory would have no order, and could be reused while a stream still uses it.
      if (c.stream == nullptr) return internal::NullHandle("stream");
    }
    if (options.native) {
      c.set |= GPUSHARE_ALLOC_NATIVE;
      c.native = *options.native;
    }
    if (options.timeout) {
      c.set |= GPUSHARE_ALLOC_TIMEOUT;
      c.timeout_ns = absl::ToInt64Nanoseconds(*options.timeout);
    }
    c.alignment = options.alignment;
    return Ask([&](gpushare_device_ptr* pointer) {
      return gpushare_alloc_with(handle(), size.count(), &c, pointer);
    });
  }
  // Credits the virtual device that allocated the memory. A pointer that gpushare did not allocate is passed to the
  // driver, so a double free gives the driver's error. Null is OK.
  absl::Status Free(DevicePtr pointer) const {
    return internal::ToStatus(gpushare_free(handle(), pointer.value()));
  }
  // In the order of `stream`, which must have been made to wait for the stream for which the memory was allocated.
  absl::Status Free(DevicePtr pointer, const Stream& stream) const {
    return internal::ToStatus(gpushare_free_on(handle(), pointer.value(), stream.handle()));
  }
  // The same by CUDA's handle. Memory allocated for a stream that gpushare does not know must be freed this way, or when
  // nothing uses it any more, since Free() without a stream does not know that stream.
  absl::Status FreeNative(DevicePtr pointer, CUstream_st* native) const {
    return internal::ToStatus(gpushare_free_native(handle(), pointer.value(), native));
  }

  // Threads that now wait for memory in this allocator get Cancelled within a millisecond, unless they are served
  // meanwhile. Later waits are not affected. May be called from any thread.
  absl::Status CancelWaits() const {
    return internal::ToStatus(gpushare_allocator_cancel_waits(handle()));
  }

  // -- For pools; FailedPrecondition for an allocator without one --

  // Gives empty segments back to the driver and to the quota, until `size` bytes have been given back (by default all
  // empty segments). May wait for the device, as freeing does. Aborted: the context is lost. Other errors are the driver's: what
  // it would not take stays the pool's, for allocations and the next Trim().
  absl::Status Trim(Bytes size = Bytes(UINT64_MAX)) const {
    return internal::ToStatus(gpushare_allocator_trim(handle(), size.count()));
  }
  absl::StatusOr<PoolStats> stats() const {
    gpushare_allocator_stats c = {};
    c.struct_size = sizeof(c);
    const gpushare_status code = gpushare_allocator_get_stats(handle(), &c);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return PoolStats{.reserved = Bytes(c.reserved),
                     .live = Bytes(c.live),
                     .peak_reserved = Bytes(c.peak_reserved),
                     .peak_live = Bytes(c.peak_live),
                     .largest_free = Bytes(c.largest_free),
                     .set_apart = Bytes(c.set_apart),
                     .segments = c.segments,
                     .allocations = c.allocations,
                     .waiting = c.waiting,
                     .served = c.served,
                     .hits = c.hits};
  }

  gpushare_allocator handle() const { return shared_ == nullptr ? nullptr : shared_->handle.get(); }

 private:
  explicit Allocator(std::shared_ptr<const Allocation::Shared> shared)
      : shared_(std::move(shared)) {}

  template <typename Call>
  absl::StatusOr<DevicePtr> Ask(const Call& call) const {
    gpushare_device_ptr pointer = 0;
    if (shared_ == nullptr || !shared_->reclaim) {
      const gpushare_status code = call(&pointer);
      if (code == GPUSHARE_OK) return DevicePtr(pointer);
      return internal::ToStatus(code);
    }
    const internal::Thrown thrown;
    const gpushare_status code = call(&pointer);
    if (code == GPUSHARE_OK) return DevicePtr(pointer);
    return thrown.status().ok() ? internal::ToStatus(code) : thrown.status();
  }
  absl::StatusOr<Allocation> Own(absl::StatusOr<DevicePtr> pointer, Bytes size) const {
    if (!pointer.ok()) return pointer.status();
    Allocation allocation;
    allocation.allocator_ = shared_;
    allocation.pointer_ = *pointer;
    allocation.size_ = size;
    return allocation;
  }

  std::shared_ptr<const Allocation::Shared> shared_;
};

}  // namespace gpushare

#endif  // GPUSHARE_ALLOCATOR_H_
