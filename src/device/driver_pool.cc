// SPDX-License-Identifier: Apache-2.0
#include "device/driver_pool.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/clock_lock.h"
#include "device/runtime.h"

namespace gpushare::device {

namespace {

// A waiter's request is tried so often when the pool grows by more than it seemed to lack.
constexpr int kTries = 4;

// How often a waiter looks whether frees have come through their streams.
constexpr Nanos kPoll = Millis(1);

}  // namespace

absl::StatusOr<std::shared_ptr<DriverPool>> DriverPool::Create(VirtualDevice& device) {
  const std::shared_ptr<DriverPool> pool(new DriverPool(device));
  const absl::Status started = pool->Start();
  if (started.ok()) return pool;
  pool->End();
  return started;
}

absl::Status DriverPool::Start() {
  const ContextScope current(gpu_);
  GPUSHARE_RETURN_IF_ERROR(current.status());
  const driver::Driver& driver = gpu_.driver();
  const driver::Result result = driver.CreatePool(&native_, gpu_.ordinal());
  if (result == driver::Result::kNotSupported) {
    native_ = nullptr;
    return absl::UnimplementedError(
        absl::StrCat("allocator strategy 'pool': GPU ", gpu_.ordinal(),
                     " or its driver has no stream-ordered pools; use 'suballocating'"));
  }
  GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(result, "cuMemPoolCreate"));
  for (driver::Stream* stream : {&own_, &behind_gone_}) {
    GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(driver.CreateStream(stream, /*priority=*/0),
                                              "cuStreamCreateWithPriority"));
  }
  return absl::OkStatus();
}

void DriverPool::End() {
  const ContextScope current(gpu_);
  const driver::Driver& driver = gpu_.driver();
  for (const driver::Stream stream : {own_, behind_gone_}) {
    if (stream != nullptr) static_cast<void>(driver.DestroyStream(stream));
  }
  // What frees are still on their way through a stream, the driver releases when they are there.
  if (native_ != nullptr) static_cast<void>(driver.DestroyPool(native_));
  device_.account().Release(charged_);
}

// ---- The charge ----

driver::Driver::PoolUsage DriverPool::Read() const {
  driver::Driver::PoolUsage usage;
  static_cast<void>(gpu_.driver().ReadPool(native_, &usage, /*peaks=*/false));
  return usage;
}

uint64_t DriverPool::Lacks(uint64_t bytes) const {
  const driver::Driver::PoolUsage usage = Read();
  const uint64_t unused = usage.reserved - std::min(usage.reserved, usage.used);
  if (bytes <= unused) return 0;
  const uint64_t lacks = bytes - unused, step = step_.load(std::memory_order_relaxed);
  return step == 0 || lacks > UINT64_MAX - step ? lacks : (lacks + step - 1) / step * step;
}

uint64_t DriverPool::Settle() {
  const uint64_t reserved = Read().reserved;
  if (reserved >= charged_) return 0;
  const uint64_t given = charged_ - reserved;
  device_.account().Release(given);
  charged_ = reserved;
  device_.RecordMemory();
  return given;
}

void DriverPool::Refresh() {
  const ClockLock lock(gpu_.clock(), allocating_);
  Settle();
}

// ---- Allocation ----

absl::Status DriverPool::ReserveBefore(VirtualDevice::Request* growth, uint64_t asked) {
  quota::Account& account = device_.account();
  for (;;) {
    uint64_t left = 0, total = 0;
    device_.Memory(&left, &total);
    const Time now = gpu_.clock().Now();
    const Time until = growth->deadline > now + kPoll ? now + kPoll : growth->deadline;
    // What the pool has of it already cannot be more than the quota either.
    if (asked > total) growth->bytes = asked;
    if (growth->bytes <= total) {
      const quota::Grant grant = account.ReserveBefore(growth->bytes, gpu_.clock(), until,
                                                       std::make_shared<quota::Ticket>());
      if (grant) return absl::OkStatus();
    }
    if (growth->bytes > total || gpu_.clock().Now() >= growth->deadline) {
      account.CountDenied();
      return device_.Refuse(*growth, left, asked);
    }
    // Frees that have come through their streams by now.
    Trim(UINT64_MAX);
    growth->bytes = Lacks(asked);
    if (growth->bytes == 0) return absl::OkStatus();
  }
}

