// SPDX-License-Identifier: Apache-2.0
// What a driver's pool holds of the quota: read from the driver, charged, given back.
#include <algorithm>
#include <utility>

#include "device/memory/driver_pool.h"

namespace gpushare::device {

driver::Result DriverPool::Read(driver::Driver::PoolUsage* usage, bool peaks) const {
  *usage = {};
  for (const Native& native : natives_) {
    driver::Driver::PoolUsage one;
    const driver::Result result = gpu_.driver().ReadPool(native.pool, &one, peaks);
    if (result != driver::Result::kSuccess) return result;
    usage->reserved += one.reserved;
    usage->used += one.used;
    usage->peak_reserved += one.peak_reserved;
    usage->peak_used += one.peak_used;
  }
  return driver::Result::kSuccess;
}

bool DriverPool::Charge(uint64_t bytes, bool behind_waiters) {
  if (bytes == 0) return true;
  quota::Account& account = device_.account();
  return static_cast<bool>(behind_waiters ? account.ReserveBefore(bytes, gpu_.clock(), Time(),
                                                                  std::make_shared<quota::Ticket>())
                                          : account.TryReserve(bytes));
}

bool DriverPool::IsLost(driver::Result result) {
  if (result != driver::Result::kSuccess && absl::IsAborted(driver::ToStatus(result, ""))) {
    lost_.store(true);
  }
  return lost_.load();
}

uint64_t DriverPool::Settle(driver::Driver::PoolUsage* found, driver::Result* result) {
  driver::Driver::PoolUsage usage;
  const driver::Result read = Read(&usage, /*peaks=*/false);
  if (found != nullptr) *found = usage;
  if (result != nullptr) *result = read;
  if (IsLost(read)) {  // also where the driver still tells
    usage = {};
    if (found != nullptr) *found = usage;
  } else if (read != driver::Result::kSuccess) {
    return 0;  // not known to be less
  }
  quota::Account& account = device_.account();
  if (usage.reserved >= charged_) {
    // What it grew by in vain and would not give back.
    const uint64_t more = usage.reserved - charged_;
    if (more != 0 && Charge(more, /*behind_waiters=*/false)) {
      account.Commit(more);
      charged_ += more;
    }
    return 0;
  }
  const uint64_t given = charged_ - usage.reserved;
  charged_ = usage.reserved;
  account.Release(given);
  device_.RecordMemory();
  return given;
}

uint64_t DriverPool::TrimLocked(uint64_t enough, absl::Status* refused) {
  const driver::Driver& driver = gpu_.driver();
  const auto told = [&](driver::Result result, const char* call) {
    if (refused != nullptr) refused->Update(driver::ToStatus(result, call));
    return result;
  };
  // Nothing waits on it: memory of no stream is there then.
  static_cast<void>(IsLost(told(driver.SynchronizeStream(own_), "cuStreamSynchronize")));
  const uint64_t before = charged_;
  // It may hold more than was known.
  const auto given = [&] { return before - std::min(before, charged_); };
  Settle();
  if (natives_.size() > 1) {
    for (size_t i = 0; i + 1 < natives_.size();) {
      static_cast<void>(driver.TrimPool(natives_[i].pool, 0));
      driver::Driver::PoolUsage usage;
      if (driver.ReadPool(natives_[i].pool, &usage, /*peaks=*/false) == driver::Result::kSuccess &&
          usage.reserved == 0) {
        static_cast<void>(driver.DestroyPool(natives_[i].pool));
        natives_.erase(natives_.begin() + static_cast<ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    Settle();
  }
  if (given() >= enough) return given();
  uint64_t keep = 0;
  if (enough != UINT64_MAX) {
    driver::Driver::PoolUsage newest;
    if (driver.ReadPool(natives_.back().pool, &newest, false) != driver::Result::kSuccess) return 0;
    const uint64_t missing = enough - given();
    keep = newest.reserved - std::min(newest.reserved, missing);
  }
  static_cast<void>(told(driver.TrimPool(natives_.back().pool, keep), "cuMemPoolTrimTo"));
  Settle();
  // It goes back in steps, of which the last would have left too little.
  if (keep != 0 && given() < enough) {
    static_cast<void>(driver.TrimPool(natives_.back().pool, 0));
    Settle();
  }
  return given();
}

uint64_t DriverPool::Trim(uint64_t enough, absl::Status* refused) {
  return Locked([&] { return TrimLocked(enough, refused); });
}

void DriverPool::Refresh() {
  Locked([&] { return Settle(); });
}

void DriverPool::TrimIfUnused() {
  if (allocators_.load() == 0) Trim(UINT64_MAX);
}

// ---- Statistics ----

gpushare_allocator_stats DriverPool::Stats() {
  gpushare_allocator_stats s = {};
  s.struct_size = sizeof(s);
  driver::Driver::PoolUsage usage;
  Locked([&] {
    Settle();
    const driver::Result read = Read(&usage, /*peaks=*/true);
    if (IsLost(read)) usage.reserved = usage.used = 0;
    return read;
  });
  s.reserved = usage.reserved;
  s.live = usage.used;
  s.peak_reserved = usage.peak_reserved;
  s.peak_live = usage.peak_used;
  s.allocations = allocations_.load(std::memory_order_relaxed);
  s.served = served_.load(std::memory_order_relaxed);
  s.hits = s.served - std::min(s.served, grown_.load(std::memory_order_relaxed));
  const base::MutexLock lock(&mutex_);
  s.waiting = waiters_.size();
  return s;
}

}  // namespace gpushare::device
