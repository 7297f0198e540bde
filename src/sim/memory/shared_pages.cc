// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/shared_pages.h"

#include <iterator>

#include "sim/memory/range_map.h"

namespace gpushare::sim {

uint64_t SharedPages::Take(uint64_t bytes) {
  for (auto& [page, ranges] : vacant_) {
    for (auto range = ranges.begin(); range != ranges.end(); ++range) {
      const auto [address, length] = *range;
      if (length < bytes) continue;
      ranges.erase(range);
      if (length > bytes) ranges.emplace(address + bytes, length - bytes);
      unused_ -= bytes;
      return address;
    }
  }
  return 0;
}

void SharedPages::Add(uint64_t address) {
  vacant_[address].emplace(address, page_);
  unused_ += page_;
}

uint64_t SharedPages::Give(uint64_t address, uint64_t bytes) {
  const auto page = LastAtOrBefore(vacant_, address);
  Ranges& ranges = page->second;
  unused_ += bytes;
  auto at = ranges.emplace(address, bytes).first;
  if (const auto next = std::next(at); next != ranges.end() && address + bytes == next->first) {
    at->second += next->second;
    ranges.erase(next);
  }
  if (at != ranges.begin()) {
    const auto before = std::prev(at);
    if (before->first + before->second == at->first) {
      before->second += at->second;
      ranges.erase(at);
      at = before;
    }
  }
  if (at->second != page_) return 0;
  const uint64_t emptied = page->first;
  unused_ -= page_;
  vacant_.erase(page);
  return emptied;
}

}  // namespace gpushare::sim
