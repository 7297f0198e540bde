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
      : stream(id), set_apart(ClassOf(quick_granules) + 1) {}

  // Blocks of one class that were freed last, newest first.
  struct SetApart {
    Block* head = nullptr;
    uint32_t count = 0;
  };

  const uint64_t stream;
  FreeLists lists[2];  // of small segments, of large ones
  std::vector<SetApart> set_apart;
  uint64_t free_granules = 0;  // of both kinds
  uint64_t set_apart_granules = 0;
  uint64_t frees = 0;  // when the latest was, counted over all owners
};

}  // namespace gpushare::pool

#endif  // GPUSHARE_POOL_OWNER_H_
