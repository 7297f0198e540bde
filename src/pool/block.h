// SPDX-License-Identifier: Apache-2.0
// The blocks that segments of device memory are cut into. The host cannot touch that memory, so the descriptions
// are kept in host memory.
#ifndef GPUSHARE_POOL_BLOCK_H_
#define GPUSHARE_POOL_BLOCK_H_

#include <cstdint>

namespace gpushare::pool {

struct Owner;
struct Segment;

struct Block {
  enum class State : uint8_t {
    kLive,    // allocated
    kQuick,   // free, and set apart for the next request of exactly this size
    kListed,  // free, in its class's list; no neighbour of the same owner is listed as well
  };

  uint64_t address = 0;
  uint64_t granules = 0;
  Block* before = nullptr;  // neighbours in the segment
  Block* after = nullptr;
  Block* previous = nullptr;  // in the list
  Block* next = nullptr;
  Owner* owner =
      nullptr;  // of a free block: the stream whose work must end before others may use it
  Segment* segment = nullptr;
  uint64_t stream = 0;  // of a live block: the stream that it was allocated for
  State state = State::kListed;
};

// Memory that one call of the driver gave.
struct Segment {
  uint64_t base = 0;
  uint64_t bytes = 0;
  Block* first = nullptr;
  uint32_t live = 0;  // live blocks in it
  bool large = false;
};

}  // namespace gpushare::pool

#endif  // GPUSHARE_POOL_BLOCK_H_
