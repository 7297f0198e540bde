// SPDX-License-Identifier: Apache-2.0
#include "device/memory/allocator.h"

#include "absl/strings/str_cat.h"
#include "base/interrupt.h"
#include "base/status_macros.h"
#include "books/books.h"
#include "device/abi/last_error.h"
#include "device/memory/reclaiming.h"
#include "spec/text.h"

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
  if (options.strategy == GPUSHARE_STRATEGY_POOL && device->door() != nullptr) {
    return absl::UnimplementedError(absl::StrCat(
        "allocator strategy 'pool': tenant ", Quoted(device->tenant().name()),
        " has isolation=context, and a pool of the driver's is the GPU's, not of a context; use "
        "'suballocating', or isolation=shared"));
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
  } else if (options.strategy == GPUSHARE_STRATEGY_SWAPPABLE) {
    GPUSHARE_ASSIGN_OR_RETURN(made->swappable_, made->device_->Swappable());
  }
  return made;
}

absl::Status Allocator::Check(const MemoryOrder& order) const {
  if (order.stream == nullptr || &order.stream->device().gpu() == &device_->gpu()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("allocator: the stream is of GPU ", order.stream->device().gpu().ordinal(),
                   ", the allocator of GPU ", device_->gpu().ordinal()));
}

absl::StatusOr<MemoryOrder> Allocator::OrderOf(driver::Stream native,
                                               std::shared_ptr<Stream>* keeps) const {
  Gpu& gpu = device_->gpu();
  *keeps = gpu.BoundStream(native);
  if (*keeps != nullptr) return MemoryOrder{.stream = keeps->get()};
  if (pool_ == nullptr && driver_pool_ == nullptr) return MemoryOrder();
  const ContextScope current(device_->site());
  GPUSHARE_RETURN_IF_ERROR(current.status());
  return ForeignOrder(gpu.driver(), native);
}

absl::StatusOr<driver::DevicePtr> Allocator::AllocateOnce(const VirtualDevice::Request& request,
                                                          const MemoryOrder& order,
                                                          Nanos patience) const {
  if (pool_ != nullptr) return pool_->Allocate(request, order);
  if (driver_pool_ != nullptr) return driver_pool_->Allocate(request, order);
  if (swappable_ != nullptr) return swappable_->Allocate(request, patience);
  return device_->Allocate(request);
}

int Allocator::AskReclaim(uint64_t asked, uint64_t left) const {
  const Reclaiming here(this);
  return options_.reclaim(options_.reclaim_context, asked, left);
}

absl::StatusOr<driver::DevicePtr> Allocator::Allocate(const Request& asked) const {
  GPUSHARE_RETURN_IF_ERROR(Check(asked.order));
  if (asked.alignment > kAlignment || (asked.alignment & (asked.alignment - 1)) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("allocation: an alignment of ", asked.alignment,
                                                   " given, a power of two up to ", kAlignment,
                                                   " allowed"));
  }
  if (asked.timeout_ns.value_or(0) < 0) {
    return absl::InvalidArgumentError(absl::StrCat("allocation: a timeout of ", *asked.timeout_ns,
                                                   "ns given, 0 to GPUSHARE_FOREVER allowed"));
  }
  const bool reclaims = options_.over_quota == GPUSHARE_OVER_QUOTA_RECLAIM;
  // The callback may destroy the handle of the very allocator that asks it.
  const std::shared_ptr<const Allocator> self = reclaims ? shared_from_this() : nullptr;
  const bool waits = asked.timeout_ns.has_value() ? *asked.timeout_ns > 0
                                                  : options_.over_quota == GPUSHARE_OVER_QUOTA_WAIT;
  VirtualDevice::Request request;
  request.bytes = asked.bytes;
  request.calls_off = &calls_off_;
  request.calls_off_before = calls_off_.load();
  const Nanos patience(waits ? asked.timeout_ns.value_or(options_.timeout_ns) : 0);
  if (waits && patience.count() != GPUSHARE_FOREVER) {
    request.deadline = After(device_->gpu().clock().Now(), patience);
  }
  if (reclaims) {
    for (int calls = 0; calls <= kMostReclaims; ++calls) {
      absl::StatusOr<driver::DevicePtr> pointer = AllocateOnce(request, asked.order, patience);
      if (!absl::IsResourceExhausted(pointer.status())) return pointer;
      uint64_t free_bytes = 0, total = 0;
      device_->Memory(&free_bytes, &total);
      const uint64_t takes = pool_ == nullptr && driver_pool_ == nullptr
                                 ? device_->gpu().runtime()->books().ChargeOf(asked.bytes)
                                 : asked.bytes;
      const bool possible = takes <= total;
      const bool asks = possible && calls < kMostReclaims && !Reclaiming::Within(this);
      const int answer = asks ? AskReclaim(asked.bytes, free_bytes) : 0;
      if (answer <= GPUSHARE_RECLAIM_STOP) return pointer;
      if (answer > 0) continue;
      if (!waits || !possible) return pointer;
      break;
    }
  }
  if (!waits) return AllocateOnce(request, asked.order, patience);
  base::InterruptWatch interrupt(device_->gpu().clock().Now());
  request.interrupt = &interrupt;
  request.wait = true;
  return AllocateOnce(request, asked.order, patience);
}

absl::Status Allocator::Free(driver::DevicePtr pointer, const MemoryOrder& order) const {
  GPUSHARE_RETURN_IF_ERROR(Check(order));
  if (pool_ != nullptr && pool_->Free(pointer, order)) return absl::OkStatus();
  return FreePointer(device_->gpu(), device_.get(), pointer, order);
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
  absl::Status refused;
  if (pool_ != nullptr) {
    pool_->Trim(bytes, std::nullopt, &refused);
  } else {
    driver_pool_->Trim(bytes, &refused);
  }
  return refused;
}

}  // namespace gpushare::device
