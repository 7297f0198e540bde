// SPDX-License-Identifier: Apache-2.0
#include "device/memory_pool.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace gpushare::device {
namespace {

using pool::kNobody;
using pool::StreamId;

// The thread's calls are legal while another one captures, and break no capture of its own.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const driver::Driver& driver) : driver_(driver) {
    exchanged_ = driver_.ExchangeThreadCaptureMode(&mode_) == driver::Result::kSuccess;
  }
  ~RelaxedCapture() {
    if (exchanged_) static_cast<void>(driver_.ExchangeThreadCaptureMode(&mode_));
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const driver::Driver& driver_;
  int mode_ = driver::Driver::kRelaxedCapture;
  bool exchanged_ = false;
};

}  // namespace

MemoryPool::~MemoryPool() {
  for (const End& end : ends_) static_cast<void>(gpu_.driver().DestroyEvent(end.event));
}

// ---- Allocation ----

driver::DevicePtr MemoryPool::TryAllocate(uint64_t bytes, StreamId stream) {
  const std::lock_guard lock(lock_);
  return blocks_.Allocate(bytes, stream);
}

absl::StatusOr<driver::DevicePtr> MemoryPool::Allocate(const VirtualDevice::Request& request,
                                                       Stream* stream) {
  if (request.bytes == 0) {
    return absl::InvalidArgumentError("allocation: 0 bytes asked, 1 or more allowed");
  }
  StreamId id = kNobody;
  if (stream != nullptr) {
    id = stream->id();
    stream->EndsFor(this);
  }
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

absl::StatusOr<driver::DevicePtr> MemoryPool::Grow(const VirtualDevice::Request& request,
                                                   StreamId stream) {
  Want want, least;
  std::vector<Range> surplus;
  {
    const std::lock_guard lock(lock_);
    want = blocks_.SegmentFor(request.bytes);
    least = blocks_.LeastSegmentFor(request.bytes);
    surplus = blocks_.TakeSurplus(want);
  }
  GiveBack(surplus);
  const auto room = [this] {
    uint64_t free_bytes = 0, total = 0;
    device_.Memory(&free_bytes, &total);
    return free_bytes;
  };
  uint64_t left = room();
  if (left < want.bytes) want = least;
  if (left < want.bytes) {
    Trim(want.bytes - left);
    left = room();
  }
  if (left < want.bytes) {
    const std::lock_guard lock(lock_);
    if (const driver::DevicePtr pointer = blocks_.AllocateAnywhere(request.bytes, stream)) {
      return pointer;
    }
  }
  if (request.wait && left < want.bytes) return driver::DevicePtr{0};
  const RelaxedCapture relaxed(gpu_.driver());
  absl::StatusOr<driver::DevicePtr> base = device_.Take({.bytes = want.bytes});
  // The device may have less than the quota, or others of this tenant were faster.
  if (absl::IsResourceExhausted(base.status()) && want.bytes != least.bytes) {
    want = least;
    Trim(want.bytes);
    base = device_.Take({.bytes = want.bytes});
  }
  if (!base.ok()) return base;
  return Cut(*base, want, request.bytes, stream);
}

// ---- Waiting ----

absl::StatusOr<driver::DevicePtr> MemoryPool::Wait(const VirtualDevice::Request& request,
                                                   StreamId stream) {
  const auto waiter = std::make_shared<Waiter>();
  waiter->bytes = request.bytes;
  waiter->stream = stream;
  VirtualDevice::Request segment = request;
  segment.ticket = waiter->ticket;
  Want least;
  {
    const std::lock_guard lock(lock_);
    least = blocks_.LeastSegmentFor(request.bytes);
    waiters_.push_back(waiter);
    waiting_.store(static_cast<uint32_t>(waiters_.size()));
  }
  segment.bytes = least.bytes;
  // What was freed before the lines above did not see this waiter.
  ServeWaiters();
  const absl::StatusOr<driver::DevicePtr> base = device_.Take(segment);
  driver::DevicePtr got = 0;
  {
    const std::lock_guard lock(lock_);
    waiters_.remove(waiter);
    waiting_.store(static_cast<uint32_t>(waiters_.size()));
    got = waiter->got;
  }
  if (got == 0) {
    if (!base.ok()) {
      if (waiting_.load() != 0) ServeWaiters();  // those behind may fit
      return base;
    }
    return Cut(*base, least, request.bytes, stream);
  }
  // Both came at once.
  if (base.ok()) static_cast<void>(device_.Give(*base, least.bytes, /*waits=*/true));
  return got;
}

void MemoryPool::ServeWaiters() {
  FindReached(kNobody);
  for (;;) {
    std::shared_ptr<Waiter> served;
    {
      const std::lock_guard lock(lock_);
      if (waiters_.empty()) return;
      Waiter& first = *waiters_.front();
      first.got = blocks_.Allocate(first.bytes, first.stream);
      if (first.got == 0) break;
      served = std::move(waiters_.front());
      waiters_.pop_front();
      waiting_.store(static_cast<uint32_t>(waiters_.size()));
    }
    static_cast<void>(device_.account().CallAway(served->ticket, gpu_.clock()));
  }
  // What is idle is worth more to the quota, where the first waits as well.
  Trim(UINT64_MAX);
}

// ---- Free ----

bool MemoryPool::Free(driver::DevicePtr pointer, Stream* stream) {
  StreamId id = pool::kItsOwn;
  if (stream != nullptr) {
    id = stream->id();
    stream->EndsFor(this);
  }
  {
    const std::lock_guard lock(lock_);
    if (!blocks_.Free(pointer, id)) return false;
  }
  if (waiting_.load() != 0) [[unlikely]]
    ServeWaiters();
  if (orphan_.load(std::memory_order_relaxed)) [[unlikely]]
    Trim(UINT64_MAX);  // may end the virtual device: nothing of this pool is used after
  return true;
}

absl::Status FreeInPool(MemoryPool& pool, driver::DevicePtr pointer, Stream* stream) {
  if (pool.Free(pointer, stream)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "free: the pointer lies in a pool of gpushare, which knows no allocation that starts there: "
      "it "
      "was freed before, or is not the start of one");
}

uint64_t MemoryPool::SizeOf(driver::DevicePtr pointer) const {
  const std::lock_guard lock(lock_);
  return blocks_.SizeOf(pointer);
}

void MemoryPool::GiveBack(const std::vector<Range>& ranges) {
  for (const Range& range : ranges) {
    gpu_.RemoveSegment(range.base);
    static_cast<void>(device_.Give(range.base, range.bytes, /*waits=*/!orphan_.load()));
  }
}

uint64_t MemoryPool::Trim(uint64_t enough) {
  std::vector<Range> idle;
  {
    const std::lock_guard lock(lock_);
    idle = blocks_.TakeIdle(enough);
  }
  if (idle.empty()) return 0;
  const std::shared_ptr<MemoryPool> self = shared_from_this();
  const RelaxedCapture relaxed(gpu_.driver());
  GiveBack(idle);
  uint64_t bytes = 0;
  for (const Range& range : idle) bytes += range.bytes;
  return bytes;
}

void MemoryPool::Orphan() {
  orphan_.store(true);
  Trim(UINT64_MAX);
}

uint64_t MemoryPool::Abandon(bool give) {
  std::vector<Range> all;
  {
    const std::lock_guard lock(lock_);
    all = blocks_.TakeAll();
  }
  orphan_.store(true);
  if (give) {
    GiveBack(all);
    return 0;
  }
  uint64_t bytes = 0;
  for (const Range& range : all) {
    bytes += range.bytes;
    gpu_.RemoveSegment(range.base);
    device_.Abandon(range.bytes);
  }
  return bytes;
}

// ---- Streams ----

bool MemoryPool::FindReached(StreamId but) {
  struct Asked {
    StreamId id;
    uint64_t frees;
    std::shared_ptr<Stream> stream;
  };
  std::vector<Asked> asked;
  std::vector<End> ends;
  {
    const std::lock_guard lock(lock_);
    for (const StreamId id : blocks_.StreamsWithFree(but)) {
      const auto at = streams_.find(id);
      if (at == streams_.end()) continue;
      if (std::shared_ptr<Stream> stream = at->second.lock()) {
        asked.push_back({id, blocks_.FreesOf(id), std::move(stream)});
      }
    }
    ends.swap(ends_);
  }
  if (asked.empty() && ends.empty()) return false;
  {
    const ContextScope current(gpu_);
    const RelaxedCapture relaxed(gpu_.driver());
    std::erase_if(asked, [](const Asked& a) { return !a.stream->Idle(); });
    for (End& end : ends) {
      if (gpu_.driver().QueryEvent(end.event) == driver::Result::kNotReady) continue;
      static_cast<void>(gpu_.driver().DestroyEvent(end.event));
      end.event = nullptr;
    }
  }
  bool changed = false;
  const std::lock_guard lock(lock_);
  for (const Asked& a : asked) {
    if (blocks_.FreesOf(a.id) != a.frees) continue;  // and perhaps after more work
    blocks_.Reached(a.id);
    changed = true;
  }
  for (const End& end : ends) {
    if (end.event != nullptr) {
      ends_.push_back(end);
    } else {
      blocks_.Forget(end.stream);
      changed = true;
    }
  }
  return changed;
}

void MemoryPool::Watch(const std::shared_ptr<Stream>& stream) {
  const std::lock_guard lock(lock_);
  streams_[stream->id()] = stream;
}

void MemoryPool::StreamEnds(uint64_t stream, driver::Stream native) {
  driver::Event event = nullptr;
  bool known = true;
  if (gpu_.driver().QueryStream(native) == driver::Result::kNotReady) {
    known = gpu_.driver().CreateEvent(&event, /*timing=*/false) == driver::Result::kSuccess;
    if (known && gpu_.driver().RecordEvent(event, native) != driver::Result::kSuccess) {
      static_cast<void>(gpu_.driver().DestroyEvent(event));
      known = false;
    }
  }
  const std::lock_guard lock(lock_);
  streams_.erase(stream);
  if (!known) return;  // what was freed on it goes back with its segments only
  if (event != nullptr) {
    ends_.push_back({stream, event});
  } else {
    blocks_.Forget(stream);
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
  return s;
}

}  // namespace gpushare::device
