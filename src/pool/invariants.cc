// SPDX-License-Identifier: Apache-2.0
// The invariants of a Suballocator, which hold between any two calls.
#include <set>

#include "absl/strings/str_cat.h"
#include "pool/owner.h"
#include "pool/suballocator.h"

namespace gpushare::pool {
namespace {

template <typename... Parts>
absl::Status Broken(const Parts&... parts) {
  return absl::InternalError(absl::StrCat("suballocator: ", parts...));
}

}  // namespace

absl::Status Suballocator::CheckInvariants() const {
  // Every free block is in exactly one list of its owner.
  std::set<const Block*> listed, apart;
  for (const auto& [stream, owner] : owners_) {
    if (owner->stream != stream) return Broken("stream ", stream, " has another's lists");
    uint64_t granules = 0, set_apart = 0;
    for (const bool large : {false, true}) {
      for (uint32_t at = 0; at < kClasses; ++at) {
        const Block* const head = owner->lists[large].First(at);
        if (head == nullptr) break;
        if (ClassOf(head->granules) < at)
          return Broken("class ", at, " begins with a lesser block");
        at = ClassOf(head->granules);
        const Block* previous = nullptr;
        for (const Block* block = head; block != nullptr; block = block->next) {
          if (block->previous != previous || block->owner != owner.get() ||
              block->state != Block::State::kListed || block->segment->large != large ||
              ClassOf(block->granules) != at || !listed.insert(block).second) {
            return Broken("block ", block->address, " is listed wrongly");
          }
          granules += block->granules;
          previous = block;
        }
      }
    }
    for (size_t at = 0; at < owner->set_apart.size(); ++at) {
      uint32_t count = 0;
      for (const Block* block = owner->set_apart[at].head; block != nullptr; block = block->next) {
        if (block->owner != owner.get() || block->state != Block::State::kQuick ||
            ClassOf(block->granules) != at || !apart.insert(block).second) {
          return Broken("block ", block->address, " is set apart wrongly");
        }
        set_apart += block->granules;
        ++count;
      }
      if (count != owner->set_apart[at].count) return Broken("class ", at, " is miscounted");
      if (count != 0 && (owner->some_apart[at / 64] >> at % 64 & 1) == 0) {
        return Broken("class ", at, " would not be merged");
      }
    }
    if (granules + set_apart != owner->free_granules || set_apart != owner->set_apart_granules) {
      return Broken("the free bytes of stream ", stream, " are miscounted");
    }
  }
  // The blocks of a segment cover it without gaps, and their states agree with the lists and tables.
  uint64_t reserved = 0, live = 0, allocations = 0;
  size_t entries = 0;
  for (const Segment& segment : segments_) {
    uint64_t address = segment.base;
    uint32_t in_segment = 0;
    const Block* before = nullptr;
    for (const Block* block = segment.first; block != nullptr; block = block->after) {
      if (block->address != address || block->before != before || block->segment != &segment ||
          block->granules == 0) {
        return Broken("segment ", segment.base, " has a gap at ", address);
      }
      const bool known = blocks_.Find(block->address) == block;
      switch (block->state) {
        case Block::State::kLive:
          live += block->granules * kGranule;
          ++allocations;
          ++in_segment;
          if (!known) return Broken("live block ", address, " cannot be found");
          break;
        case Block::State::kQuick:
          if (!known || apart.erase(block) == 0) return Broken("block ", address, " is lost");
          break;
        case Block::State::kListed:
          if (known || listed.erase(block) == 0) return Broken("block ", address, " is not listed");
          if (before != nullptr && before->state == Block::State::kListed &&
              before->owner == block->owner) {
            return Broken("block ", address, " was not merged with the one before it");
          }
          break;
      }
      entries += known ? 1 : 0;
      address += block->granules * kGranule;
      before = block;
    }
    if (address != segment.base + segment.bytes / kGranule * kGranule) {
      return Broken("segment ", segment.base, " is not covered");
    }
    if (in_segment != segment.live)
      return Broken("segment ", segment.base, " miscounts its blocks");
    reserved += segment.bytes;
  }
  if (!listed.empty() || !apart.empty()) return Broken("a free block lies in no segment");
  if (entries != blocks_.size()) return Broken("an address leads to a block that is gone");
  if (reserved != stats_.reserved || live != stats_.live || allocations != stats_.allocations) {
    return Broken("the totals are wrong");
  }
  return absl::OkStatus();
}

}  // namespace gpushare::pool
