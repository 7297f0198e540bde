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

// If sizes do not repeat, which lists are empty and which blocks have neighbours is as good as random. To avoid mispredicted
// branches, the code does not test for it: a block without a neighbour writes to a dummy block.
class FreeLists {
 public:
  void Add(Block* block) {
    const uint32_t at = ClassOf(block->granules);
    Block* const head = heads_[at];
    block->previous = nullptr;
    block->next = head;
    OrSpare(head)->previous = block;
    heads_[at] = block;
    words_[at / 64] |= uint64_t{1} << at % 64;
    some_ |= 1u << at / 64;
  }

  void Remove(Block* block) {
    const uint32_t at = ClassOf(block->granules);
    Block* const next = block->next;
    Block* const previous = block->previous;
    OrSpare(next)->previous = previous;
    Block** const from = previous != nullptr ? &previous->next : &heads_[at];
    *from = next;
    uint64_t& word = words_[at / 64];
    word &= ~(uint64_t{heads_[at] == nullptr} << at % 64);
    some_ &= ~(uint32_t{word == 0} << at / 64);
  }

  // A block of at least `granules`, which stays in its list; null if there is none.
  Block* Find(uint64_t granules) const;

  // The head of the first nonempty list at or above `at`; null if there is none.
  Block* First(uint32_t at = 0) const {
    uint32_t word = at / 64;
    if (word >= kWords) return nullptr;
    uint64_t bits = words_[word] & (~uint64_t{0} << at % 64);
    if (bits == 0) {
      const uint32_t above = some_ & (~uint32_t{1} << word);
      if (above == 0) return nullptr;
      word = static_cast<uint32_t>(std::countr_zero(above));
      bits = words_[word];
    }
    return heads_[word * 64 + static_cast<uint32_t>(std::countr_zero(bits))];
  }

  uint64_t LargestGranules() const;

 private:
  // Blocks of a request's own class may be large enough too. This many are tried before a larger block is cut.
  static constexpr int kLooks = 8;
  static constexpr uint32_t kWords = (kClasses + 63) / 64;
  static_assert(kWords <= 31);

  Block* OrSpare(Block* block) { return block != nullptr ? block : &spare_; }

  std::array<uint64_t, kWords> words_ = {};  // which lists are not empty
  std::array<Block*, kClasses> heads_ = {};
  uint32_t some_ = 0;  // which words are not 0
  Block spare_;
};

}  // namespace gpushare::pool

#endif  // GPUSHARE_POOL_FREE_LISTS_H_
