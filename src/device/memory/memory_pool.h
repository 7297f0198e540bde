// SPDX-License-Identifier: Apache-2.0
// The suballocating pool of one allocator: pool::Suballocator with segments that are
// charged to a virtual device, a lock, and those who wait.
//
// Segments are what the quota is charged with; allocations are cut from them without the driver. A request
// that finds nothing asks, in this order: the memory of streams whose work is over by now; a new segment, in
// exchange for idle ones where too much is idle; the least segment that would do, with what idle ones give.
//
// A waiter is served by a free within the pool or by the quota, whichever is first, in the order of arrival.
// While somebody waits, a function on the host behind what was freed tells when its stream has come so far; besides, and of
// foreign streams that freed before, it asks each millisecond.
//
// memory_pool.cc has segments, allocations and frees, _wait waiting and how far streams have come.
//
// Life: allocators and the registry of segments (gpu.h) share it. It needs its virtual device, which every
// segment holds. Locks: lock_ is never held across a call of the driver or a wait.
#ifndef GPUSHARE_DEVICE_MEMORY_MEMORY_POOL_H_
#define GPUSHARE_DEVICE_MEMORY_MEMORY_POOL_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/memory/foreign_stream.h"
#include "device/memory/memory_order.h"
#include "device/share/virtual_device.h"
#include "device/stream/stream.h"
#include "device/stream/stream_end.h"
#include "gpushare/c/gpushare.h"
#include "pool/suballocator.h"
#include "quota/ledger.h"
#include "quota/spin_lock.h"

namespace gpushare::device {

class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  explicit MemoryPool(VirtualDevice& device);
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  absl::StatusOr<driver::DevicePtr> Allocate(const VirtualDevice::Request& request,
                                             const MemoryOrder& order);
  // False: no live allocation of this pool starts there. In no order: in that of the stream it was allocated for;
  // if that is foreign, the caller has seen to its end.
  bool Free(driver::DevicePtr pointer, const MemoryOrder& order);
  uint64_t SizeOf(driver::DevicePtr pointer) const;
  // Holds the virtual device. False: no live allocation of this pool starts there.
  bool HoldFor(driver::DevicePtr pointer);

  // Gives idle segments back to the driver, until they are `enough` bytes together. Returns their bytes. `began`: for
  // one that has waited since then, and does not wait for the device while streams come to what was freed by then.
  // `refused`: the first error of the driver's; without it, what the driver has just refused to free is left alone.
  uint64_t Trim(uint64_t enough, std::optional<Time> began, absl::Status* refused = nullptr);
  // Its allocator is gone: from now on what is idle is given back at once.
  void Orphan();
  // Of a stream that freed memory here, and is about to be destroyed; its context is current, and the thread
  // in the relaxed mode. `end` null: unknown, as it is without memory of the host: what was freed there goes back with its
  // segments.
  void StreamEnds(uint64_t stream, const std::shared_ptr<StreamEnd>& end) noexcept;
  void Watch(const std::shared_ptr<Stream>& stream);  // memory is freed on it
  // Who waits is told of what was freed before, when its stream has come so far.
  void TellOfFreed();
  // Forgets all segments, for a GPU that closes: they are given back, or left to the driver and their bytes
  // told.
  uint64_t Abandon(bool give);
  // The same, for a context that ends; the segments' bytes are the caller's to credit.
  std::vector<uint64_t> Forget();

  gpushare_allocator_stats Stats() const;
  // Exists for as long as a segment is registered.
  VirtualDevice& device() const { return device_; }

 private:
  using Range = pool::Suballocator::Range;
  static constexpr size_t kForeignKept = 64;

  struct Waiter {
    uint64_t bytes = 0;
    pool::StreamId stream = pool::kNobody;
    const std::shared_ptr<quota::Ticket> ticket = std::make_shared<quota::Ticket>();
    driver::DevicePtr got = 0;  // handed over, and out of waiters_
  };
  // The end of a stream that is gone.
  struct End {
    pool::StreamId stream;
    std::shared_ptr<StreamEnd> end;
  };

  // A foreign stream that freed memory here, which is not known to be over.
  struct Foreign {
    std::shared_ptr<ForeignStream> stream;
    int marking = 0;  // threads that are about to free on it
  };

  // How far a stream has come by its own word.
  struct Told {
    // What it said last, with whoever is to say it: FreesOf() when it was asked, and the time then.
    struct Word {
      std::atomic<uint64_t> frees{0};
      std::atomic<Time> at{Time::min()};
    };
    const std::shared_ptr<Word> word = std::make_shared<Word>();
    uint64_t asked = 0;  // FreesOf() when it was last asked for
    bool mute = false;   // it says nothing, since it captures for one
  };

  using Want = pool::Suballocator::Want;

