// SPDX-License-Identifier: Apache-2.0
// Cuts segments of device memory into allocations, in the order of streams, without asking the driver.
//
//   Suballocator pool;
//   uint64_t pointer = pool.Allocate(bytes, stream);
//   if (pointer == 0) {
//     const Suballocator::Want want = pool.SegmentFor(bytes);
//     for (Range idle : pool.TakeSurplus(want)) driver frees it;
//     pool.AddSegment(driver memory of want.bytes, want);      // charged to the tenant
//     pointer = pool.Allocate(bytes, stream);
//   }
//   ...
//   pool.Free(pointer, stream);
//
// The order of streams: memory that is freed on a stream may be used again at once by work that is
// launched on that stream afterwards, and by other streams' work only when what the first stream had been
// given by then is over. Who knows that (a query, a synchronise) says Reached(stream).
//
// How it is kept. A freed block of up to `quick_most` is set apart for the next request of exactly its
// size: a program that repeats itself, as training loops do, gets its blocks back in a few instructions.
// Others are merged with their free neighbours and listed by size class; a request takes the first block
// of the least class that surely fits and gives the rest back. What is set apart is merged as well before
// a request fails. Requests of up to 1 MiB are cut from segments of their own, so that a small one that
// lives long does not hold a large segment.
//
// Cost: constant but for Reached(), TakeIdle() and a request that has to merge what was set apart; figures
// in docs/memory.md. Memory: about 100 bytes of the host for each block, 12 KiB for each stream until it is forgotten:
// of those whose end somebody tells from the first allocation on, of others from the first free in their order.
//
// Threading: none; the caller holds a lock, across no call of the driver. Errors: host memory that runs
// out throws std::bad_alloc and changes nothing.
#ifndef GPUSHARE_POOL_SUBALLOCATOR_H_
#define GPUSHARE_POOL_SUBALLOCATOR_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "pool/address_table.h"
#include "pool/block.h"
#include "pool/free_lists.h"
#include "pool/owner.h"

namespace gpushare::pool {

// Any number that tells streams apart; 0 is nobody's: work that every stream may follow.
using StreamId = uint64_t;
inline constexpr StreamId kNobody = 0;
inline constexpr StreamId kItsOwn = UINT64_MAX;  // of a free: what it was allocated for
// From here on streams of which nobody knows whether they are still there: what is freed as their own is
// everybody's.
inline constexpr StreamId kFirstForeign = StreamId{1} << 63;

struct SuballocatorOptions {
  uint64_t quick_most = uint64_t{1} << 20;  // bytes; larger blocks are merged when they are freed
  uint32_t quick_blocks = 64;               // set apart at most, of each class and stream
  uint64_t small_most = uint64_t{1} << 20;  // requests of at most this size share segments
  uint64_t small_segment = uint64_t{2} << 20;   // what those are cut from
  uint64_t large_segment = uint64_t{20} << 20;  // for requests of at most half of it
  uint64_t segment_unit = uint64_t{2} << 20;    // sizes of larger segments are multiples of this
  double most_idle = 0.2;  // of what is reserved, before growing gives back what is idle
};

struct SuballocatorStats {
  uint64_t reserved = 0;       // bytes of all segments
  uint64_t live = 0;           // bytes handed out, in granules of 512
  uint64_t peak_reserved = 0;  // highest so far, each for itself
  uint64_t peak_live = 0;
  uint64_t set_apart = 0;     // free bytes that wait for a request of exactly their size
  uint64_t largest_free = 0;  // the largest request that one listed block would serve
  uint64_t segments = 0;
  uint64_t allocations = 0;  // live
  uint64_t served = 0;       // so far

  // The part of what is reserved that serves nobody; 0 when nothing is reserved.
  double idle() const {
    return reserved == 0 ? 0 : static_cast<double>(reserved - live) / static_cast<double>(reserved);
  }
};

class Suballocator {
 public:
  explicit Suballocator(const SuballocatorOptions& options = {});
  ~Suballocator();
  Suballocator(const Suballocator&) = delete;
  Suballocator& operator=(const Suballocator&) = delete;

  // 0: nothing that is here fits, or 0 or more than kMostBytes were asked.
  uint64_t Allocate(uint64_t bytes, StreamId stream);
  // Also from segments meant for requests of the other kind: for when there are no more to be had.
  uint64_t AllocateAnywhere(uint64_t bytes, StreamId stream);

