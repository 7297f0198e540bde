// SPDX-License-Identifier: Apache-2.0
#include "device/driver_pool.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/clock_lock.h"
#include "device/relaxed_capture.h"

namespace gpushare::device {
namespace {

// How often a waiter asks what has come through its stream.
constexpr Nanos kPoll = Millis(1);

absl::Status CapturesNow() {
  return absl::FailedPreconditionError(
      "allocator of the strategy 'pool': the stream captures a graph, of which this would become a "
      "part; do it before or after the capture, or use 'suballocating'");
}

}  // namespace

// ---- Life ----

DriverPool::DriverPool(VirtualDevice& device) : device_(device), gpu_(device.gpu()) {}

absl::StatusOr<std::shared_ptr<DriverPool>> DriverPool::Create(VirtualDevice& device) {
  const std::shared_ptr<DriverPool> pool(new DriverPool(device));
  const ContextScope current(pool->gpu_);
  GPUSHARE_RETURN_IF_ERROR(current.status());
  const RelaxedCapture relaxed(pool->gpu_.driver());
  const absl::Status started = pool->Start();
  if (!started.ok()) {
    pool->Destroy();
    return started;
  }
  pool->gpu_.AddDriverPool(pool);
  return pool;
}

absl::Status DriverPool::Start() {
  const driver::Driver& driver = gpu_.driver();
  const quota::Account& account = device_.account();
  const driver::Result result = AddNative(account.parent() == nullptr ? account.limit() : 0);
  if (result == driver::Result::kNotSupported) {
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

driver::Result DriverPool::AddNative(uint64_t most) {
  natives_.reserve(natives_.size() + 1);
  Native made{nullptr, most};
  const driver::Driver& driver = gpu_.driver();
  driver::Result result = driver.CreatePool(&made.pool, gpu_.ordinal(), made.most);
  if (result == driver::Result::kInvalidValue && made.most != 0) {
    made.most = 0;  // older drivers know no bound
    result = driver.CreatePool(&made.pool, gpu_.ordinal(), made.most);
  }
  if (result == driver::Result::kSuccess) natives_.push_back(made);
  return result;
}

void DriverPool::Destroy() {
  const driver::Driver& driver = gpu_.driver();
  for (driver::Stream* stream : {&own_, &behind_gone_}) {
    if (*stream != nullptr) static_cast<void>(driver.DestroyStream(*stream));
    *stream = nullptr;
  }
  for (const Native& native : natives_) static_cast<void>(driver.DestroyPool(native.pool));
  natives_.clear();
}

void DriverPool::End() {
  const ContextScope current(gpu_);
  const RelaxedCapture relaxed(gpu_.driver());
  {
    const ClockLock lock(gpu_.clock(), allocating_);
    if (ended_) return;
    ended_ = true;
    Destroy();
  }
  gpu_.RemoveDriverPool(this);
}

uint64_t DriverPool::Abandon(bool give) {
  const std::shared_ptr<DriverPool> self = shared_from_this();
  uint64_t left = 0;
  bool held;
  {
    const ClockLock lock(gpu_.clock(), allocating_);
    if (ended_) return 0;
    ended_ = true;
    if (give) {
      Destroy();
    } else {
      left = charged_;
    }
    device_.account().Release(std::exchange(charged_, 0));
    held = held_.exchange(false);
  }
  gpu_.RemoveDriverPool(this);
  if (held) device_.Unhold();
  return left;
}

void DriverPool::Leave() {
  if (allocators_.fetch_sub(1) == 1) Trim(UINT64_MAX);
}

template <typename Call>
auto DriverPool::Locked(const Call& call) -> decltype(call()) {
  const std::shared_ptr<DriverPool> self = shared_from_this();
  bool last = false;
  const auto run = [&] {
    const ContextScope current(gpu_);
    const RelaxedCapture relaxed(gpu_.driver());
    const ClockLock lock(gpu_.clock(), allocating_);
    if (ended_) return decltype(call()){};
    auto answer = call();
    const bool hold = charged_ != 0;
    if (hold != held_.load(std::memory_order_relaxed)) {
      held_.store(hold, std::memory_order_relaxed);
      if (hold) device_.Hold();
      last = !hold;
    }
    return answer;
  };
  auto answer = run();
  if (last) device_.Unhold();  // may end it
  return answer;
}

// ---- The charge ----

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

uint64_t DriverPool::Settle() {
  driver::Driver::PoolUsage usage;
  const driver::Result read = Read(&usage, /*peaks=*/false);
  if (driver::ToStatus(read, "cuMemPoolGetAttribute").code() == absl::StatusCode::kAborted) {
    usage = {};  // the context is lost, and the memory with it
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

uint64_t DriverPool::TrimLocked(uint64_t enough) {
  const driver::Driver& driver = gpu_.driver();
  // Nothing waits on it: memory of no stream is there then.
  static_cast<void>(driver.SynchronizeStream(own_));
  const uint64_t before = charged_;
  // It may hold more than was known.
  const auto given = [&] { return before - std::min(before, charged_); };
  Settle();
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
  if (given() >= enough) return given();
  driver::Driver::PoolUsage newest;
  if (driver.ReadPool(natives_.back().pool, &newest, false) != driver::Result::kSuccess) return 0;
  const uint64_t missing = enough - given();
  const uint64_t keep = newest.reserved - std::min(newest.reserved, missing);
  static_cast<void>(driver.TrimPool(natives_.back().pool, keep));
  Settle();
  // It goes back in steps, of which the last would have left too little.
  if (keep != 0 && given() < enough) {
    static_cast<void>(driver.TrimPool(natives_.back().pool, 0));
    Settle();
  }
  return given();
}

uint64_t DriverPool::Trim(uint64_t enough) {
  return Locked([&] { return TrimLocked(enough); });
}

void DriverPool::Refresh() {
  Locked([&] { return Settle(); });
}

void DriverPool::TrimIfUnused() {
  if (allocators_.load() == 0) Trim(UINT64_MAX);
}

// ---- Allocation ----

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
  if (natives_.back().most != 0 && account.limit() > natives_.back().most) {
    static_cast<void>(AddNative(account.limit()));  // else it stays as it is
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
    Settle();
    driver::Driver::PoolUsage usage;
    driver::Result read = Read(&usage, /*peaks=*/false);
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
  std::optional<quota::Demand> demand;
  // Who may wait does not overtake those who do.
  for (int tries = request.wait && others_wait ? 2 : 0; tries < 2; ++tries) {
    const Tried tried = Locked([&] { return Try(request, order, 0); });
    if (!tried.status.ok()) return tried.status;
    if (tried.pointer != 0) return tried.pointer;
    needs = tried.needs;
    // Of what other pools have idle, and others have borrowed.
    if (tries == 0) demand.emplace(device_.MakeRoom(needs, /*ask=*/true));
  }
  if (request.wait) return Wait(request, order, needs);
  device_.account().CountDenied();
  device_.Memory(&left, &total);
  return device_.Refuse(request, left, needs);
}

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
  for (;;) {
    const auto ticket = std::make_shared<quota::Ticket>();
    Tried found;
    // Keeps the place in the quota's line. What is unused goes to whoever is first there; what lies in a
    // part of the pool that cannot go back, to the first here.
    const auto look = [&] {
      bool first;
      {
        const base::MutexLock lock(&mutex_);
        first = waiters_.front() == &request;
      }
      if (first) {
        found = Locked([&] {
          TrimLocked(UINT64_MAX);
          driver::Driver::PoolUsage usage;
          const bool read = Read(&usage, /*peaks=*/false) == driver::Result::kSuccess;
          const bool less = read && usage.used < used_before;
          if (read) used_before = usage.used;
          return less && usage.reserved - std::min(usage.reserved, usage.used) >= request.bytes
                     ? Try(request, order, 0)
                     : Tried{};
        });
        if (found.pointer != 0 || !found.status.ok()) account.CallAway(ticket, gpu_.clock());
      }
      static_cast<void>(device_.MakeRoom(needs, /*ask=*/false));
      account.Poll();
      return gpu_.clock().Now() + kPoll;
    };
    const quota::Grant grant =
        account.ReserveBefore(needs, gpu_.clock(), request.deadline, ticket, look);
    if (found.pointer != 0 || !found.status.ok()) {
      if (grant) account.Cancel(needs);  // both came at once
      if (!found.status.ok()) return found.status;
      return found.pointer;
    }
    if (!grant) {
      account.CountDenied();
      VirtualDevice::Request late = request;
      uint64_t left = 0, total = 0;
      device_.Memory(&left, &total);
      late.wait = needs <= total;  // else it was not waited for
      return device_.Refuse(late, grant.left, needs);
    }
    const Tried tried = Locked([&] { return Try(request, order, needs); });
    if (!tried.status.ok()) return tried.status;
    if (tried.pointer != 0) return tried.pointer;
    needs = tried.needs;
  }
}

absl::StatusOr<driver::DevicePtr> DriverPool::Allocate(const VirtualDevice::Request& request,
                                                       const MemoryOrder& order) {
  if (request.bytes == 0) {
    return absl::InvalidArgumentError("allocation: 0 bytes asked, 1 or more allowed");
  }
  const ContextScope current(gpu_);
  GPUSHARE_RETURN_IF_ERROR(current.status());
  const RelaxedCapture relaxed(gpu_.driver());
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
  switch (gpu_.pointers().Insert(pointer, entry, &replaced)) {
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
    const RelaxedCapture relaxed(gpu_.driver());
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
  if (allocators_.load() == 0 || device_.account().has_waiters()) Trim(UINT64_MAX);
  device_.Unhold();  // may end it
}

// ---- Statistics ----

gpushare_allocator_stats DriverPool::Stats() {
  gpushare_allocator_stats s = {};
  s.struct_size = sizeof(s);
  driver::Driver::PoolUsage usage;
  Locked([&] {
    Settle();
    return Read(&usage, /*peaks=*/true);
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
