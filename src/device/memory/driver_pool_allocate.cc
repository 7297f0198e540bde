// SPDX-License-Identifier: Apache-2.0
// Allocations from a driver's pool, and frees into it.
#include <algorithm>
#include <new>
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
  // Of the legacy stream the driver says that it cannot tell while others capture. In a context that is lost nothing
  // captures, and the next call says so.
  using Capture = driver::Driver::Capture;
  Capture capture = Capture::kNone;
  const driver::Result result = gpu_.driver().StreamCapture(native, &capture);
  if (result == driver::Result::kSuccess) return capture != Capture::kNone;
  return !absl::IsAborted(driver::ToStatus(result, "cuStreamGetCaptureInfo"));
}

void DriverPool::TakeBack(driver::DevicePtr pointer, driver::Stream native) {
  // Nobody has used it, so that nothing has to be waited for.
  const driver::Driver& driver = gpu_.driver();
  if (driver.MemFree(pointer) != driver::Result::kSuccess) {
    static_cast<void>(driver.FreeAsync(pointer, native));
  }
}

// What a try has reserved of the quota and allocated. What it does not keep goes back at its end, also when the host has no
// memory for what comes in between.
class DriverPool::Trial {
 public:
  Trial(DriverPool& pool, driver::Stream native, uint64_t reserved)
      : pool_(pool), native_(native), reserved_(reserved) {}
  ~Trial() {
    if (over_) return;
    try {
      GiveUp(/*trim=*/true);  // it may have grown in vain
    } catch (const std::bad_alloc&) {
      // It has gone back. The next Settle() finds out what is reserved.
    }
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  uint64_t reserved() const { return reserved_; }
  bool Reserve(uint64_t bytes, bool behind_waiters) {  // so many in all
    if (bytes <= reserved_) return true;
    if (!pool_.Charge(bytes - reserved_, behind_waiters)) return false;
    reserved_ = bytes;
    return true;
  }
  driver::Result Allocate(uint64_t bytes) {
    return pool_.gpu_.driver().AllocFromPool(&pointer_, bytes, pool_.natives_.back().pool, native_);
  }
  void TakeBack() {
    if (pointer_ != 0) pool_.TakeBack(std::exchange(pointer_, 0), native_);
  }
  void GiveUp(bool trim) {
    over_ = true;
    TakeBack();
    if (reserved_ != 0) pool_.device_.account().Cancel(std::exchange(reserved_, 0));
    if (trim) {
      static_cast<void>(pool_.gpu_.driver().TrimPool(pool_.natives_.back().pool, 0));
    }
    pool_.Settle();
  }
  // It made the pool grow by so many bytes, which are reserved.
  driver::DevicePtr Keep(uint64_t grown) {
    over_ = true;
    quota::Account& account = pool_.device_.account();
    account.Commit(grown);
    pool_.charged_ += grown;
    if (reserved_ > grown) account.Cancel(reserved_ - grown);
    return pointer_;
  }

 private:
  DriverPool& pool_;
  const driver::Stream native_;
  uint64_t reserved_;
  driver::DevicePtr pointer_ = 0;
  bool over_ = false;
};

DriverPool::Tried DriverPool::Try(const VirtualDevice::Request& request, StreamOrder* order,
                                  uint64_t held) {
  const driver::Stream native = order == nullptr ? own_ : order->native();
  Trial trial(*this, native, held);
  const driver::Driver& driver = gpu_.driver();
  const quota::Account& account = device_.account();
  const uint64_t bytes = request.bytes;
  if (natives_.back().most != 0 && account.most() > natives_.back().most) {
    static_cast<void>(AddNative(account.most()));  // else it stays as it is
  }
  Tried tried;
  const auto fail = [&](absl::Status status) {
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
    const bool fits = trial.Reserve(tried.needs, request.wait);
    // The stream may have what it freed itself without growth, although that counts as used until it is
    // reached. Whether it is enough, the driver knows.
    if (fits || (trimmed && order != nullptr && order->TakeFreed())) {
      // A capture may have begun while it waited: the memory would be a graph's.
      if (request.wait && order != nullptr && Captures(native)) return fail(CapturesNow());
      const driver::Result result = trial.Allocate(bytes);
      if (result == driver::Result::kSuccess) {
        read = Read(&usage, /*peaks=*/false);
        if (read != driver::Result::kSuccess) {
          return fail(driver::ToStatus(read, "cuMemPoolGetAttribute"));
        }
        const uint64_t grown = usage.reserved - std::min(usage.reserved, charged_);
        if (trial.Reserve(grown, request.wait)) {
          served_.fetch_add(1, std::memory_order_relaxed);
          if (grown != 0) grown_.fetch_add(1, std::memory_order_relaxed);
          tried.pointer = trial.Keep(grown);
          return tried;
        }
        trial.TakeBack();
        static_cast<void>(driver.TrimPool(natives_.back().pool, 0));
        tried.needs = least = grown;
      } else {
        const uint64_t most = natives_.back().most;
        const bool bounded = most != 0 && usage.reserved + bytes > most && trial.reserved() < bytes;
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
  trial.GiveUp(/*trim=*/false);
  return tried;
}

DriverPool::Tried DriverPool::TryOnce(const VirtualDevice::Request& request, StreamOrder* order,
                                      uint64_t held) {
  return Locked([&] { return Try(request, order, held); }, [&] { return HasEnded(held); });
}

DriverPool::Tried DriverPool::HasEnded(uint64_t held) {
  if (held != 0) device_.account().Cancel(held);
  Tried tried;
  tried.status = absl::FailedPreconditionError(
      "allocator of the strategy 'pool': the pool has ended, with its virtual device or its GPU");
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
    const Tried tried = TryOnce(request, order, 0);
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

// An allocation that nobody can free yet. It goes back unless it is listed.
class DriverPool::Unlisted {
 public:
  Unlisted(DriverPool& pool, driver::DevicePtr pointer, driver::Stream native)
      : pool_(pool), pointer_(pointer), native_(native) {
    pool_.device_.Hold();
    pool_.allocations_.fetch_add(1, std::memory_order_relaxed);
  }
  ~Unlisted() {
    if (listed_) return;
    {
      const base::MutexLock lock(&pool_.mutex_);
      pool_.orders_.erase(pointer_);
    }
    pool_.TakeBack(pointer_, native_);
    pool_.allocations_.fetch_sub(1, std::memory_order_relaxed);
    try {
      pool_.Refresh();
    } catch (const std::bad_alloc&) {
      // What is unused stays charged until the next look.
    }
    pool_.device_.Unhold();  // not the last: the caller has the virtual device
  }
  Unlisted(const Unlisted&) = delete;
  Unlisted& operator=(const Unlisted&) = delete;

  void Listed() { listed_ = true; }

 private:
  DriverPool& pool_;
  const driver::DevicePtr pointer_;
  const driver::Stream native_;
  bool listed_ = false;
};

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
  StreamOrder unknown(gpu_, native);
  unknown.Freed();
  GPUSHARE_ASSIGN_OR_RETURN(const driver::DevicePtr pointer,
                            Get(request, order.none()      ? nullptr
                                         : order.foreign() ? &unknown
                                                           : order.stream->order().get()));
  Unlisted fresh(*this, pointer, native);
  GPUSHARE_RETURN_IF_ERROR(List(pointer, request.bytes, order));
  fresh.Listed();
  return pointer;
}

absl::Status DriverPool::List(driver::DevicePtr pointer, uint64_t bytes, const MemoryOrder& order) {
  {
    const base::MutexLock lock(&mutex_);
    if (order.stream != nullptr) {
      orders_[pointer] = order.stream->order();
    } else {
      orders_.erase(pointer);
    }
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
      return absl::ResourceExhaustedError("the host has no memory left for gpushare's books");
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
    if (!status.ok() && !(absl::IsAborted(status) && IsLost(result))) {
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
  if (allocators_.load() == 0 || lost_.load() || device_.account().is_awaited()) Trim(UINT64_MAX);
  TellOfPlace();
  device_.Unhold();  // may end it
}

}  // namespace gpushare::device
