// SPDX-License-Identifier: Apache-2.0
#include "pool/suballocator.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace gpushare::pool {
namespace {

constexpr size_t kChunkBlocks = 64;
// How many of the blocks set apart in a class are compared with the requested size.
constexpr int kQuickLooks = 3;

uint64_t RoundUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Suballocator::Suballocator(const SuballocatorOptions& options)
    : options_(options),
      quick_granules_(Granules(std::min(options.quick_most, kMostBytes))),
      small_granules_(Granules(std::min(options.small_most, kMostBytes))),
      nobody_(owners_.emplace(kNobody, std::make_unique<Owner>(kNobody, quick_granules_))
                  .first->second.get()),
      latest_(nobody_) {}

Suballocator::~Suballocator() = default;

// ---- Allocation ----

Owner* Suballocator::FindOwner(StreamId stream) {
  const auto at = owners_.find(stream);
  if (at != owners_.end()) return latest_ = at->second.get();
  auto owner = std::make_unique<Owner>(stream, quick_granules_);
  Owner* const made = owner.get();
  owners_.emplace(stream, std::move(owner));
  return latest_ = made;
}

uint64_t Suballocator::Allocate(uint64_t bytes, StreamId stream) {
  if (bytes == 0 || bytes > kMostBytes) return 0;
  const uint64_t granules = Granules(bytes);
  Owner* const owner = OwnerToTakeFrom(stream);
  if (granules <= quick_granules_) {
    Owner::SetApart& quick = owner->set_apart[ClassOf(granules)];
    int looks = kQuickLooks;
    for (Block** at = &quick.head; *at != nullptr && looks != 0; at = &(*at)->next, --looks) {
      Block* const block = *at;
      if (block->granules != granules) continue;
      *at = block->next;
      --quick.count;
      owner->set_apart_granules -= granules;
      owner->free_granules -= granules;
      owner->Hit();
      return GoLive(block, stream);
    }
  }
  const bool large = granules > small_granules_;
  Block* block = Find(owner, granules, large);
  if (block == nullptr) {
    bool merged = MergeSetApart(owner);
    if (owner != nobody_ && MergeSetApart(nobody_)) merged = true;
    if (merged) block = Find(owner, granules, large);
  }
  return block == nullptr ? 0 : HandOut(block, granules, stream);
}

uint64_t Suballocator::AllocateAnywhere(uint64_t bytes, StreamId stream) {
  if (const uint64_t address = Allocate(bytes, stream)) return address;
  if (bytes == 0 || bytes > kMostBytes) return 0;
  const uint64_t granules = Granules(bytes);
  Block* const block = Find(OwnerToTakeFrom(stream), granules, granules <= small_granules_);
  return block == nullptr ? 0 : HandOut(block, granules, stream);
}

Block* Suballocator::Find(Owner* owner, uint64_t granules, bool large) {
  Block* const block = owner->lists[large].Find(granules);
  return block != nullptr || owner == nobody_ ? block : nobody_->lists[large].Find(granules);
}

uint64_t Suballocator::HandOut(Block* block, uint64_t granules, StreamId stream) {
  // Operations that may throw come first: the spare block and the table entry.
  Block* const rest = block->granules > granules ? NewBlock() : nullptr;
  try {
    blocks_.Add(block->address, block);
  } catch (...) {
    if (rest != nullptr) DeleteBlock(rest);
    throw;
  }
  Owner* const owner = block->owner;
  FreeLists& lists = owner->lists[block->segment->large];
  lists.Remove(block);
  if (rest != nullptr) {
    rest->address = block->address + granules * kGranule;
    rest->granules = block->granules - granules;
    rest->before = block;
    rest->after = block->after;
    if (rest->after != nullptr) rest->after->before = rest;
    rest->owner = owner;
    rest->segment = block->segment;
    rest->state = Block::State::kListed;
    lists.Add(rest);
    block->after = rest;
    block->granules = granules;
  }
  owner->free_granules -= granules;
  return GoLive(block, stream);
}

uint64_t Suballocator::GoLive(Block* block, StreamId stream) {
  block->state = Block::State::kLive;
  block->stream = stream;
  ++block->segment->live;
  ++stats_.allocations;
  ++stats_.served;
  stats_.live += block->granules * kGranule;
  stats_.peak_live = std::max(stats_.peak_live, stats_.live);
  return block->address;
}

// ---- Free ----

bool Suballocator::Free(uint64_t pointer, StreamId stream) {
  const AddressTable::Place place = blocks_.Look(pointer);
  Block* const block = place.block;
  if (block == nullptr || block->state != Block::State::kLive) return false;
  Owner* owner = nobody_;
  if (stream == kItsOwn && block->stream >= kFirstForeign) {
    // Every stream may reuse it.
  } else if (stream != kItsOwn) {
    owner = OwnerOf(stream);
  } else if (block->stream == latest_->stream) {
    owner = latest_;
  } else if (const auto own = owners_.find(block->stream); own != owners_.end()) {
    owner = own->second.get();
  }
  const uint64_t granules = block->granules;
  block->owner = owner;
  owner->frees = ++frees_;
  owner->free_granules += granules;
  --block->segment->live;
  --stats_.allocations;
  stats_.live -= granules * kGranule;
  if (granules <= quick_granules_ && owner->SetsApart()) {
    const uint32_t at = ClassOf(granules);
    Owner::SetApart& quick = owner->set_apart[at];
    if (quick.count < options_.quick_blocks) {
      owner->some_apart[at / 64] |= uint64_t{1} << at % 64;
      block->state = Block::State::kQuick;
      block->next = quick.head;
      quick.head = block;
      ++quick.count;
      owner->set_apart_granules += granules;
      return true;
    }
  }
  blocks_.RemoveAt(place.slot);
  Merge(block);
  return true;
}

uint64_t Suballocator::SizeOf(uint64_t pointer) const {
  const Block* const block = blocks_.Find(pointer);
  return block == nullptr || block->state != Block::State::kLive ? 0 : block->granules * kGranule;
}

// Merges a free block with neighbours that are listed for the same owner, and lists the result.
void Suballocator::Merge(Block* block) {
  FreeLists& lists = block->owner->lists[block->segment->large];
  const auto joins = [block](const Block* other) {
    // Both conditions are evaluated without a branch, since each is as good as random.
    return other != nullptr &&
           ((other->state == Block::State::kListed) & (other->owner == block->owner)) != 0;
  };
  Block* const before = block->before;
  Block* const after = block->after;
  if (joins(after)) {
    lists.Remove(after);
    block->granules += after->granules;
    block->after = after->after;
    if (block->after != nullptr) block->after->before = block;
    DeleteBlock(after);
  }
  if (joins(before)) {
    lists.Remove(before);
    before->granules += block->granules;
    before->after = block->after;
    if (before->after != nullptr) before->after->before = before;
    DeleteBlock(block);
    block = before;
  }
  block->state = Block::State::kListed;
  lists.Add(block);
}

bool Suballocator::MergeSetApart(Owner* owner) {
  if (owner->set_apart_granules == 0) return false;
  for (size_t word = 0; word < owner->some_apart.size(); ++word) {
    for (uint64_t bits = std::exchange(owner->some_apart[word], 0); bits != 0; bits &= bits - 1) {
      Owner::SetApart& quick =
          owner->set_apart[64 * word + static_cast<size_t>(std::countr_zero(bits))];
      for (Block* block = std::exchange(quick.head, nullptr); block != nullptr;) {
        Block* const next = block->next;
        blocks_.Remove(block->address);
        Merge(block);
        block = next;
      }
      owner->Missed(static_cast<int32_t>(std::exchange(quick.count, 0)));
    }
  }
  owner->set_apart_granules = 0;
  return true;
}

// ---- Streams ----

void Suballocator::Reached(StreamId stream) {
  const auto at = owners_.find(stream);
  if (at == owners_.end() || at->second.get() == nobody_) return;
  Owner* const owner = at->second.get();
  MergeSetApart(owner);
  owner->free_granules = 0;
  for (FreeLists& lists : owner->lists) {
    while (Block* const block = lists.First()) {
      lists.Remove(block);
      block->owner = nobody_;
      nobody_->free_granules += block->granules;
      Merge(block);
    }
  }
}

void Suballocator::Forget(StreamId stream) {
  if (stream == kNobody) return;
  Reached(stream);
  if (latest_->stream == stream) latest_ = nobody_;
  owners_.erase(stream);
}

uint64_t Suballocator::FreesOf(StreamId stream) const {
  const auto at = owners_.find(stream);
  return at == owners_.end() ? 0 : at->second->frees;
}

bool Suballocator::HasFree(StreamId stream) const {
  const auto at = owners_.find(stream);
  return at != owners_.end() && at->second->free_granules != 0;
}

std::vector<StreamId> Suballocator::StreamsWithFree(StreamId but) const {
  std::vector<StreamId> streams;
  for (const auto& [stream, owner] : owners_) {
    if (stream != but && stream != kNobody && owner->free_granules != 0) streams.push_back(stream);
  }
  std::sort(streams.begin(), streams.end());
  return streams;
}

// ---- Segments ----

Suballocator::Want Suballocator::SegmentFor(uint64_t bytes) const {
  if (bytes <= options_.small_most) {
    return {std::max(options_.small_segment, RoundUp(bytes, kGranule)), false};
  }
  if (bytes <= options_.large_segment / 2) return {options_.large_segment, true};
  return {bytes > kMostBytes ? bytes : RoundUp(bytes, options_.segment_unit), true};
}

Suballocator::Want Suballocator::LeastSegmentFor(uint64_t bytes) const {
  const bool large = bytes > options_.small_most;
  return {bytes > kMostBytes ? bytes : RoundUp(bytes, large ? options_.least_unit : kGranule),
          large};
}

void Suballocator::AddSegment(uint64_t base, const Want& got) {
  Block* const block = NewBlock();
  try {
    segments_.push_back({.base = base, .bytes = got.bytes, .first = block, .large = got.large});
  } catch (...) {
    DeleteBlock(block);
    throw;
  }
  block->address = base;
  block->granules = got.bytes / kGranule;
  block->before = block->after = nullptr;
  block->owner = nobody_;
  block->segment = &segments_.back();
  block->state = Block::State::kListed;
  nobody_->lists[got.large].Add(block);
  nobody_->free_granules += block->granules;
  stats_.reserved += got.bytes;
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
}

void Suballocator::Drop(Segment* segment) {
  for (Block* block = segment->first; block != nullptr;) {
    Block* const after = block->after;
    if (block->state == Block::State::kLive) {
      blocks_.Remove(block->address);
      --stats_.allocations;
      stats_.live -= block->granules * kGranule;
    } else {
      block->owner->lists[segment->large].Remove(block);
      block->owner->free_granules -= block->granules;
    }
    DeleteBlock(block);
    block = after;
  }
  stats_.reserved -= segment->bytes;
}

Suballocator::Range Suballocator::RangeOf(const Segment& segment) const {
  Range range{segment.base, segment.bytes, segment.large};
  for (const Block* block = segment.first; block != nullptr; block = block->after) {
    if (block->owner != nobody_) range.of_streams = true;
  }
  return range;
}

std::vector<Suballocator::Range> Suballocator::TakeIdle(uint64_t enough,
                                                        const std::vector<StreamId>& but) {
  return TakeIdle(enough, /*small=*/true, /*large=*/true, but);
}

std::vector<Suballocator::Range> Suballocator::TakeIdle(uint64_t enough, bool small, bool large,
                                                        const std::vector<StreamId>& but) {
  const auto spared = [&but](const Segment& segment) {
    if (but.empty()) return false;
    for (const Block* block = segment.first; block != nullptr; block = block->after) {
      if (std::binary_search(but.begin(), but.end(), block->owner->stream)) return true;
    }
    return false;
  };
  std::vector<std::pair<uint64_t, std::list<Segment>::iterator>> idle;
  for (auto at = segments_.begin(); at != segments_.end(); ++at) {
    if (at->live != 0 || !(at->large ? large : small) || spared(*at)) continue;
    idle.emplace_back(at->bytes, at);
  }
  std::vector<Range> taken;
  if (idle.empty() || enough == 0) return taken;
  taken.reserve(idle.size());
  std::stable_sort(idle.begin(), idle.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [stream, owner] : owners_) MergeSetApart(owner.get());
  uint64_t bytes = 0;
  for (const auto& [size, at] : idle) {
    taken.push_back(RangeOf(*at));
    bytes += at->bytes;
    Drop(&*at);
    segments_.erase(at);
    if (bytes >= enough) break;
  }
  return taken;
}

Suballocator::Range Suballocator::TakeOneIdle() {
  const auto at = std::find_if(segments_.begin(), segments_.end(),
                               [](const Segment& segment) { return segment.live == 0; });
  if (at == segments_.end()) return {};
  for (const auto& [stream, owner] : owners_) MergeSetApart(owner.get());
  const Range taken{at->base, at->bytes};
  Drop(&*at);
  segments_.erase(at);
  return taken;
}

std::vector<Suballocator::Range> Suballocator::TakeSurplus(const Want& next,
                                                           const std::vector<StreamId>& but) {
  const double reserved = static_cast<double>(stats_.reserved) + static_cast<double>(next.bytes);
  const double idle = reserved - static_cast<double>(stats_.live);
  if (idle <= options_.most_idle * reserved) return {};
  return TakeIdle(next.bytes, !next.large, next.large, but);
}

std::vector<Suballocator::Range> Suballocator::TakeAll() {
  std::vector<Range> taken;
  taken.reserve(segments_.size());
  for (const auto& [stream, owner] : owners_) MergeSetApart(owner.get());
  while (!segments_.empty()) {
    Segment& segment = segments_.front();
    taken.push_back(RangeOf(segment));
    Drop(&segment);
    segments_.pop_front();
  }
  return taken;
}

SuballocatorStats Suballocator::stats() const {
  SuballocatorStats stats = stats_;
  stats.segments = segments_.size();
  for (const auto& [stream, owner] : owners_) {
    stats.set_apart += owner->set_apart_granules * kGranule;
    for (const FreeLists& lists : owner->lists) {
      stats.largest_free = std::max(stats.largest_free, lists.LargestGranules() * kGranule);
    }
  }
  return stats;
}

// ---- Blocks ----

void Suballocator::AddChunk() {
  chunks_.push_back(std::make_unique<Block[]>(kChunkBlocks));
  for (size_t i = 0; i < kChunkBlocks; ++i) DeleteBlock(&chunks_.back()[i]);
}

}  // namespace gpushare::pool