  pool::StreamId IdFor(const MemoryOrder& order);
  // Before a free in the order of a foreign stream, which FreeFor() ends; when it throws it has ended.
  void MarkForeign(const MemoryOrder& order, pool::StreamId id);
  void Mark(const MemoryOrder& order, pool::StreamId id, std::shared_ptr<ForeignStream> stream);
  // Of foreign streams nobody tells the end: those that are over, and those of which nothing is left, are forgotten
  // when so many have come that it costs each of them little.
  void ForgetForeign();
  // Those who wait, and the quota, get what was freed. What the host has no memory for is left for who looks next.
  void PassOn(pool::StreamId id, driver::Stream foreign, bool serve, bool give);
  // `foreign`: the stream, where it is one.
  bool FreeFor(driver::DevicePtr pointer, pool::StreamId id, driver::Stream foreign);
  driver::DevicePtr TryAllocate(uint64_t bytes, pool::StreamId stream);
  // A new segment and the request's part of it. Null: the quota has no room, and the request may wait.
  absl::StatusOr<driver::DevicePtr> Grow(const VirtualDevice::Request& request,
                                         pool::StreamId stream);
  absl::StatusOr<driver::DevicePtr> Wait(const VirtualDevice::Request& request,
                                         pool::StreamId stream);
  // Memory for a segment of `want`, if the quota has room that nobody waits for. Null: it has not. `waits`: the request
  // may wait, and room is made for it then.
  absl::StatusOr<driver::DevicePtr> TakeIfRoom(const Want& want, bool waits);
  // The same where the device had less than the quota: with what is idle here. Who may wait does so for streams.
  absl::StatusOr<driver::DevicePtr> TakeFromIdle(const Want& want,
                                                 const VirtualDevice::Request& request);
  absl::StatusOr<driver::DevicePtr> Cut(driver::DevicePtr base, const Want& got, uint64_t bytes,
                                        pool::StreamId stream);
  // Of idle segments that were taken out of blocks_ by `take`, with the lock. The last may end the virtual device.
  // `waits`: the virtual device is known to be alive, and its unused time is lent meanwhile. Returns their bytes.
  // What the driver would not free stays charged; `refused` has it then.
  struct Refused {
    std::vector<Range> ranges;
    absl::Status first;
  };
  template <typename Take>
  uint64_t GiveBack(const Take& take, bool waits, Refused* refused);
  // `began`, `refused`: as of Trim().
  uint64_t GiveBackIdle(uint64_t enough, bool waits, std::optional<Time> began,
                        absl::Status* refused = nullptr);
  // What the driver would not free serves allocations again.
  void PutBack(const Range& range, bool waits);
  // Whether memory lies with streams whose work may go on.
  bool LiesWithStreams() const;
  bool IsAwaited() const;  // whether anybody waits for what is freed here
  void TellOfFreed(pool::StreamId id, driver::Stream native);
  // Streams whose memory who has waited since `began` leaves alone, with the lock: it is known when they have come to
  // it. Not those that have come to all that was freed by then and have gone on freeing: there is always more to come to.
  std::vector<pool::StreamId> SparedSince(Time began) const;
  // Streams whose work is over let go of what was freed on them. False: nothing changed.
  bool FindReached(pool::StreamId but);
  // Of the whole: what streams have come to, word of the rest, and what there is to who waits.
  void ServeWaiters(Time began);
  // The last of it. What is idle then goes to the quota.
  void HandOver(Time began);
  void CountWaiters() { waiting_.store(static_cast<uint32_t>(waiters_.size())); }  // with the lock

  VirtualDevice& device_;
  Gpu& gpu_;  // there for as long as a segment is, also when the virtual device is retired

  mutable quota::SpinLock lock_;  // of what follows
  pool::Suballocator blocks_;
  std::map<pool::StreamId, std::weak_ptr<Stream>> streams_;  // that have had memory
  std::vector<End> ends_;
  std::map<pool::StreamId, Foreign> foreign_;
  size_t most_foreign_ = kForeignKept;  // before some are forgotten
  std::map<pool::StreamId, Told> told_;
  uint64_t grown_ = 0;  // allocations for which there had to be another segment
  std::list<std::shared_ptr<Waiter>> waiters_;

  std::atomic<uint32_t> waiting_{0};
  std::atomic<bool> orphan_{false};
  std::atomic<bool> abandoned_{false};  // its segments are somebody else's by now
  std::atomic<Time> refused_until_{
      Time::min()};  // the driver would refuse again what it has just refused
};

// InvalidArgument: no live allocation of the pool starts there.
absl::Status FreeInPool(MemoryPool& pool, driver::DevicePtr pointer, const MemoryOrder& order);

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_MEMORY_MEMORY_POOL_H_
