// SPDX-License-Identifier: Apache-2.0
#include "quota/pointer_table.h"

#include <algorithm>
#include <mutex>
#include <new>

#include "absl/strings/str_cat.h"

namespace gpushare::quota {

// Device addresses are multiples of 256 bytes to 2 MiB: the product spreads them over its high bits,
// which choose the shard first and the slot next.
uint64_t PointerTable::Hash(uint64_t pointer) {
  return (pointer ^ (pointer >> 32)) * 0x9e3779b97f4a7c15u;
}

size_t PointerTable::Home(uint64_t hash, uint32_t bits) {
  return static_cast<size_t>((hash << kShardBits) >> (64 - bits));
}

PointerTable::~PointerTable() {
  for (Shard& shard : shards_) delete[] shard.slots;
}

PointerTable::Slot* PointerTable::Shard::Probe(uint64_t pointer, uint64_t hash) const {
  const size_t mask = capacity() - 1;
  size_t at = Home(hash, bits);
  while (slots[at].pointer != pointer && slots[at].pointer != 0) at = (at + 1) & mask;
  return &slots[at];
}

// Closes the gap instead of leaving a mark, so that probes stay short whatever came and went.
void PointerTable::Shard::Remove(Slot* slot) {
  const size_t mask = capacity() - 1;
  size_t gap = static_cast<size_t>(slot - slots);
  for (size_t at = (gap + 1) & mask; slots[at].pointer != 0; at = (at + 1) & mask) {
    const size_t home = Home(Hash(slots[at].pointer), bits);
    if (((at - home) & mask) >= ((at - gap) & mask)) {
      slots[gap] = slots[at];
      gap = at;
    }
  }
  slots[gap].pointer = 0;
  --count;
}

bool PointerTable::Grow(Shard& shard, uint32_t bits) {
  Slot* fresh = new (std::nothrow) Slot[size_t{1} << bits];
  if (fresh == nullptr) return false;
  Slot* surplus = fresh;
  {
    const std::lock_guard lock(shard.lock);
    if (shard.capacity() < (size_t{1} << bits)) {  // else another thread was first
      Shard grown;
      grown.bits = bits;
      grown.slots = fresh;
      for (size_t i = 0; i < shard.capacity(); ++i) {
        const Slot& slot = shard.slots[i];
        if (slot.pointer != 0) *grown.Probe(slot.pointer, Hash(slot.pointer)) = slot;
      }
      surplus = shard.slots;
      shard.slots = fresh;
      shard.bits = bits;
    }
  }
  delete[] surplus;
  return true;
}

PointerTable::InsertResult PointerTable::Insert(uint64_t pointer, const Allocation& allocation,
                                                Allocation* replaced) {
  const uint64_t hash = Hash(pointer);
  Shard& shard = ShardOf(hash);
  bool can_grow = true;
  while (true) {
    uint32_t bits = kFirstBits;
    {
      const std::lock_guard lock(shard.lock);
      const size_t capacity = shard.capacity();
      // Without memory to grow, it goes on to the last free slot but one: a probe ends at a free one.
      if (4 * (shard.count + 1) <= 3 * capacity || (!can_grow && shard.count + 1 < capacity)) {
        Slot* slot = shard.Probe(pointer, hash);
        const bool present = slot->pointer != 0;
        if (present) {
          if (replaced != nullptr) *replaced = slot->allocation;
        } else {
          slot->pointer = pointer;
          ++shard.count;
        }
        slot->allocation = allocation;
        return present ? InsertResult::kReplaced : InsertResult::kInserted;
      }
      if (capacity != 0) bits = shard.bits + 1;
    }
    if (!can_grow) return InsertResult::kNoMemory;
    can_grow = Grow(shard, bits);
  }
}

bool PointerTable::Take(uint64_t pointer, Allocation* allocation) {
  if (pointer == 0) return false;
  const uint64_t hash = Hash(pointer);
  Shard& shard = ShardOf(hash);
  const std::lock_guard lock(shard.lock);
  if (shard.slots == nullptr) return false;
  Slot* slot = shard.Probe(pointer, hash);
  if (slot->pointer == 0) return false;
  *allocation = slot->allocation;
  shard.Remove(slot);
  return true;
}

bool PointerTable::Find(uint64_t pointer, Allocation* allocation) const {
  if (pointer == 0) return false;
  const uint64_t hash = Hash(pointer);
  const Shard& shard = ShardOf(hash);
  const std::lock_guard lock(shard.lock);
  if (shard.slots == nullptr) return false;
  const Slot* slot = shard.Probe(pointer, hash);
  if (slot->pointer == 0) return false;
  *allocation = slot->allocation;
  return true;
}

std::vector<std::pair<uint64_t, Allocation>> PointerTable::TakeAllOf(const Account* account) {
  std::vector<std::pair<uint64_t, Allocation>> taken;
  for (Shard& shard : shards_) {
    // A few at a time, so that the lock is held shortly and nothing is allocated under it.
    std::array<uint64_t, 64> found;
    size_t count = 0;
    do {
      count = 0;
      {
        const std::lock_guard lock(shard.lock);
        for (size_t i = 0; i < shard.capacity() && count < found.size(); ++i) {
          const Slot& slot = shard.slots[i];
          if (slot.pointer != 0 && slot.allocation.account == account) {
            found[count++] = slot.pointer;
          }
        }
      }
      for (size_t i = 0; i < count; ++i) {
        Allocation allocation;
        if (Take(found[i], &allocation)) taken.emplace_back(found[i], allocation);
      }
    } while (count == found.size());
  }
  return taken;
}

size_t PointerTable::size() const {
  size_t total = 0;
  for (const Shard& shard : shards_) {
    const std::lock_guard lock(shard.lock);
    total += shard.count;
  }
  return total;
}

uint64_t PointerTable::BytesOf(const Account* account) const {
  uint64_t total = 0;
  for (const Shard& shard : shards_) {
    const std::lock_guard lock(shard.lock);
    for (size_t i = 0; i < shard.capacity(); ++i) {
      const Slot& slot = shard.slots[i];
      if (slot.pointer != 0 && slot.allocation.account == account) total += slot.allocation.bytes;
    }
  }
  return total;
}

absl::Status PointerTable::CheckInvariants() const {
  for (size_t s = 0; s < shards_.size(); ++s) {
    const Shard& shard = shards_[s];
    const std::lock_guard lock(shard.lock);
    size_t count = 0;
    for (size_t i = 0; i < shard.capacity(); ++i) {
      const Slot& slot = shard.slots[i];
      if (slot.pointer == 0) continue;
      ++count;
      const uint64_t hash = Hash(slot.pointer);
      if (&ShardOf(hash) != &shard || shard.Probe(slot.pointer, hash) != &slot) {
        return absl::InternalError(absl::StrCat("pointer table: entry ", slot.pointer, " of shard ",
                                                s, " is not where its pointer leads"));
      }
    }
    if (count != shard.count) {
      return absl::InternalError(absl::StrCat("pointer table: shard ", s, " counts ", shard.count,
                                              " entries and holds ", count));
    }
    if (count != 0 && count >= shard.capacity()) {
      return absl::InternalError(absl::StrCat("pointer table: shard ", s, " has no free slot"));
    }
  }
  return absl::OkStatus();
}

void PointerTable::PrepareFork() {
  for (Shard& shard : shards_) shard.lock.lock();
}

void PointerTable::AfterFork() {
  for (Shard& shard : shards_) shard.lock.unlock();
}

}  // namespace gpushare::quota