absl::StatusOr<driver::DevicePtr> DriverPool::AllocateOnce(const VirtualDevice::Request& request,
                                                           driver::Stream native, bool last) {
  const uint64_t bytes = request.bytes;
  quota::Account& account = device_.account();
  VirtualDevice::Request growth = request;
  growth.bytes = Lacks(bytes);
  if (growth.bytes != 0) {
    GPUSHARE_RETURN_IF_ERROR(request.wait ? ReserveBefore(&growth, bytes)
                                          : device_.Reserve(growth, bytes));
  }

  const driver::Driver& driver = gpu_.driver();
  const ContextScope current(gpu_);
  const ClockLock lock(gpu_.clock(), allocating_);
  driver::DevicePtr pointer = 0;
  const driver::Result result = current.ok()
                                    ? driver.AllocFromPool(&pointer, bytes, native_, native)
                                    : driver::Result::kInvalidContext;
  const uint64_t reserved = Read().reserved;
  const uint64_t grown = reserved - std::min(reserved, charged_);
  if (result != driver::Result::kSuccess) {
    // A pool that grew in vain keeps what it got, until it is trimmed.
    const uint64_t kept = std::min(grown, growth.bytes);
    account.Commit(kept);
    account.Cancel(growth.bytes - kept);
    charged_ += kept;
    static_cast<void>(driver.TrimPool(native_, 0));
    Settle();
    if (!current.ok()) return current.status();
    return device_.DeviceFull(bytes, result, "cuMemAllocFromPoolAsync");
  }
  const uint64_t step = step_.load(std::memory_order_relaxed);
  if (grown != 0 && (step == 0 || grown < step)) step_.store(grown, std::memory_order_relaxed);
  if (grown > growth.bytes) {
    const uint64_t more = grown - growth.bytes;
    const bool fits = static_cast<bool>(account.Reserve(more));
    if (!fits) {
      // It goes back before anybody can have used it.
      static_cast<void>(driver.FreeAsync(pointer, native));
      static_cast<void>(driver.SynchronizeStream(native));
      static_cast<void>(driver.TrimPool(native_, charged_));
      account.Cancel(growth.bytes);
      Settle();
      if (!last) return driver::DevicePtr{0};
      return device_.OverQuota(bytes,
                               account.limit() - std::min(account.limit(), account.charged()));
    }
  } else {
    account.Cancel(growth.bytes - grown);
  }
  account.Commit(grown);
  charged_ += grown;
  return pointer;
}

absl::StatusOr<driver::DevicePtr> DriverPool::Allocate(const VirtualDevice::Request& request,
                                                       Stream* stream) {
  if (request.bytes == 0) {
    return absl::InvalidArgumentError("allocation: 0 bytes asked, 1 or more allowed");
  }
  driver::Stream native = own_;
  if (stream != nullptr) {
    native = stream->native();
    stream->EndsFor(this);
  }
  driver::DevicePtr pointer = 0;
  for (int tries = 1; pointer == 0; ++tries) {
    GPUSHARE_ASSIGN_OR_RETURN(pointer, AllocateOnce(request, native, tries == kTries));
  }
  device_.Hold();
  allocations_.fetch_add(1, std::memory_order_relaxed);
  if (stream != nullptr) {
    const base::MutexLock lock(&mutex_);
    streams_[pointer] = stream->weak_from_this();
  } else {
    // For every stream: it is there when this returns.
    static_cast<void>(gpu_.driver().SynchronizeStream(own_));
  }
  const quota::Allocation entry{request.bytes, &device_.account(), quota::Kind::kPool,
                                device_.slot()};
  if (gpu_.pointers().Insert(pointer, entry) == quota::PointerTable::InsertResult::kNoMemory) {
    static_cast<void>(FreeTaken(pointer, entry, stream));
    return absl::ResourceExhaustedError("the host has no memory left for gpushare's books");
  }
  device_.RecordMemory();
  return pointer;
}

