// SPDX-License-Identifier: Apache-2.0
#include "device/allocator.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/last_error.h"

namespace gpushare::device {
namespace {

constexpr int kMostReclaims = 16;

}  // namespace

Allocator::~Allocator() {
  if (pool_ != nullptr) pool_->Orphan();
  if (driver_pool_ != nullptr) driver_pool_->Leave();
}

absl::StatusOr<std::shared_ptr<Allocator>> Allocator::Create(
    std::shared_ptr<VirtualDevice> device, const gpushare_allocator_options& options) {
  if (options.strategy < GPUSHARE_STRATEGY_DIRECT ||
      options.strategy > GPUSHARE_STRATEGY_SWAPPABLE) {
    return absl::InvalidArgumentError(absl::StrCat("allocator strategy: ", options.strategy,
                                                   " given, 0 (direct) to 3 (swappable) allowed"));
  }
  if (options.strategy == GPUSHARE_STRATEGY_SWAPPABLE) {
    return absl::UnimplementedError(
        "allocator strategy 'swappable' is not implemented yet; offered: direct, pool, "
        "suballocating");
  }
  switch (options.over_quota) {
    case GPUSHARE_OVER_QUOTA_FAIL:
      break;
    case GPUSHARE_OVER_QUOTA_WAIT:
      if (options.timeout_ns < 0) {
        return absl::InvalidArgumentError(absl::StrCat("allocator timeout: ", options.timeout_ns,
                                                       "ns given, 0 to GPUSHARE_FOREVER allowed"));
      }
      break;
    case GPUSHARE_OVER_QUOTA_RECLAIM:
      if (options.reclaim == nullptr) {
        return absl::InvalidArgumentError(
            "allocator: over quota it is to reclaim, but 'reclaim' is null");
      }
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("allocator over_quota: ", options.over_quota,
                                                     " given, 0 (fail) to 2 (reclaim) allowed"));
  }
  const std::shared_ptr<Allocator> made(new Allocator(std::move(device), options));
  if (options.strategy == GPUSHARE_STRATEGY_SUBALLOCATING) {
    made->pool_ = std::make_shared<MemoryPool>(*made->device_);
    made->device_->AddPool(made->pool_);
  } else if (options.strategy == GPUSHARE_STRATEGY_POOL) {
    GPUSHARE_ASSIGN_OR_RETURN(made->driver_pool_, made->device_->StreamOrderedPool());
    made->driver_pool_->Enter();
  }
  return made;
}

absl::Status Allocator::CheckStream(const Stream* stream) const {
  if (stream == nullptr || &stream->device().gpu() == &device_->gpu()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("allocator: the stream is of GPU ", stream->device().gpu().ordinal(),
                   ", the allocator of GPU ", device_->gpu().ordinal()));
}

absl::StatusOr<driver::DevicePtr> Allocator::AllocateOnce(const VirtualDevice::Request& request,
                                                          Stream* stream) const {
  if (pool_ != nullptr) return pool_->Allocate(request, stream);
  if (driver_pool_ != nullptr) return driver_pool_->Allocate(request, stream);
  return device_->Allocate(request);
}

absl::StatusOr<driver::DevicePtr> Allocator::Allocate(uint64_t bytes, Stream* stream) const {
  GPUSHARE_RETURN_IF_ERROR(CheckStream(stream));
  // The callback may destroy the handle of the very allocator that asks it.
  const std::shared_ptr<const Allocator> self =
      options_.over_quota == GPUSHARE_OVER_QUOTA_RECLAIM ? shared_from_this() : nullptr;
  VirtualDevice::Request request;
  request.bytes = bytes;
  if (options_.over_quota == GPUSHARE_OVER_QUOTA_WAIT) {
    request.wait = true;
    if (options_.timeout_ns != GPUSHARE_FOREVER) {
      const Time now = device_->gpu().clock().Now();
      const Nanos timeout(options_.timeout_ns);
      request.deadline = timeout > kNever - now ? kNever : now + timeout;
    }
  }
  for (int asked = 0;; ++asked) {
    absl::StatusOr<driver::DevicePtr> pointer = AllocateOnce(request, stream);
    if (pointer.ok() || options_.over_quota != GPUSHARE_OVER_QUOTA_RECLAIM ||
        pointer.status().code() != absl::StatusCode::kResourceExhausted || asked == kMostReclaims) {
      return pointer;
    }
    uint64_t free_bytes = 0, total = 0;
    device_->Memory(&free_bytes, &total);
    if (bytes > total) return pointer;  // no reclaiming can make room
    if (options_.reclaim(options_.reclaim_context, bytes, free_bytes) == 0) return pointer;
  }
}

absl::Status Allocator::Free(driver::DevicePtr pointer, Stream* stream) const {
  GPUSHARE_RETURN_IF_ERROR(CheckStream(stream));
  if (pool_ != nullptr && pool_->Free(pointer, stream)) return absl::OkStatus();
  return FreePointer(device_->gpu(), device_.get(), pointer, stream);
}

absl::Status Allocator::NeedsPool() const {
  if (pool_ != nullptr || driver_pool_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "allocator: this one keeps no pool; create it with the strategy 'suballocating' or 'pool'");
}

absl::StatusOr<gpushare_allocator_stats> Allocator::Stats() const {
  GPUSHARE_RETURN_IF_ERROR(NeedsPool());
  return pool_ != nullptr ? pool_->Stats() : driver_pool_->Stats();
}

absl::Status Allocator::Trim(uint64_t bytes) const {
  GPUSHARE_RETURN_IF_ERROR(NeedsPool());
  if (pool_ != nullptr) {
    pool_->Trim(bytes);
  } else {
    driver_pool_->Trim(bytes);
  }
  return absl::OkStatus();
}

}  // namespace gpushare::device
