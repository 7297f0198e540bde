// SPDX-License-Identifier: Apache-2.0
#include "device/memory/memory_pool.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "books/books.h"
#include "device/stream/poll.h"
#include "driver/relaxed_capture.h"

namespace gpushare::device {
namespace {

using pool::kNobody;
using pool::StreamId;

pool::SuballocatorOptions OptionsOn(Gpu& gpu) {
  pool::SuballocatorOptions options;
  options.least_unit = std::max(options.least_unit, gpu.runtime()->books().page());
  return options;
}

}  // namespace

MemoryPool::MemoryPool(VirtualDevice& device)
    : device_(device), gpu_(device.gpu()), blocks_(OptionsOn(gpu_)) {}

// ---- Segments ----

template <typename Take>
uint64_t MemoryPool::GiveBack(const Take& take, bool waits, Refused* refused) {
  decltype(take()) ranges{};
  std::optional<VirtualDevice::GivingBack> giving;
  {
    const std::lock_guard lock(lock_);
    ranges = take();
    // Before anybody can see that they are gone.
    if (!ranges.empty()) giving.emplace(device_);
  }
  if (ranges.empty()) return 0;
  const driver::RelaxedCapture relaxed(gpu_.driver());
  uint64_t bytes = 0;
  for (const Range& range : ranges) {
    gpu_.RemoveSegment(range.base);
    const absl::Status given = device_.Give(range.base, range.bytes, waits);
    if (refused != nullptr) refused->first.Update(given);
    if (given.ok() || absl::IsAborted(given)) {
      bytes += range.bytes;
    } else if (refused != nullptr) {
      refused->ranges.push_back(range);
    }
  }
  return bytes;
}

uint64_t MemoryPool::GiveBackIdle(uint64_t enough, bool waits, std::optional<Time> began,
                                  absl::Status* refused) {
  const std::shared_ptr<MemoryPool> self = weak_from_this().lock();  // throws nothing
  // Who makes room does so again after each return of memory, and would not come to an end.
  if (refused == nullptr && gpu_.clock().Now() < refused_until_.load()) return 0;
  Refused by_driver;
  uint64_t given = 0;
  for (size_t before = 1; given < enough && before != by_driver.ranges.size();) {
    before = by_driver.ranges.size();
    given += GiveBack(
        [&] {
          return blocks_.TakeIdle(
              enough - given, began.has_value() ? SparedSince(*began) : std::vector<StreamId>());
        },
        waits, &by_driver);
  }
  for (const Range& range : by_driver.ranges) PutBack(range, waits);
  if (refused != nullptr) refused->Update(by_driver.first);
  return given;
}

void MemoryPool::PutBack(const Range& range, bool waits) {
  refused_until_.store(gpu_.clock().Now() + kPoll);
  const auto await_all = [&] {
    ContextDoor* const door = device_.door();
    std::optional<ContextDoor::Visit> visit;
    if (door != nullptr && !visit.emplace(*door).inside()) return false;
    const ContextScope current(device_.site());
    return current.ok() && LentMeanwhile(waits ? &device_ : nullptr, [&] {
                             return gpu_.AwaitWork();
                           }) == driver::Result::kSuccess;
  };
  // The driver may not have waited for those who use it. Without that it stays in the books, from which it goes with its
  // context, or when the GPU is closed.
  quota::Allocation listed;
  if (abandoned_.load() || (range.of_streams && !await_all()) ||
      !gpu_.runtime()->books().Take(range.base, &listed)) {
    return;
  }
  try {
    gpu_.AddSegment(range.base, range.bytes, shared_from_this());
    const std::lock_guard lock(lock_);
    if (!abandoned_.load()) {
      blocks_.AddSegment(range.base, {range.bytes, range.large});
      return;
    }
  } catch (const std::bad_alloc&) {
  }
  gpu_.RemoveSegment(range.base);
  static_cast<void>(device_.Give(range.base, range.bytes, waits));  // or into the books again
}

// ---- Allocation ----

driver::DevicePtr MemoryPool::TryAllocate(uint64_t bytes, StreamId stream) {
  const std::lock_guard lock(lock_);
  return blocks_.Allocate(bytes, stream);
}

StreamId MemoryPool::IdFor(const MemoryOrder& order) {
  if (order.foreign()) return pool::kFirstForeign | order.number;
  if (order.stream == nullptr) return kNobody;
  order.stream->EndsFor(this);
  return order.stream->id();
}

absl::StatusOr<driver::DevicePtr> MemoryPool::Allocate(const VirtualDevice::Request& request,
                                                       const MemoryOrder& order) {
  if (request.bytes == 0) {
    return absl::InvalidArgumentError("allocation: 0 bytes asked, 1 or more allowed");
  }
  const StreamId id = IdFor(order);
  // Who may wait does not overtake those who do.
  if (!request.wait || waiting_.load() == 0) {
    if (const driver::DevicePtr pointer = TryAllocate(request.bytes, id)) return pointer;
    if (FindReached(id)) {
      if (const driver::DevicePtr pointer = TryAllocate(request.bytes, id)) return pointer;
    }
    GPUSHARE_ASSIGN_OR_RETURN(const driver::DevicePtr pointer, Grow(request, id));
    if (pointer != 0) return pointer;
  }
  return Wait(request, id);
}

absl::StatusOr<driver::DevicePtr> MemoryPool::Cut(driver::DevicePtr base, const Want& got,
                                                  uint64_t bytes, StreamId stream) {
  driver::DevicePtr pointer = 0;
  bool added = false;
  try {
    gpu_.AddSegment(base, got.bytes, shared_from_this());
    const std::lock_guard lock(lock_);
    blocks_.AddSegment(base, got);
    added = true;
    pointer = blocks_.Allocate(bytes, stream);
    ++grown_;
  } catch (const std::bad_alloc&) {
    // Segment or not, the books agree; without one the memory goes back.
  }
  if (!added) {
    gpu_.RemoveSegment(base);
    static_cast<void>(device_.Give(base, got.bytes, /*waits=*/false));
  }
  if (pointer == 0) {
    return absl::ResourceExhaustedError("the host has no memory left for gpushare's books");
  }
  return pointer;
}

absl::StatusOr<driver::DevicePtr> MemoryPool::TakeIfRoom(const Want& want, bool waits) {
  // Who may wait does not wait for the device here: it would do so beyond its deadline.
  const quota::Demand demand = waits ? quota::Demand() : device_.MakeRoom(want.bytes, nullptr);
  // Behind those who wait for the quota, and without waiting.
  if (!device_.account().ReserveBefore(want.bytes, gpu_.clock(), Time(),
                                       std::make_shared<quota::Ticket>())) {
    return driver::DevicePtr{0};
  }
  return device_.TakeReserved(want.bytes);
}

absl::StatusOr<driver::DevicePtr> MemoryPool::TakeFromIdle(const Want& want,
                                                           const VirtualDevice::Request& request) {
  const Time began = gpu_.clock().Now();
  for (;;) {
    const uint32_t given = device_.given().load();
    if (request.wait) {
      FindReached(kNobody);
      TellOfFreed();  // for how far they come
    }
    GiveBackIdle(want.bytes, /*waits=*/true, request.wait ? std::optional(began) : std::nullopt);
    absl::StatusOr<driver::DevicePtr> base = TakeIfRoom(want, request.wait);
    const Time now = gpu_.clock().Now();
    if (!absl::IsResourceExhausted(base.status()) || !request.wait || now >= request.deadline ||
        request.AskCalledOff(now)) {
      return base;
    }
    {
      const std::lock_guard lock(lock_);
      if (SparedSince(began).empty()) return base;
    }
    gpu_.clock().Wait(device_.given(), given, std::min(request.deadline, now + kPoll), Nanos(0));
  }
}

absl::StatusOr<driver::DevicePtr> MemoryPool::Grow(const VirtualDevice::Request& request,
                                                   StreamId stream) {
  const driver::RelaxedCapture relaxed(gpu_.driver());
  Want want, least;
  {
    const std::lock_guard lock(lock_);
    want = blocks_.SegmentFor(request.bytes);
    least = blocks_.LeastSegmentFor(request.bytes);
  }
  uint64_t left = 0, total = 0;
  device_.Memory(&left, &total);
  if (least.bytes > total) return device_.Take({.bytes = least.bytes});  // which says so
  Refused refused;
  GiveBack(
      [&] {
        // What streams have not come to yet would be waited for.
        return blocks_.TakeSurplus(
            want, request.wait ? blocks_.StreamsWithFree(kNobody) : std::vector<StreamId>());
      },
      /*waits=*/true, &refused);
  for (const Range& range : refused.ranges) PutBack(range, /*waits=*/true);

  for (;;) {
    const uint32_t given = device_.given().load();
    device_.Memory(&left, &total);
    if (left < want.bytes) want = least;
    absl::StatusOr<driver::DevicePtr> base = TakeIfRoom(want, request.wait);
    // The device may have less than the quota.
    if (absl::IsResourceExhausted(base.status()) && want.bytes != least.bytes) {
      want = least;
      base = TakeFromIdle(want, request);
    }
    if (!base.ok()) return base;
    if (*base != 0) return Cut(*base, want, request.bytes, stream);
    {
      const std::lock_guard lock(lock_);
      if (const driver::DevicePtr pointer = blocks_.AllocateAnywhere(request.bytes, stream)) {
        return pointer;
      }
    }
    if (!device_.AwaitGiven(given, request.wait ? request.deadline : kNever)) break;
  }
  if (request.wait) return driver::DevicePtr{0};
  absl::StatusOr<driver::DevicePtr> base = device_.Take({.bytes = least.bytes});
  if (!base.ok()) return base;
  return Cut(*base, least, request.bytes, stream);
}

// ---- Free ----

void MemoryPool::MarkForeign(const MemoryOrder& order, StreamId id) {
  std::shared_ptr<ForeignStream> stream;
  {
    const std::lock_guard lock(lock_);
    Foreign& foreign = foreign_[id];
    ++foreign.marking;
    stream = foreign.stream;
  }
  try {
    ForgetForeign();
    Mark(order, id, std::move(stream));
  } catch (...) {
    const std::lock_guard lock(lock_);
    --foreign_.find(id)->second.marking;
    throw;
  }
}

void MemoryPool::Mark(const MemoryOrder& order, StreamId id,
                      std::shared_ptr<ForeignStream> stream) {
  ContextDoor* const door = device_.door();
  std::optional<ContextDoor::Visit> visit;
  if (door != nullptr && !visit.emplace(*door).inside()) return;
  const ContextScope current(device_.site());
  const driver::RelaxedCapture relaxed(gpu_.driver());
  if (stream == nullptr) {
    auto made = std::make_shared<ForeignStream>(gpu_.driver());
    const std::lock_guard lock(lock_);
    std::shared_ptr<ForeignStream>& known = foreign_[id].stream;
    if (known == nullptr) known = std::move(made);
    stream = known;
  }
  stream->Mark(order.native);
}

bool MemoryPool::Free(driver::DevicePtr pointer, const MemoryOrder& order) {
  if (!order.foreign()) {
    return FreeFor(pointer, order.none() ? pool::kItsOwn : IdFor(order), nullptr);
  }
  const std::shared_ptr<MemoryPool> self = shared_from_this();
  const StreamId id = IdFor(order);
  if (!HoldFor(pointer)) return false;
  const HeldDevice held(device_);  // whose context may end meanwhile
  MarkForeign(order, id);
  return FreeFor(pointer, id, order.native);
}

bool MemoryPool::HoldFor(driver::DevicePtr pointer) {
  const std::lock_guard lock(lock_);
  if (blocks_.SizeOf(pointer) == 0) return false;
  device_.Hold();
  return true;
}

bool MemoryPool::FreeFor(driver::DevicePtr pointer, StreamId id, driver::Stream foreign) {
  bool serve = false, give = false;
  {
    const std::lock_guard lock(lock_);
    if (id >= pool::kFirstForeign && id != pool::kItsOwn) --foreign_.find(id)->second.marking;
    if (!blocks_.Free(pointer, id)) return false;
    // Its segment is here until the lock is released, and so is the virtual device.
    serve = waiting_.load() != 0;
    give = orphan_.load(std::memory_order_relaxed) || device_.account().is_awaited();
    if (serve || give) [[unlikely]]
      device_.Hold();
  }
  if (serve || give) [[unlikely]]
    PassOn(id, foreign, serve, give);
  return true;
}

void MemoryPool::PassOn(StreamId id, driver::Stream foreign, bool serve, bool give) {
  const std::shared_ptr<MemoryPool> self = shared_from_this();
  const HeldDevice held(device_);
  try {
    // Who frees does not wait for the device: who waits has it when the stream says so.
    if (IsAwaited()) {
      FindReached(kNobody);
      TellOfFreed();
      if (foreign != nullptr) TellOfFreed(id, foreign);
    }
    if (serve) HandOver(kNever);
    if (give) {
      GiveBackIdle(UINT64_MAX, /*waits=*/false,
                   orphan_.load() ? std::nullopt : std::optional(kNever));
    }
  } catch (const std::bad_alloc&) {
    // It is freed. Who waits looks for it each millisecond, and whoever takes memory of the tenant trims.
  }
}

absl::Status FreeInPool(MemoryPool& pool, driver::DevicePtr pointer, const MemoryOrder& order) {
  if (pool.Free(pointer, order)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "free: the pointer lies in a pool of gpushare, which knows no allocation that starts there: "
      "it "
      "was freed before, or is not the start of one");
}

uint64_t MemoryPool::SizeOf(driver::DevicePtr pointer) const {
  const std::lock_guard lock(lock_);
  return blocks_.SizeOf(pointer);
}

uint64_t MemoryPool::Trim(uint64_t enough, std::optional<Time> began, absl::Status* refused) {
  // Where somebody waits here, who does asks the driver as often.
  if (began.has_value() && waiting_.load() == 0) {
    FindReached(kNobody);
    if (IsAwaited()) TellOfFreed();  // word goes to who is in line by now
  }
  return GiveBackIdle(enough, /*waits=*/true, began, refused);
}

void MemoryPool::Orphan() {
  const std::shared_ptr<MemoryPool> self = shared_from_this();
  orphan_.store(true);
  try {
    GiveBackIdle(UINT64_MAX, /*waits=*/true, std::nullopt);
  } catch (const std::bad_alloc&) {  // one at a time, then: an allocator ends without memory too
    Range one;
    const auto take = [&] {
      one = blocks_.TakeOneIdle();
      return std::span(&one, one.bytes == 0 ? 0 : 1);
    };
    while (GiveBack(take, /*waits=*/true, nullptr) != 0) {
    }
  }
}

uint64_t MemoryPool::Abandon(bool give) {
  if (!give) {
    uint64_t left = 0;
    for (const uint64_t bytes : Forget()) {
      left += bytes;
      device_.Abandon(bytes);
    }
    return left;
  }
  orphan_.store(true);
  const auto take = [&] {
    abandoned_.store(true);
    return blocks_.TakeAll();
  };
  GiveBack(take, /*waits=*/false, nullptr);
  return 0;
}

std::vector<uint64_t> MemoryPool::Forget() {
  std::vector<Range> all;
  {
    const std::lock_guard lock(lock_);
    abandoned_.store(true);
    all = blocks_.TakeAll();
  }
  orphan_.store(true);
  std::vector<uint64_t> bytes;
  for (const Range& range : all) {
    gpu_.RemoveSegment(range.base);
    bytes.push_back(range.bytes);
  }
  return bytes;
}

// ---- Streams ----

void MemoryPool::Watch(const std::shared_ptr<Stream>& stream) {
  const std::lock_guard lock(lock_);
  streams_[stream->id()] = stream;
}

void MemoryPool::StreamEnds(uint64_t stream, const std::shared_ptr<StreamEnd>& end) noexcept {
  const bool over = end != nullptr && end->Over();
  bool serve = false;
  {
    const std::lock_guard lock(lock_);
    streams_.erase(stream);
    told_.erase(stream);
    if (end == nullptr) return;
    if (over) {
      blocks_.Forget(stream);
    } else {
      try {
        ends_.push_back({stream, end});
      } catch (const std::bad_alloc&) {
        return;
      }
    }
    serve = waiting_.load() != 0;
    if (serve) device_.Hold();  // a waiter is alive, and so is the virtual device
  }
  if (!serve) return;
  const std::shared_ptr<MemoryPool> self = weak_from_this().lock();  // throws nothing
  const HeldDevice held(device_);
  try {
    ServeWaiters(kNever);
  } catch (const std::bad_alloc&) {  // they look by themselves
  }
}

// ---- Statistics ----

gpushare_allocator_stats MemoryPool::Stats() const {
  const std::lock_guard lock(lock_);
  const pool::SuballocatorStats stats = blocks_.stats();
  gpushare_allocator_stats s = {};
  s.struct_size = sizeof(s);
  s.reserved = stats.reserved;
  s.live = stats.live;
  s.peak_reserved = stats.peak_reserved;
  s.peak_live = stats.peak_live;
  s.largest_free = stats.largest_free;
  s.set_apart = stats.set_apart;
  s.segments = stats.segments;
  s.allocations = stats.allocations;
  s.waiting = waiters_.size();
  s.served = stats.served;
  s.hits = stats.served - std::min(stats.served, grown_);
  return s;
}

}  // namespace gpushare::device