  // False: no live allocation starts there. What was handed out for one stream may be freed on another,
  // which then has been made to follow it. On its own, which may have been forgotten: then it is everybody's.
  bool Free(uint64_t pointer, StreamId stream = kItsOwn);

  // Bytes of the live allocation that starts there, in granules; 0 when there is none.
  uint64_t SizeOf(uint64_t pointer) const;

  struct Want {
    uint64_t bytes = 0;
    bool large = false;
  };
  // The segment to get when Allocate(bytes) finds nothing, and the least that would do.
  Want SegmentFor(uint64_t bytes) const;
  Want LeastSegmentFor(uint64_t bytes) const;
  void AddSegment(uint64_t base, const Want& got);

  struct Range {
    uint64_t base = 0, bytes = 0;
  };
  // Removes segments of which nothing is handed out, largest first, until they are `enough` bytes
  // together. Work may still be using them: they may go to whoever waits for it, as the driver's free does. None of
  // which a part is of one of the streams `but`, which are sorted.
  std::vector<Range> TakeIdle(uint64_t enough, const std::vector<StreamId>& but = {});
  // For before a segment is got: idle segments of its kind and of at least its size, if with it, still empty,
  // more than `most_idle` of all that is reserved would serve nobody. So a program whose sizes change does not keep what fitted
  // the old ones, and one whose sizes repeat gives nothing back. `but`: as above.
  std::vector<Range> TakeSurplus(const Want& next, const std::vector<StreamId>& but = {});
  // Removes all segments, whatever lives in them.
  std::vector<Range> TakeAll();

  // What `stream` was given so far is over: its free blocks are everybody's. Who finds out without the
  // lock compares FreesOf() before and after: a free in between may have followed more work.
  void Reached(StreamId stream);
  uint64_t FreesOf(StreamId stream) const;
  bool HasFree(StreamId stream) const;
  // The same for a stream of which nothing has to be known any more. Should its number come again, FreesOf() tells
  // the difference.
  void Forget(StreamId stream);
  // Streams other than `but` and nobody that have free blocks, sorted.
  std::vector<StreamId> StreamsWithFree(StreamId but) const;

  // Of how many there are books.
  size_t streams_known() const { return owners_.size() - 1; }

  SuballocatorStats stats() const;

  // Internal when the books contradict each other. Walks everything.
  absl::Status CheckInvariants() const;

 private:
  Owner* OwnerOf(StreamId stream) {
    return latest_->stream == stream ? latest_ : FindOwner(stream);
  }
  Owner* FindOwner(StreamId stream);
  // For who takes from it: nobody where there is none, which is made where it has to be known later that the stream is
  // there.
  Owner* OwnerToTakeFrom(StreamId stream) {
    if (latest_->stream == stream) return latest_;
    return stream < kFirstForeign || owners_.find(stream) != owners_.end() ? FindOwner(stream)
                                                                           : nobody_;
  }
  std::vector<Range> TakeIdle(uint64_t enough, bool small, bool large,
                              const std::vector<StreamId>& but);
  Block* Find(Owner* owner, uint64_t granules, bool large);
  uint64_t HandOut(Block* block, uint64_t granules, StreamId stream);
  uint64_t GoLive(Block* block, StreamId stream);
  void Merge(Block* block);
  bool MergeSetApart(Owner* owner);
  void Drop(Segment* segment);

  Block* NewBlock() {
    if (spare_ == nullptr) AddChunk();
    Block* const block = spare_;
    spare_ = block->next;
    return block;
  }
  void DeleteBlock(Block* block) {
    block->next = spare_;
    spare_ = block;
  }
  void AddChunk();

  const SuballocatorOptions options_;
  const uint64_t quick_granules_, small_granules_;

  std::unordered_map<StreamId, std::unique_ptr<Owner>> owners_;
  Owner* const nobody_;
  Owner* latest_;
  AddressTable blocks_;  // live and set apart, by address
  std::list<Segment> segments_;

  std::vector<std::unique_ptr<Block[]>> chunks_;
  Block* spare_ = nullptr;
  uint64_t frees_ = 0;

  SuballocatorStats stats_;  // but for what is computed on demand
};

}  // namespace gpushare::pool

#endif  // GPUSHARE_POOL_SUBALLOCATOR_H_
