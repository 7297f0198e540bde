// SPDX-License-Identifier: Apache-2.0
// Waiting for memory of a driver's pool: for what comes free in it, and for room in the quota.
#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "device/memory/driver_pool.h"
#include "device/memory/tell_behind.h"
#include "device/stream/poll.h"

namespace gpushare::device {

absl::StatusOr<driver::DevicePtr> DriverPool::Wait(const VirtualDevice::Request& request,
                                                   StreamOrder* order, uint64_t needs) {
  {
    const base::MutexLock lock(&mutex_);
    waiters_.push_back(&request);
  }
  struct Place {
    DriverPool& pool;
    const void* who;
    ~Place() {
      const base::MutexLock lock(&pool.mutex_);
      std::erase(pool.waiters_, who);
    }
  } const place{*this, &request};
  quota::Account& account = device_.account();
  uint64_t used_before = UINT64_MAX;
  VirtualDevice::Asked asked;
  for (;;) {
    const auto ticket = std::make_shared<quota::Ticket>();
    asked.place = ticket.get();
    // Goes back if the host has no memory for the rest.
    struct Found {
      DriverPool& pool;
      driver::Stream native;
      Tried tried;
      ~Found() {
        if (tried.pointer != 0) pool.TakeBack(tried.pointer, native);
      }
    } found{*this, order == nullptr ? own_ : order->native(), {}};
    const auto ends = [&] { return found.tried.pointer != 0 || !found.tried.status.ok(); };
    // Keeps the place in the quota's line. What is unused goes to whoever is first there; what lies in a
    // part of the pool that cannot go back, to the first here.
    const auto look = [&] {
      if (request.AskCalledOff(gpu_.clock().Now())) account.CallAway(ticket, gpu_.clock());
      bool first;
      {
        const base::MutexLock lock(&mutex_);
        first = waiters_.front() == &request;
      }
      if (first) {
        const auto try_again = [&] {
          Tried lost;
          TrimLocked(UINT64_MAX, &lost.status);
          if (absl::IsAborted(lost.status)) return lost;
          driver::Driver::PoolUsage usage;
          const bool read = Read(&usage, /*peaks=*/false) == driver::Result::kSuccess;
          const bool less = read && usage.used < used_before;
          if (read) used_before = usage.used;
          return less && usage.reserved - std::min(usage.reserved, usage.used) >= request.bytes
                     ? Try(request, order, 0)
                     : Tried{};
        };
        found.tried = Locked(try_again, [&] { return HasEnded(0); });
        if (ends()) account.CallAway(ticket, gpu_.clock());
      }
      static_cast<void>(device_.MakeRoom(needs, &asked));
      account.Poll();
      return gpu_.clock().Now() + kPoll;
    };
    const quota::Grant grant =
        account.ReserveBefore(needs, gpu_.clock(), request.deadline, ticket, look);
    if (ends()) {
      if (grant) account.Cancel(needs);  // both came at once
      if (!found.tried.status.ok()) return found.tried.status;
      return std::exchange(found.tried.pointer, 0);
    }
    if (!grant) {
      if (!request.CalledOff()) account.CountDenied();
      VirtualDevice::Request late = request;
      uint64_t left = 0, total = 0;
      device_.Memory(&left, &total);
      late.wait = needs <= total || request.CalledOff();  // else it was not waited for
      return device_.Refuse(late, grant.left, needs);
    }
    const Tried tried = TryOnce(request, order, needs);
    if (!tried.status.ok()) return tried.status;
    if (tried.pointer != 0) return tried.pointer;
    needs = tried.needs;
  }
}

bool DriverPool::IsAwaited() const {
  if (device_.account().is_awaited()) return true;
  const base::MutexLock lock(&mutex_);
  return !waiters_.empty();
}

// Of what is not noted, without memory of the host too, a waiter finds out by asking.
void DriverPool::Freed(const std::shared_ptr<StreamOrder>& order) try {
  constexpr size_t kMost = 16;
  const base::MutexLock lock(&mutex_);
  if (std::find(freed_on_.begin(), freed_on_.end(), order) != freed_on_.end()) return;
  if (freed_on_.size() < kMost) freed_on_.push_back(order);
} catch (const std::bad_alloc&) {
}

void DriverPool::TellWaiters(driver::Stream native) try {
  static_cast<void>(TellBehind(gpu_.driver(), native,
                               [waiters = device_.account().AwaitedBy()] { waiters.LookAgain(); }));
} catch (const std::bad_alloc&) {
}

// What lies in a piece of the pool that cannot go back is for those who wait here, and they have to look.
void DriverPool::TellOfPlace() try {
  {
    const base::MutexLock lock(&mutex_);
    if (waiters_.empty()) return;
  }
  device_.account().AwaitedBy().LookAgain();
} catch (const std::bad_alloc&) {  // they find out by asking
}

// Who frees gives back at once what is there at once (Ended), without a thread of the driver's in between.
void DriverPool::TellUnlessReached(driver::Stream native) {
  if (Captures(native) || gpu_.driver().QueryStream(native) == driver::Result::kSuccess) return;
  TellWaiters(native);
}

void DriverPool::TellOfFreed() {
  std::vector<std::shared_ptr<StreamOrder>> freed_on;
  {
    const base::MutexLock lock(&mutex_);
    freed_on.swap(freed_on_);
  }
  if (freed_on.empty()) return;
  const ContextScope current(gpu_);
  const driver::RelaxedCapture relaxed(gpu_.driver());
  for (const std::shared_ptr<StreamOrder>& freed : freed_on) {
    freed->Behind(behind_gone_, [this](driver::Stream native) {
      TellWaiters(native);
      return driver::Result::kSuccess;
    });
  }
}

}  // namespace gpushare::device
