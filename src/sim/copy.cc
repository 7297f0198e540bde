// SPDX-License-Identifier: Apache-2.0
#include "sim/copy.h"

#include <cstring>

#include "sim/state.h"

namespace gpushare::sim {
namespace {

// Where `bytes` from `address` on lie: device memory that is live, else the host's. Null: device memory
// that was freed since the copy was submitted.
uint8_t* Locate(uint64_t address, uint64_t bytes) {
  for (const auto& device : state().devices) {
    if (!device->memory.InRange(address)) continue;
    Block* const block = device->memory.Find(address);
    if (block == nullptr || address - block->address + bytes > block->size) return nullptr;
    block->touched = true;
    return device->memory.Bytes(address);
  }
  return reinterpret_cast<uint8_t*>(address);
}

void Copy(const Command& command) {
  const CopyWork& copy = command.copy;
  Account& account = *command.account;
  switch (copy.direction) {
    case CopyDirection::kHostToDevice:
      account.h2d_bytes += copy.bytes * copy.rows;
      break;
    case CopyDirection::kDeviceToHost:
      account.d2h_bytes += copy.bytes * copy.rows;
      break;
    case CopyDirection::kDeviceToDevice:
      account.d2d_bytes += copy.bytes * copy.rows;
      break;
    case CopyDirection::kHostToHost:
      break;
  }
  const uint64_t span_to = copy.pitch_to * (copy.rows - 1) + copy.bytes;
  const uint64_t span_from = copy.pitch_from * (copy.rows - 1) + copy.bytes;
  uint8_t* to = Locate(copy.to, span_to);
  const uint8_t* from = copy.staged != nullptr ? copy.staged : Locate(copy.from, span_from);
  if (to == nullptr || from == nullptr) return;
  for (uint64_t row = 0; row < copy.rows; ++row) {
    std::memmove(to, from, copy.bytes);
    to += copy.pitch_to;
    from += copy.staged != nullptr ? copy.bytes : copy.pitch_from;
  }
}

void Set(const SetWork& set) {
  const uint64_t row_bytes = set.width * set.element;
  uint8_t* to = Locate(set.to, set.pitch * (set.rows - 1) + row_bytes);
  if (to == nullptr) return;
  for (uint64_t row = 0; row < set.rows; ++row, to += set.pitch) {
    if (set.element == 1) {
      std::memset(to, static_cast<int>(set.value & 0xff), row_bytes);
    } else {
      for (uint64_t i = 0; i < row_bytes; i += set.element) {
        std::memcpy(to + i, &set.value, set.element);
      }
    }
  }
}

}  // namespace

void MoveBytes(const Command& command) {
  if (command.type == CommandType::kCopy) {
    Copy(command);
  } else if (command.type == CommandType::kSet) {
    Set(command.set);
  }
}

}  // namespace gpushare::sim
