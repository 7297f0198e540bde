// SPDX-License-Identifier: Apache-2.0
#include "pool/free_lists.h"

#include <algorithm>

namespace gpushare::pool {

Block* FreeLists::Find(uint64_t granules) const {
  const uint32_t own = ClassOf(granules), above = ClassAbove(granules);
  if (own != above) {
    int looks = kLooks;
    for (Block* block = heads_[own]; block != nullptr && looks != 0; block = block->next, --looks) {
      if (block->granules >= granules) return block;
    }
  }
  return First(above);
}

uint64_t FreeLists::LargestGranules() const {
  for (uint32_t word = kWords; word-- > 0;) {
    if (words_[word] == 0) continue;
    uint64_t largest = 0;
    const uint32_t at = word * 64 + 63 - static_cast<uint32_t>(std::countl_zero(words_[word]));
    for (const Block* block = heads_[at]; block != nullptr; block = block->next) {
      largest = std::max(largest, block->granules);
    }
    return largest;
  }
  return 0;
}

}  // namespace gpushare::pool
