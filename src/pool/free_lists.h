// SPDX-License-Identifier: Apache-2.0
// The listed free blocks of one owner, by size class. Adding, removing and finding a block that fits
// take the same few instructions whatever the number of blocks.
#ifndef GPUSHARE_POOL_FREE_LISTS_H_
#define GPUSHARE_POOL_FREE_LISTS_H_

#include <array>
#include <bit>
#include <cstdint>

#include "pool/block.h"
#include "pool/size_class.h"

namespace gpushare::pool {

class FreeLists {
 public:
  void Add(Block* block) {
    const uint32_t at = ClassOf(block->granules);
    Block*& head = heads_[at];
    block->previous = nullptr;
    block->next = head;
    if (head != nullptr) head->previous = block;
    head = block;
    words_[at / 64] |= uint64_t{1} << at % 64;
  }

  void Remove(Block* block) {
    const uint32_t at = ClassOf(block->granules);
    if (block->next != nullptr) block->next->previous = block->previous;
    if (block->previous != nullptr) {
      block->previous->next = block->next;
      return;
    }
    heads_[at] = block->next;
    if (block->next == nullptr) words_[at / 64] &= ~(uint64_t{1} << at % 64);
  }

  // A block of at least so many granules, still in its list; null when there is none.
  Block* Find(uint64_t granules) const;

  // The head of the first list at or above `at` that is not empty; null when there is none.
  Block* First(uint32_t at = 0) const {
    uint32_t word = at / 64;
    if (word >= kWords) return nullptr;
    uint64_t bits = words_[word] & (~uint64_t{0} << at % 64);
    while (bits == 0) {
      if (++word == kWords) return nullptr;
      bits = words_[word];
    }
    return heads_[word * 64 + static_cast<uint32_t>(std::countr_zero(bits))];
  }

  uint64_t LargestGranules() const;

 private:
  // A request of a size that lies within a class may be served by that class too; so many of its blocks
  // are looked at before a larger block is cut.
  static constexpr int kLooks = 8;
  static constexpr uint32_t kWords = (kClasses + 63) / 64;

  std::array<uint64_t, kWords> words_ = {};  // which lists are not empty
  std::array<Block*, kClasses> heads_ = {};
};

}  // namespace gpushare::pool

#endif  // GPUSHARE_POOL_FREE_LISTS_H_
