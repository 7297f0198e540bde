// SPDX-License-Identifier: Apache-2.0
#include "quota/pointer_table.h"

#include <algorithm>
#include <mutex>
#include <new>

#include "absl/strings/str_cat.h"

namespace gpushare::quota {

PointerTable::Line PointerTable::none_;

// Device addresses are multiples of 256 bytes to 2 MiB. The product spreads them over its upper half, whose highest bits select
// the shard and whose lowest bits select the line. A driver gives out fresh memory in consecutive steps of 2 MiB. Sixteen such
// neighbours get the sixteen lines of one block, so that a growing program misses the cache and the page tables once for all of
// them. Where three such runs meet in a block, all its lines are full: see After().
inline uint64_t PointerTable::Hash(uint64_t pointer) {
  constexpr int kStepBits = 21;
  constexpr uint64_t kNeighbours = uint64_t{kBlockLines - 1} << kStepBits;
  const uint64_t apart = pointer & ~kNeighbours;
  return ((apart ^ (apart >> 32)) * 0x9e3779b97f4a7c15u) ^
         ((pointer & kNeighbours) << (kLineBit - kStepBits));
}

PointerTable::~PointerTable() {
  for (Shard& shard : shards_) {
    if (shard.first() != &none_) delete[] shard.first();
  }
}

PointerTable::Place PointerTable::Shard::Look(uint64_t pointer, uint64_t hash) const {
  Line* const home = Home(hash);
  Line* line = home;
  // All lines may be marked as passed, so stop after one round.
  do {
    if (line->pointers[0] == pointer) return {line, 0};
    if (line->pointers[1] == pointer) return {line, 1};
    if (line->passed == 0) break;
    line = After(line);
  } while (line != home);
  return {nullptr, 0};
}

inline PointerTable::Place PointerTable::Shard::MakePlaceNear(uint64_t pointer, uint64_t hash) {
  Line* const home = Home(hash);
  const uint32_t slot = home->SlotOf(0);
  const bool is_free = home->pointers[slot] == 0;
  if (count >= limit || home->Holds(pointer)) return {nullptr, 0};
  if (is_free && home->passed == 0) [[likely]]
    return {home, slot};
  Line* const next = After(home);
  const uint32_t slot_there = next->SlotOf(0);
  if (next->passed != 0 || next->Holds(pointer)) return {nullptr, 0};
  if (is_free) return {home, slot};
  if (next->pointers[slot_there] != 0) return {nullptr, 0};
  ++home->passed;
  return {next, slot_there};
}

void PointerTable::Shard::Add(uint64_t pointer, uint64_t hash, const Allocation& allocation) {
  ++count;
  for (Line* line = Home(hash);; line = After(line)) {
    if (line->pointers[0] == 0) return line->Set(0, pointer, allocation);
    if (line->pointers[1] == 0) return line->Set(1, pointer, allocation);
    ++line->passed;
  }
}

void PointerTable::Shard::Remove(Place place, uint64_t hash) {
  for (Line* line = Home(hash); line != place.line; line = After(line)) --line->passed;
  place.line->pointers[place.slot] = 0;
  --count;
}

bool PointerTable::Grow(Shard& shard, size_t lines) {
  Line* fresh = new (std::nothrow) Line[lines];
  if (fresh == nullptr) return false;
  Line* surplus = fresh;
  {
    const std::lock_guard lock(shard.lock);
    if (shard.limit == 0 || shard.size() < lines) {  // else another thread was faster
      Shard grown;
      grown.mask.store(lines - 1, std::memory_order_relaxed);
      grown.lines.store(fresh, std::memory_order_relaxed);
      for (size_t i = 0; i < shard.size(); ++i) {
        const Line& line = shard.first()[i];
        for (uint32_t slot = 0; slot < Line::kSlots; ++slot) {
          const uint64_t pointer = line.pointers[slot];
          if (pointer != 0) grown.Add(pointer, Hash(pointer), line.Get(slot));
        }
      }
      surplus = shard.limit == 0 ? nullptr : shard.first();
      shard.limit = static_cast<uint32_t>(lines * Line::kSlots / 2);
      shard.lines.store(fresh, std::memory_order_relaxed);
      shard.mask.store(lines - 1, std::memory_order_relaxed);
    }
  }
  delete[] surplus;
  return true;
}

void PointerTable::Prefetch(uint64_t pointer) const {
  const uint64_t hash = Hash(pointer);
  const Shard& shard = ShardOf(hash);
  Line* const home = shard.Home(hash);
  __builtin_prefetch(home, /*to write*/ 1);
  __builtin_prefetch(shard.After(home), /*to write*/ 1);
}

// Insert() and Take() have two forms. The fast one does what nearly every call needs (the lock is free, and the pointer's line
// or the next has a free slot or the entry) without a call and nearly without saved registers, since an atomic operation waits
// for earlier stores. It leaves all other cases to the general one.

PointerTable::InsertResult PointerTable::Insert(uint64_t pointer, const Allocation& allocation,
                                                Allocation* replaced) {
  const uint64_t hash = Hash(pointer);
  Shard& shard = ShardOf(hash);
  if (!shard.lock.try_lock()) [[unlikely]]
    return InsertSlow(pointer, allocation, replaced, /*locked=*/false);
  const Place place = shard.MakePlaceNear(pointer, hash);
  if (place.line == nullptr) [[unlikely]]
    return InsertSlow(pointer, allocation, replaced, /*locked=*/true);
  place.line->Set(place.slot, pointer, allocation);
  ++shard.count;
  shard.lock.unlock();
  return InsertResult::kInserted;
}

PointerTable::InsertResult PointerTable::InsertSlow(uint64_t pointer, const Allocation& allocation,
                                                    Allocation* replaced, bool locked) {
  const uint64_t hash = Hash(pointer);
  Shard& shard = ShardOf(hash);
  for (bool can_grow = true;;) {
    size_t lines = kFirstLines;
    {
      if (!locked) shard.lock.lock();
      const std::lock_guard lock(shard.lock, std::adopt_lock);
      locked = false;
      const Place place = shard.Look(pointer, hash);
      if (place.line != nullptr) {
        if (replaced != nullptr) *replaced = place.line->Get(place.slot);
        place.line->Set(place.slot, pointer, allocation);
        return InsertResult::kReplaced;
      }
      // If there is no memory to grow, fill up all slots.
      if (shard.count < shard.limit ||
          (!can_grow && shard.limit != 0 && shard.count < shard.size() * Line::kSlots)) {
        shard.Add(pointer, hash, allocation);
        return InsertResult::kInserted;
      }
      if (shard.limit != 0) lines = 2 * shard.size();
    }
    if (!can_grow) return InsertResult::kNoMemory;
    can_grow = Grow(shard, lines);
  }
}

bool PointerTable::Take(uint64_t pointer, Allocation* allocation) {
  if (pointer == 0) return false;
  const uint64_t hash = Hash(pointer);
  Shard& shard = ShardOf(hash);
  if (!shard.lock.try_lock()) [[unlikely]]
    return TakeSlow(pointer, allocation, /*locked=*/false);
  Line* line = shard.Home(hash);
  uint32_t slot = line->SlotOf(pointer);
  if (line->pointers[slot] != pointer) {
    Line* const home = line;
    line = shard.After(home);
    slot = line->SlotOf(pointer);
    if (line->pointers[slot] != pointer) [[unlikely]]
      return TakeSlow(pointer, allocation, /*locked=*/true);
    --home->passed;
  }
  *allocation = line->Get(slot);
  line->pointers[slot] = 0;
  --shard.count;
  shard.lock.unlock();
  return true;
}

bool PointerTable::TakeSlow(uint64_t pointer, Allocation* allocation, bool locked) {
  const uint64_t hash = Hash(pointer);
  Shard& shard = ShardOf(hash);
  if (!locked) shard.lock.lock();
  const std::lock_guard lock(shard.lock, std::adopt_lock);
  const Place place = shard.Look(pointer, hash);
  if (place.line == nullptr) return false;
  *allocation = place.line->Get(place.slot);
  shard.Remove(place, hash);
  return true;
}

bool PointerTable::Find(uint64_t pointer, Allocation* allocation) const {
  if (pointer == 0) return false;
  const uint64_t hash = Hash(pointer);
  const Shard& shard = ShardOf(hash);
  const std::lock_guard lock(shard.lock);
  const Place place = shard.Look(pointer, hash);
  if (place.line == nullptr) return false;
  *allocation = place.line->Get(place.slot);
  return true;
}

std::vector<std::pair<uint64_t, Allocation>> PointerTable::TakeAllOf(const Account* account) {
  return TakeWhere([account](const Allocation& one) { return one.account == account; });
}

std::vector<std::pair<uint64_t, Allocation>> PointerTable::TakeWhere(
    absl::FunctionRef<bool(const Allocation&)> wanted) {
  std::vector<std::pair<uint64_t, Allocation>> taken;
  TakeWhere(wanted, [&taken](uint64_t pointer, const Allocation& one) {
    taken.emplace_back(pointer, one);
  });
  return taken;
}

void PointerTable::TakeWhere(absl::FunctionRef<bool(const Allocation&)> wanted,
                             absl::FunctionRef<void(uint64_t, const Allocation&)> taken) {
  for (Shard& shard : shards_) {
    // Take a few at a time, so that the lock is held briefly and nothing is allocated under it.
    std::array<uint64_t, 64> found;
    size_t count = 0;
    do {
      count = 0;
      {
        const std::lock_guard lock(shard.lock);
        for (size_t i = 0; i < shard.size() * Line::kSlots && count < found.size(); ++i) {
          const Line& line = shard.first()[i / Line::kSlots];
          const auto slot = static_cast<uint32_t>(i % Line::kSlots);
          if (line.pointers[slot] != 0 && wanted(line.Get(slot))) {
            found[count++] = line.pointers[slot];
          }
        }
      }
      for (size_t i = 0; i < count; ++i) {
        Allocation allocation;
        if (Take(found[i], &allocation)) taken(found[i], allocation);
      }
    } while (count == found.size());
  }
}

void PointerTable::ForEach(absl::FunctionRef<void(uint64_t, const Allocation&)> visit) const {
  for (const Shard& shard : shards_) {
    const std::lock_guard lock(shard.lock);
    for (size_t i = 0; i < shard.size(); ++i) {
      const Line& line = shard.first()[i];
      for (uint32_t slot = 0; slot < Line::kSlots; ++slot) {
        if (line.pointers[slot] != 0) visit(line.pointers[slot], line.Get(slot));
      }
    }
  }
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
  ForEach([&](uint64_t, const Allocation& one) {
    if (one.account == account) total += one.bytes;
  });
  return total;
}

size_t PointerTable::LongestWay() const {
  size_t longest = 0;
  for (const Shard& shard : shards_) {
    const std::lock_guard lock(shard.lock);
    for (size_t i = 0; i < shard.size(); ++i) {
      Line* const line = shard.first() + i;
      for (const uint64_t pointer : line->pointers) {
        if (pointer == 0) continue;
        size_t way = 0;
        for (Line* by = shard.Home(Hash(pointer)); by != line; by = shard.After(by)) ++way;
        longest = std::max(longest, way);
      }
    }
  }
  return longest;
}

absl::Status PointerTable::CheckInvariants() const {
  for (size_t s = 0; s < shards_.size(); ++s) {
    const Shard& shard = shards_[s];
    const std::lock_guard lock(shard.lock);
    size_t count = 0;
    std::vector<uint32_t> passed(shard.size());
    for (size_t i = 0; i < shard.size(); ++i) {
      const Line* const line = shard.first() + i;
      for (uint32_t slot = 0; slot < Line::kSlots; ++slot) {
        const uint64_t pointer = line->pointers[slot];
        if (pointer == 0) continue;
        ++count;
        const uint64_t hash = Hash(pointer);
        const Place place = shard.Look(pointer, hash);
        if (&ShardOf(hash) != &shard || place.line != line || place.slot != slot) {
          return absl::InternalError(absl::StrCat("pointer table: entry ", pointer, " of shard ", s,
                                                  " is not where its pointer leads"));
        }
        for (Line* by = shard.Home(hash); by != line; by = shard.After(by)) {
          ++passed[static_cast<size_t>(by - shard.first())];
        }
      }
    }
    if (count != shard.count) {
      return absl::InternalError(absl::StrCat("pointer table: shard ", s, " counts ", shard.count,
                                              " entries and holds ", count));
    }
    for (size_t i = 0; i < passed.size(); ++i) {
      if (shard.first()[i].passed != passed[i]) {
        return absl::InternalError(absl::StrCat("pointer table: line ", i, " of shard ", s, " was ",
                                                "passed by ", passed[i], " entries and counts ",
                                                shard.first()[i].passed));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace gpushare::quota
