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
// Stream order: memory that is freed on a stream may be reused at once by work that is launched on that
// stream afterwards. Other streams may reuse it only when the work that the first stream had at the free is
// over. The caller that finds this out (by a query or a synchronise) calls Reached(stream).
//
// Free blocks. A freed block of up to `quick_most` bytes is set apart for the next request of exactly its
// size: a program that repeats itself, like a training loop, gets its blocks back in a few instructions.
// Larger ones are merged with their free neighbours and listed by size class. A request takes the first
// block of the least class that surely fits and returns the rest. Before a request fails, blocks that are
// set apart are merged as well. Requests of up to 1 MiB are cut from segments of their own, so that a
// small, long-lived allocation does not hold a large segment.
//
// Cost: constant, except Reached(), TakeIdle() and a request that has to merge blocks set apart; docs/memory.md has figures.
// Host memory: about 100 bytes for each block, and 12 KiB for each stream until Forget(). For streams whose end is reported
// this begins at the first allocation, for foreign streams at the first free in their order.
//
// Threading: not thread-safe; the caller holds a lock, but not across calls of the driver. Errors: throws
// std::bad_alloc if host memory runs out, and then changes nothing.
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

// Any number that identifies a stream. kNobody stands for no stream: every stream may reuse the memory at once.
using StreamId = uint64_t;
inline constexpr StreamId kNobody = 0;
inline constexpr StreamId kItsOwn =
    UINT64_MAX;  // in Free(): the stream that the block was allocated for
// Numbers from here on are foreign streams, whose end is not reported: a block freed as kItsOwn for one
// of them may be reused by every stream.
inline constexpr StreamId kFirstForeign = StreamId{1} << 63;

struct SuballocatorOptions {
  uint64_t quick_most = uint64_t{1} << 20;  // bytes; larger blocks are merged when they are freed
  uint32_t quick_blocks = 64;               // most blocks set apart for each class and stream
  uint64_t small_most = uint64_t{1} << 20;  // requests of at most this size share segments
  uint64_t small_segment = uint64_t{2} << 20;  // size of a segment for small requests
  uint64_t large_segment = uint64_t{20}
                           << 20;  // size of a segment for requests of at most half of it
  uint64_t segment_unit = uint64_t{2} << 20;  // sizes of larger segments are multiples of this
  // The same where memory is short; at least 512, and on a card what it hands out.
  uint64_t least_unit = 512;
  double most_idle =
      0.2;  // idle part of the reserved bytes above which growing first gives idle segments back
};

struct SuballocatorStats {
  uint64_t reserved = 0;       // bytes of all segments
  uint64_t live = 0;           // allocated bytes, rounded up to granules of 512
  uint64_t peak_reserved = 0;  // highest values so far; not necessarily at the same time
  uint64_t peak_live = 0;
  uint64_t set_apart = 0;     // free bytes that wait for a request of exactly their size
  uint64_t largest_free = 0;  // the largest request that one listed block would serve
  uint64_t segments = 0;
  uint64_t allocations = 0;  // live
  uint64_t served = 0;       // so far

  // The part of the reserved bytes that is not allocated; 0 if nothing is reserved.
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

  // Returns 0 if no free block fits, or if `bytes` is 0 or more than kMostBytes.
  uint64_t Allocate(uint64_t bytes, StreamId stream);
  // Allocate(), also from segments meant for the other kind of requests. For when no more segments can be had.
  uint64_t AllocateAnywhere(uint64_t bytes, StreamId stream);

  // Returns false if no live allocation starts at `pointer`. A block may be freed on another stream than
  // the one it was allocated for, if that stream was made to follow it. kItsOwn: frees it on its own
  // stream; if that was forgotten, every stream may reuse it.
  bool Free(uint64_t pointer, StreamId stream = kItsOwn);

  // Size of the live allocation that starts at `pointer`, in bytes rounded up to granules; 0 if there is none.
  uint64_t SizeOf(uint64_t pointer) const;

  struct Want {
    uint64_t bytes = 0;
    bool large = false;
  };
  // The segment to get if Allocate(bytes) returns 0, and the smallest one that would do.
  Want SegmentFor(uint64_t bytes) const;
  Want LeastSegmentFor(uint64_t bytes) const;
  void AddSegment(uint64_t base, const Want& got);

  struct Range {
    uint64_t base = 0, bytes = 0;
    bool large = false;       // as of Want
    bool of_streams = false;  // what streams freed in it they may use still
  };
  // Removes segments without live blocks, largest first, until they add up to `enough` bytes. Work on the device may still use
  // them, so they may only be given to a call that waits for it, as the driver's free does. Leaves out segments with free blocks
  // of the streams `but`, which is sorted.
  std::vector<Range> TakeIdle(uint64_t enough, const std::vector<StreamId>& but = {});
  // Any one of them, without using host memory; of 0 bytes if there is none.
  Range TakeOneIdle();
  // Call it before getting the segment `next`: removes idle segments of the same kind and at least its size if otherwise more
  // than `most_idle` of all reserved bytes would be idle. So a program whose sizes change does not keep segments for the old
  // sizes, and one whose sizes repeat gives nothing back. `but`: as in TakeIdle().
  std::vector<Range> TakeSurplus(const Want& next, const std::vector<StreamId>& but = {});
  // Removes all segments, with the live blocks in them.
  std::vector<Range> TakeAll();

  // The work of `stream` is over: every stream may use its free blocks. A caller that waits for that
  // without the lock compares FreesOf() before and after: a free in between may follow more work.
  void Reached(StreamId stream);
  uint64_t FreesOf(StreamId stream) const;
  bool HasFree(StreamId stream) const;
  // Reached(), and drops the stream's books. If its number is used again, FreesOf() differs.
  void Forget(StreamId stream);
  // The streams that have free blocks, without `but` and kNobody, sorted.
  std::vector<StreamId> StreamsWithFree(StreamId but) const;

  // The number of streams with books.
  size_t streams_known() const { return owners_.size() - 1; }

  SuballocatorStats stats() const;

  // Internal if the books contradict each other. Visits every block.
  absl::Status CheckInvariants() const;

 private:
  Owner* OwnerOf(StreamId stream) {
    return latest_->stream == stream ? latest_ : FindOwner(stream);
  }
  Owner* FindOwner(StreamId stream);
  // The owner to allocate from: the stream's, which is created for a stream whose end is reported; else kNobody's.
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
  Range RangeOf(const Segment& segment) const;
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
  AddressTable blocks_;  // live blocks and those set apart
  std::list<Segment> segments_;

  std::vector<std::unique_ptr<Block[]>> chunks_;
  Block* spare_ = nullptr;
  uint64_t frees_ = 0;

  SuballocatorStats stats_;  // without the fields that stats() computes
};

}  // namespace gpushare::pool

#endif  // GPUSHARE_POOL_SUBALLOCATOR_H_
