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
// What the driver itself uses beside (contexts, modules) is not charged: the runtime's reserve is
// for that.
//
// Threading: thread-safe. Memory may be freed by any thread, through any allocator of the same GPU.
#ifndef GPUSHARE_ALLOCATOR_H_
#define GPUSHARE_ALLOCATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gpushare/c/gpushare.h"
#include "gpushare/error.h"
#include "gpushare/internal/callback.h"
#include "gpushare/internal/handle.h"
#include "gpushare/units.h"
#include "gpushare/virtual_device.h"

namespace gpushare {

enum class AllocationStrategy {
  kDirect = GPUSHARE_STRATEGY_DIRECT,  // each allocation is one of the driver's
  kPool = GPUSHARE_STRATEGY_POOL,      // Unimplemented, as are the two below
  kSuballocating = GPUSHARE_STRATEGY_SUBALLOCATING,
  kSwappable = GPUSHARE_STRATEGY_SWAPPABLE,
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
  absl::Duration timeout = absl::ZeroDuration();
  // Frees memory of the same virtual device and returns true to try again. Runs on the allocating
  // thread, which holds no lock of gpushare; at most 16 times an allocation. When it throws, nothing is
  // allocated and the allocation answers Internal with what() in its message.
  std::function<bool(Bytes asked, Bytes left)> reclaim = nullptr;
};

class Allocator;

// Owns one piece of device memory; frees it when destroyed, without a word when the device is gone.
// Outlives its Allocator, not the last handle of its Runtime.
class Allocation {
 public:
  Allocation() = default;
  Allocation(Allocation&& other) noexcept
      : allocator_(std::move(other.allocator_)),
        pointer_(std::exchange(other.pointer_, DevicePtr())),
        size_(std::exchange(other.size_, Bytes())) {}
  Allocation& operator=(Allocation&& other) noexcept {
    if (this != &other) {
      static_cast<void>(Free());
      allocator_ = std::move(other.allocator_);
      pointer_ = std::exchange(other.pointer_, DevicePtr());
      size_ = std::exchange(other.size_, Bytes());
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
  return internal::ToStatus(gpushare_free(allocator->handle.get(), pointer.value()));
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
        return internal::CallBack("allocator: 'reclaim'", 0, [&] {
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
  absl::StatusOr<Allocation> Allocate(Bytes size) const {
    absl::StatusOr<DevicePtr> pointer = AllocateRaw(size);
    if (!pointer.ok()) return pointer.status();
    Allocation allocation;
    allocation.allocator_ = shared_;
    allocation.pointer_ = *pointer;
    allocation.size_ = size;
    return allocation;
  }

  // The same without an owner.
  absl::StatusOr<DevicePtr> AllocateRaw(Bytes size) const {
    gpushare_device_ptr pointer = 0;
    const gpushare_status code = gpushare_alloc(handle(), size.count(), &pointer);
    if (code != GPUSHARE_OK) {
      const absl::Status thrown = internal::TakeThrown();
      return thrown.ok() ? internal::ToStatus(code) : thrown;
    }
    return DevicePtr(pointer);
  }
  // Credits the virtual device that allocated it. What gpushare did not allocate goes to the driver
  // unchanged: a double free is the driver's error. Null is OK.
  absl::Status Free(DevicePtr pointer) const {
    return internal::ToStatus(gpushare_free(handle(), pointer.value()));
  }

  gpushare_allocator handle() const { return shared_ == nullptr ? nullptr : shared_->handle.get(); }

 private:
  explicit Allocator(std::shared_ptr<const Allocation::Shared> shared)
      : shared_(std::move(shared)) {}
  std::shared_ptr<const Allocation::Shared> shared_;
};

}  // namespace gpushare

#endif  // GPUSHARE_ALLOCATOR_H_
