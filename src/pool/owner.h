// SPDX-License-Identifier: Apache-2.0
// The free blocks that one stream may use before what it was given is over; or nobody's, for all.
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

  // Blocks of one class that were freed last, newest first.
  struct SetApart {
    Block* head = nullptr;
    uint32_t count = 0;
  };

  const uint64_t stream;
  FreeLists lists[2];  // of small segments, of large ones
  std::vector<SetApart> set_apart;
  std::vector<uint64_t> some_apart;  // of which classes there may be some
  uint64_t free_granules = 0;        // of both kinds
  uint64_t set_apart_granules = 0;
  uint64_t frees = 0;  // when the latest was, counted over all owners

  // Whether setting apart pays: 2 for each block that was asked for again, -1 for each that was merged after all. A hit
  // saves some 40 ns and a miss costs 15. Where it does not pay one free in kProbe is set apart still, to find out when that
  // changes.
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
