// SPDX-License-Identifier: Apache-2.0
// Allocations from a driver's pool, and frees into it.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "books/books.h"
#include "device/memory/driver_pool.h"

namespace gpushare::device {
namespace {

absl::Status CapturesNow() {
  return absl::FailedPreconditionError(
      "allocator of the strategy 'pool': the stream captures a graph, of which this would become a "
      "part; do it before or after the capture, or use 'suballocating'");
}

}  // namespace

bool DriverPool::Captures(driver::Stream native) const {
  // Of the legacy stream the driver says that it cannot tell while others capture.
  using Capture = driver::Driver::Capture;
  Capture capture = Capture::kNone;
  return gpu_.driver().StreamCapture(native, &capture) != driver::Result::kSuccess ||
         capture != Capture::kNone;
}

void DriverPool::TakeBack(driver::DevicePtr pointer, driver::Stream native) {
  // Nobody has used it, so that nothing has to be waited for.
  const driver::Driver& driver = gpu_.driver();
  if (driver.MemFree(pointer) != driver::Result::kSuccess) {
    static_cast<void>(driver.FreeAsync(pointer, native));
  }
}

DriverPool::Tried DriverPool::Try(const VirtualDevice::Request& request, StreamOrder* order,
                                  uint64_t held) {
  const driver::Stream native = order == nullptr ? own_ : order->native();
  const driver::Driver& driver = gpu_.driver();
  quota::Account& account = device_.account();
  const uint64_t bytes = request.bytes;
  if (natives_.back().most != 0 && account.most() > natives_.back().most) {
    static_cast<void>(AddNative(account.most()));  // else it stays as it is
  }
  Tried tried;
  const auto fail = [&](absl::Status status) {
    account.Cancel(held);
    static_cast<void>(driver.TrimPool(natives_.back().pool, 0));  // if it grew in vain
    Settle();
    tried.status = std::move(status);
    return tried;
  };
  uint64_t least = 0;  // it is known to grow by so much
  for (bool trimmed = false;; trimmed = true) {
    driver::Driver::PoolUsage usage;
    driver::Result read;
    Settle(&usage, &read);
    if (read != driver::Result::kSuccess) {
      return fail(driver::ToStatus(read, "cuMemPoolGetAttribute"));
    }
    const uint64_t unused = usage.reserved - std::min(usage.reserved, usage.used);
    tried.needs = std::max(least, bytes - std::min(bytes, unused));
    const bool fits = tried.needs <= held || Charge(tried.needs - held, request.wait);
    // The stream may have what it freed itself without growth, although that counts as used until it is
    // reached. Whether it is enough, the driver knows.
    if (fits || (trimmed && order != nullptr && order->TakeFreed())) {
      if (fits) held = std::max(held, tried.needs);
      // A capture may have begun while it waited: the memory would be a graph's.
      if (request.wait && order != nullptr && Captures(native)) return fail(CapturesNow());
      driver::DevicePtr pointer = 0;
      const driver::Result result =
          driver.AllocFromPool(&pointer, bytes, natives_.back().pool, native);
      if (result == driver::Result::kSuccess) {
        read = Read(&usage, /*peaks=*/false);
        if (read != driver::Result::kSuccess) {
          TakeBack(pointer, native);
          return fail(driver::ToStatus(read, "cuMemPoolGetAttribute"));
        }
        const uint64_t grown = usage.reserved - std::min(usage.reserved, charged_);
        if (grown <= held || Charge(grown - held, request.wait)) {
          account.Commit(grown);
          charged_ += grown;
          if (held > grown) account.Cancel(held - grown);
          served_.fetch_add(1, std::memory_order_relaxed);
          if (grown != 0) grown_.fetch_add(1, std::memory_order_relaxed);
          tried.pointer = pointer;
          return tried;
        }
        TakeBack(pointer, native);
        static_cast<void>(driver.TrimPool(natives_.back().pool, 0));
        tried.needs = least = grown;
      } else {
        const uint64_t most = natives_.back().most;
        const bool bounded = most != 0 && usage.reserved + bytes > most && held < bytes;
        const bool quota = bounded || !fits;
        if (result != driver::Result::kOutOfMemory || !quota) {
          return fail(device_.DeviceFull(bytes, result, "cuMemAllocFromPoolAsync"));
        }
        // What is unused lies in pieces, and the pool may not grow beside them.
        tried.needs = least = std::max(least, bytes);
      }
    }
    if (trimmed) break;
    // With the lock held: no other thread has in between what this gives back.
    TrimLocked(UINT64_MAX);
  }
  if (held != 0) account.Cancel(held);
  Settle();
  return tried;
}

absl::StatusOr<driver::DevicePtr> DriverPool::Get(const VirtualDevice::Request& request,
                                                  StreamOrder* order) {
  uint64_t left = 0, total = 0;
  device_.Memory(&left, &total);
  if (request.bytes > total) {
    device_.account().CountDenied();
    return device_.Refuse(request, left);
  }
  bool others_wait;
  {
    const base::MutexLock lock(&mutex_);
    others_wait = !waiters_.empty();
  }
  uint64_t needs = request.bytes;
  VirtualDevice::Asked asked;
  const Time began = gpu_.clock().Now();
  std::vector<quota::Demand> demands;
  // Who may wait does not overtake those who do. What the pool grows by may be known only when there is room.
  for (uint64_t made = 0; !(request.wait && others_wait);) {
    const uint32_t given = device_.given().load();
    const Tried tried = Locked([&] { return Try(request, order, 0); });
    if (!tried.status.ok()) return tried.status;
    if (tried.pointer != 0) return tried.pointer;
    needs = tried.needs;
    if (needs <= made) {
      if (!request.wait && device_.AwaitGiven(given, kNever)) continue;
      break;
    }
    made = needs;
    // Of what other pools have idle, and others have borrowed.
    demands.push_back(device_.MakeRoom(needs, request.wait ? nullptr : &asked,
                                       request.wait ? std::optional(began) : std::nullopt));
  }
  if (request.wait) return Wait(request, order, needs);
  device_.account().CountDenied();
  device_.Memory(&left, &total);
  // Without what the tenant has lent, which did not come back.
  return device_.Refuse(request, std::min(left, device_.account().Reachable()), needs);
}

absl::StatusOr<driver::DevicePtr> DriverPool::Allocate(const VirtualDevice::Request& request,
                                                       const MemoryOrder& order) {
  if (request.bytes == 0) {
    return absl::InvalidArgumentError("allocation: 0 bytes asked, 1 or more allowed");
  }
  const ContextScope current(gpu_);
  GPUSHARE_RETURN_IF_ERROR(current.status());
  const driver::RelaxedCapture relaxed(gpu_.driver());
  const driver::Stream native = order.none()      ? own_
                                : order.foreign() ? order.native
                                                  : order.stream->native();
  if (!order.none() && Captures(native)) return CapturesNow();
  // What a foreign stream freed is not known: it is taken to have.
  StreamOrder unknown(gpu_.driver(), native);
  unknown.Freed();
  GPUSHARE_ASSIGN_OR_RETURN(const driver::DevicePtr pointer,
                            Get(request, order.none()      ? nullptr
                                         : order.foreign() ? &unknown
                                                           : order.stream->order().get()));
  device_.Hold();
  allocations_.fetch_add(1, std::memory_order_relaxed);
  const absl::Status listed = List(pointer, request.bytes, order);
  if (listed.ok()) return pointer;
  TakeBack(pointer, native);
  allocations_.fetch_sub(1, std::memory_order_relaxed);
  Refresh();
  device_.Unhold();
  return listed;
}

absl::Status DriverPool::List(driver::DevicePtr pointer, uint64_t bytes, const MemoryOrder& order) {
  const absl::Status no_memory =
      absl::ResourceExhaustedError("the host has no memory left for gpushare's books");
  try {
    const base::MutexLock lock(&mutex_);
    if (order.stream != nullptr) {
      orders_[pointer] = order.stream->order();
    } else {
      orders_.erase(pointer);
    }
  } catch (const std::bad_alloc&) {
    return no_memory;
  }
  // For every stream: it is there when this returns.
  if (order.none()) {
    GPUSHARE_RETURN_IF_ERROR(
        driver::ToStatus(gpu_.driver().SynchronizeStream(own_), "cuStreamSynchronize"));
  }
  const quota::Allocation entry{bytes, &device_.account(), quota::Kind::kPool, device_.slot()};
  quota::Allocation replaced;
  // The driver gave the address out again: what was there ended past us, with its context.
  books::Books& books = gpu_.runtime()->books();
  if (books.Take(pointer, &replaced)) books.Gone(replaced);
  switch (gpu_.unbooked().Insert(pointer, entry, &replaced)) {
    case quota::PointerTable::InsertResult::kInserted:
      break;
    case quota::PointerTable::InsertResult::kReplaced:
      gpu_.InSlot(replaced.device)->Lost(replaced);
      break;
    case quota::PointerTable::InsertResult::kNoMemory:
      return no_memory;
  }
  device_.RecordMemory();
  return absl::OkStatus();
}

// ---- Free ----

absl::Status DriverPool::FreeTaken(driver::DevicePtr pointer, const quota::Allocation& allocation,
                                   const MemoryOrder& in) {
  const std::shared_ptr<DriverPool> self = shared_from_this();
  std::shared_ptr<StreamOrder> order;
  {
    // Before the driver frees the address, which may be somebody's again at once.
    const base::MutexLock lock(&mutex_);
    const auto at = orders_.find(pointer);
    if (at != orders_.end()) {
      order = std::move(at->second);
      orders_.erase(at);
    }
  }
  absl::Status status;
  {
    const ContextScope current(gpu_);
    const driver::RelaxedCapture relaxed(gpu_.driver());
    bool captures = false;
    const auto free = [&](driver::Stream native) {
      captures = native != own_ && Captures(native);
      return captures ? driver::Result::kInvalidValue : gpu_.driver().FreeAsync(pointer, native);
    };
    const std::shared_ptr<StreamOrder> follows = in.foreign()           ? nullptr
                                                 : in.stream != nullptr ? in.stream->order()
                                                                        : order;
    const driver::Result result = !current.ok()        ? driver::Result::kInvalidContext
                                  : in.foreign()       ? free(in.native)
                                  : follows == nullptr ? free(own_)
                                                       : follows->Behind(behind_gone_, free);
    if (follows != nullptr && result == driver::Result::kSuccess) follows->Freed();
    if (result == driver::Result::kSuccess) {
      // Who comes to wait after the first look has the note, and before the second is seen by it.
      bool awaited = IsAwaited();
      if (!awaited && follows != nullptr) {
        Freed(follows);
        awaited = IsAwaited();
      }
      const auto tell = [&](driver::Stream native) {
        TellUnlessReached(native);
        return driver::Result::kSuccess;
      };
      // What is freed on own_ is there at once: Ended() gives it back.
      if (awaited && follows != nullptr) {
        follows->Behind(behind_gone_, tell);
      } else if (awaited && in.foreign()) {
        tell(in.native);
      }
    }
    status = captures ? CapturesNow() : driver::ToStatus(result, "cuMemFreeAsync");
    if (!status.ok() && status.code() != absl::StatusCode::kAborted) {
      if (order != nullptr) {
        const base::MutexLock lock(&mutex_);
        orders_.emplace(pointer, std::move(order));
      }
      if (gpu_.PutBack(pointer, allocation)) return status;
    }
  }
  Ended();
  return status;
}

void DriverPool::Ended() {
  const std::shared_ptr<DriverPool> self = shared_from_this();
  allocations_.fetch_sub(1, std::memory_order_relaxed);
  if (allocators_.load() == 0 || device_.account().is_awaited()) Trim(UINT64_MAX);
  TellOfPlace();
  device_.Unhold();  // may end it
}

}  // namespace gpushare::device
