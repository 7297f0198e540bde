// SPDX-License-Identifier: Apache-2.0
// Finds a block by its address: a hash table with open addressing and linear probing, at most half full. A removal moves later
// entries back, so a table that is used for weeks stays as fast as a new one.
//
// It is written here, not taken from a library, because each allocation and each free looks up once: hashing takes three
// instructions, and a lookup usually touches one cache line.
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

  // Adds an address that is not in the table. May throw std::bad_alloc, and then changes nothing.
  void Add(uint64_t address, Block* block) {
    if (2 * (count_ + 1) > slots_.size()) Grow();
    Put(slots_, address, block);
    ++count_;
  }

  // The position of an address, for RemoveAt(); valid until the next Add() or Remove(). `block` is null if the address is not
  // in the table.
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

  // Removes an address that is in the table.
  void Remove(uint64_t address) {
    size_t hole = Home(address);
    while (slots_[hole].address != address || slots_[hole].block == nullptr) {
      hole = (hole + 1) & mask();
    }
    RemoveAt(hole);
  }
  void RemoveAt(size_t hole) {
    for (size_t at = (hole + 1) & mask(); slots_[at].block != nullptr; at = (at + 1) & mask()) {
      // An entry may move into the hole unless its home lies between the hole and its position.
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
