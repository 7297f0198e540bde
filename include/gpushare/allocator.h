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
// A program that allocates often takes a pool, which asks the driver for segments and cuts them up in the
// order of streams:
//
//   absl::StatusOr<Allocator> pool =
//       Allocator::Create(*device, {.strategy = AllocationStrategy::kSuballocating});
//   absl::StatusOr<Allocation> scratch = pool->Allocate(MiB(3), *stream);   // some 50 ns
//   stream->Launch(kernel, {.grid = {64}, .block = {256}}, scratch->pointer());
//   scratch->Free();   // at once: what follows on `stream` may have it, others when the kernel is over
//
// The same in the order of a stream that somebody else made, by its CUstream:
//
//   absl::StatusOr<Allocation> theirs = allocator->Allocate(MiB(3), {.native = framework_stream});
//
// What a pool allocates without a stream is anybody's from the moment it is freed: wait for the work that
// uses it first. (A direct allocation's free waits for it.)
//
// What the driver itself uses beside (contexts, modules; Gpu::Overhead()) is not charged: the runtime's reserve is
// for that.
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
  kDirect = GPUSHARE_STRATEGY_DIRECT,  // each allocation is one of the driver's
  // The driver's stream-ordered pool, one for each virtual device. The quota is charged with what the pool
  // has reserved. Unimplemented where the driver has none.
  kPool = GPUSHARE_STRATEGY_POOL,
  // Cut from segments in the order of streams. The quota is charged with the segments.
  kSuballocating = GPUSHARE_STRATEGY_SUBALLOCATING,
  kSwappable = GPUSHARE_STRATEGY_SWAPPABLE,  // Unimplemented
};

// What to do when the quota is used up.
enum class OverQuota {
  kFail = GPUSHARE_OVER_QUOTA_FAIL,  // ResourceExhausted
  kWait = GPUSHARE_OVER_QUOTA_WAIT,  // for a free or a resize; DeadlineExceeded after `timeout`
  kReclaim = GPUSHARE_OVER_QUOTA_RECLAIM,  // ask `reclaim`
};

struct AllocatorOptions {
  AllocationStrategy strategy = AllocationStrategy::kDirect;
  OverQuota over_quota = OverQuota::kFail;
  absl::Duration timeout = absl::InfiniteDuration();  // of kWait; zero does not wait
  // Frees memory of the same virtual device and returns true to try again. Runs on the allocating
  // thread, which holds no lock of gpushare; at most 16 times an allocation. When it throws, nothing is
  // allocated or waited for and the allocation answers Internal with what() in its message.
  std::function<bool(Bytes asked, Bytes left)> reclaim = nullptr;
};

// What a pool has, at one moment.
struct PoolStats {
  Bytes reserved;  // of its segments: charged to the quota
  Bytes live;      // of its allocations, each a multiple of 512
  Bytes peak_reserved, peak_live;
  Bytes largest_free;  // the largest allocation that one free piece would serve
  Bytes set_apart;     // free, and kept for requests of exactly their size
  uint64_t segments = 0;
  uint64_t allocations = 0;
  uint64_t waiting = 0;  // threads that wait for memory
  uint64_t served = 0;   // allocations so far
  uint64_t hits = 0;     // of them, those for which the pool did not have to grow

  Bytes idle() const { return reserved - live; }
  // Of what is idle, the part that no single allocation could have; 0 where the driver does not tell.
  double fragmentation() const {
    if (segments == 0 || idle().count() == 0) return 0;
    return 1 - static_cast<double>(largest_free.count()) / static_cast<double>(idle().count());
  }
};

// What holds for one allocation alone.
struct AllocateOptions {
  // In the order of a stream: of gpushare's, or of CUDA's by its handle, also one that gpushare does not know (null:
  // the legacy default stream). At most one of the two.
  const Stream* stream = nullptr;
  std::optional<CUstream_st*> native = std::nullopt;
  // Over the quota, after `reclaim` has given up: how long to wait, whatever the allocator's options say. Zero: not at
  // all.
  std::optional<absl::Duration> timeout = std::nullopt;
  uint64_t alignment = 0;  // a power of two up to 256, which all addresses are multiples of
};

class Allocator;

// Owns one piece of device memory; frees it when destroyed, without a word when the device is gone. What was
// allocated for a stream is freed in that stream's order; a native one has to outlive it.
// Outlives its Allocator, not the last handle of its Runtime.
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
  // Frees now, and tells whether the driver was content.
  absl::Status Free();

 private:
  friend class Allocator;
  struct Shared;
  std::shared_ptr<const Shared> allocator_;
  DevicePtr pointer_;
  Bytes size_;
  std::optional<CUstream_st*> native_;  // in whose order it is freed
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
  // In the order of a stream of the same GPU: for work that is launched on it from now on.
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
      // Which would be in no order, and memory that a stream still uses anybody's.
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
  // Credits the virtual device that allocated it. What gpushare did not allocate goes to the driver
  // unchanged: a double free is the driver's error. Null is OK.
  absl::Status Free(DevicePtr pointer) const {
    return internal::ToStatus(gpushare_free(handle(), pointer.value()));
  }
  // In the order of `stream`, which has been made to follow the one that the memory was allocated for.
  absl::Status Free(DevicePtr pointer, const Stream& stream) const {
    return internal::ToStatus(gpushare_free_on(handle(), pointer.value(), stream.handle()));
  }
  // The same by CUDA's handle. What was allocated for a stream that gpushare does not know is freed so, or when nothing
  // uses it any more: Free() without a stream knows nothing of it.
  absl::Status FreeNative(DevicePtr pointer, CUstream_st* native) const {
    return internal::ToStatus(gpushare_free_native(handle(), pointer.value(), native));
  }

  // Who waits for memory in this allocator now is answered Cancelled within a millisecond, unless it is served
  // meanwhile. Who comes later waits. From any thread.
  absl::Status CancelWaits() const {
    return internal::ToStatus(gpushare_allocator_cancel_waits(handle()));
  }

  // -- Of a pool; FailedPrecondition for an allocator without one --

  // Gives segments in which nothing lives back to the driver and to the quota, until they are `size`
  // together (by default all there are). May wait for the device, as freeing does.
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