// ---- Free ----

driver::Stream DriverPool::StreamOf(driver::DevicePtr pointer) {
  const base::MutexLock lock(&mutex_);
  const auto at = streams_.find(pointer);
  if (at == streams_.end()) return own_;
  const std::shared_ptr<Stream> stream = at->second.lock();
  return stream == nullptr ? behind_gone_ : stream->native();
}

absl::Status DriverPool::FreeTaken(driver::DevicePtr pointer, const quota::Allocation& allocation,
                                   Stream* stream) {
  const driver::Stream native = stream != nullptr ? stream->native() : StreamOf(pointer);
  const ContextScope current(gpu_);
  const absl::Status status = driver::ToStatus(
      current.ok() ? gpu_.driver().FreeAsync(pointer, native) : driver::Result::kInvalidContext,
      "cuMemFreeAsync");
  if (!status.ok() && status.code() != absl::StatusCode::kAborted) {
    static_cast<void>(gpu_.pointers().Insert(pointer, allocation));
    return status;
  }
  {
    const base::MutexLock lock(&mutex_);
    streams_.erase(pointer);
  }
  allocations_.fetch_sub(1, std::memory_order_relaxed);
  // Somebody waits for memory: this free waits for the stream instead, as one of the driver's would.
  if (device_.account().has_waiters()) {
    static_cast<void>(gpu_.driver().SynchronizeStream(native));
    Trim(UINT64_MAX);
  }
  device_.Unhold();
  return status;
}

uint64_t DriverPool::Trim(uint64_t enough) {
  const ContextScope current(gpu_);
  if (!current.ok()) return 0;
  static_cast<void>(gpu_.driver().SynchronizeStream(own_));
  const ClockLock lock(gpu_.clock(), allocating_);
  const uint64_t before = charged_;
  Settle();
  const uint64_t already = before - charged_;
  if (already < enough) {
    const uint64_t keep = charged_ - std::min(charged_, enough - already);
    static_cast<void>(gpu_.driver().TrimPool(native_, keep));
    Settle();
    // It goes back in steps, of which the last would have left too little.
    if (keep != 0 && before - charged_ < enough) {
      static_cast<void>(gpu_.driver().TrimPool(native_, 0));
      Settle();
    }
  }
  return before - charged_;
}

// ---- Streams ----

void DriverPool::Watch(const std::shared_ptr<Stream>&) {}

void DriverPool::StreamEnds(uint64_t, driver::Stream native) {
  const driver::Driver& driver = gpu_.driver();
  driver::Event event = nullptr;
  if (driver.CreateEvent(&event, /*timing=*/false) != driver::Result::kSuccess) return;
  if (driver.RecordEvent(event, native) == driver::Result::kSuccess) {
    static_cast<void>(driver.StreamWaitEvent(behind_gone_, event));
  }
  static_cast<void>(driver.DestroyEvent(event));
}

// ---- Statistics ----

gpushare_allocator_stats DriverPool::Stats() {
  driver::Driver::PoolUsage usage;
  static_cast<void>(gpu_.driver().ReadPool(native_, &usage, /*peaks=*/true));
  gpushare_allocator_stats s = {};
  s.struct_size = sizeof(s);
  s.reserved = usage.reserved;
  s.live = usage.used;
  s.peak_reserved = usage.peak_reserved;
  s.peak_live = usage.peak_used;
  s.allocations = allocations_.load(std::memory_order_relaxed);
  return s;
}

}  // namespace gpushare::device
