// SPDX-License-Identifier: Apache-2.0
// The free blocks that one stream may reuse at once, because its own work orders the uses; or those of kNobody, which every
// stream may use.
#ifndef GPUSHARE_POOL_OWNER_H_
#define GPUSHARE_POOL_OWNER_H_

#include <cstdint>
#include <vector>

#include "pool/block.h"
#include "pool/free_lists.h"

namespace gpushare::pool {

struct Owner {
  explicit Owner(uint64_t id, uint64_t quick_granules)
      : stream(id), set_apart(ClassOf(quick_granules) + 1), some_apart(set_apart.size() / 64 + 1) {}

  // Recently freed blocks of one class, newest first.
  struct SetApart {
    Block* head = nullptr;
    uint32_t count = 0;
  };

  const uint64_t stream;
  FreeLists lists[2];  // [0] in small segments, [1] in large ones
  std::vector<SetApart> set_apart;
  std::vector<uint64_t> some_apart;  // bit set of the classes that may have blocks set apart
  uint64_t free_granules = 0;        // in both lists
  uint64_t set_apart_granules = 0;
  uint64_t frees = 0;  // number of this owner's latest free, counted over all owners

  // Whether setting apart pays: +2 for each block that was requested again, -1 for each that was merged after all. A hit saves
  // some 40 ns, and a miss costs 15. While it does not pay, one free in kProbe is still set apart, to notice when that changes.
  static constexpr int32_t kMostWorth = 256, kLeastWorth = -64;
  static constexpr uint32_t kProbe = 32;
  int32_t worth = kMostWorth;
  uint32_t probe = 0;
  void Hit() { worth = worth < kMostWorth ? worth + 2 : worth; }
  void Missed(int32_t blocks) {
    worth = worth - blocks > kLeastWorth ? worth - blocks : kLeastWorth;
  }
  bool SetsApart() { return worth >= 0 || ++probe % kProbe == 0; }
};

}  // namespace gpushare::pool

#endif  // GPUSHARE_POOL_OWNER_H_
