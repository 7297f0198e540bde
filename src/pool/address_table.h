// SPDX-License-Identifier: Apache-2.0
// Finds a block by the address that was handed out: open addressing with linear probes, at most half full. A
// removal moves later entries back, so that a table which is used for weeks stays as fast as a new one.
//
// A hash table of our own because each allocation and free goes through it once: three instructions of
// hashing and as a rule one cache line.
#ifndef GPUSHARE_POOL_ADDRESS_TABLE_H_
#define GPUSHARE_POOL_ADDRESS_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pool/block.h"
#include "pool/size_class.h"

namespace gpushare::pool {

class AddressTable {
 public:
  AddressTable() : slots_(kFirstSlots) {}

  Block* Find(uint64_t address) const {
    for (size_t at = Home(address);; at = (at + 1) & mask()) {
      if (slots_[at].address == address) return slots_[at].block;
      if (slots_[at].block == nullptr) return nullptr;
    }
  }

  // Of an address that is not here. May throw std::bad_alloc and changes nothing then.
  void Add(uint64_t address, Block* block) {
    if (2 * (count_ + 1) > slots_.size()) Grow();
    Put(slots_, address, block);
    ++count_;
  }

  // Where the address is, for RemoveAt(); good until something is added or removed. The block is null where it is
  // not here.
  struct Place {
    size_t slot;
    Block* block;
  };
  Place Look(uint64_t address) const {
    for (size_t at = Home(address);; at = (at + 1) & mask()) {
      if (slots_[at].address == address || slots_[at].block == nullptr)
        return {at, slots_[at].block};
    }
  }

  // Of an address that is here.
  void Remove(uint64_t address) {
    size_t hole = Home(address);
    while (slots_[hole].address != address || slots_[hole].block == nullptr) {
      hole = (hole + 1) & mask();
    }
    RemoveAt(hole);
  }
  void RemoveAt(size_t hole) {
    for (size_t at = (hole + 1) & mask(); slots_[at].block != nullptr; at = (at + 1) & mask()) {
      // It may move if its home does not lie between the hole and it.
      if (((at - Home(slots_[at].address)) & mask()) >= ((at - hole) & mask())) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    slots_[hole] = {};
    --count_;
  }

  size_t size() const { return count_; }

 private:
  struct Slot {
    uint64_t address = 0;
    Block* block = nullptr;  // null: free
  };
  static constexpr size_t kFirstSlots = 64;

  size_t mask() const { return slots_.size() - 1; }
  size_t Home(uint64_t address) const { return Home(address, slots_.size()); }
  static size_t Home(uint64_t address, size_t slots) {
    return static_cast<size_t>((address / kGranule * 0x9e3779b97f4a7c15u) >> 20) & (slots - 1);
  }
  static void Put(std::vector<Slot>& slots, uint64_t address, Block* block) {
    size_t at = Home(address, slots.size());
    while (slots[at].block != nullptr) at = (at + 1) & (slots.size() - 1);
    slots[at] = {address, block};
  }
  [[gnu::noinline]] void Grow() {
    std::vector<Slot> more(2 * slots_.size());
    for (const Slot& slot : slots_) {
      if (slot.block != nullptr) Put(more, slot.address, slot.block);
    }
    slots_.swap(more);
  }

  std::vector<Slot> slots_;
  size_t count_ = 0;
};

}  // namespace gpushare::pool

#endif  // GPUSHARE_POOL_ADDRESS_TABLE_H_
