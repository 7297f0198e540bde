// SPDX-License-Identifier: Apache-2.0
#include "sim/device/stamps.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "sim/memory/address.h"
#include "sim/stream/memory_operation.h"
#include "sim/stream/stream.h"

namespace gpushare::sim {
namespace {

// `count` words at an address that a kernel uses; nullptr if the device has no access.
uint8_t* WordsAt(const Command& command, uint64_t address, uint32_t count) {
  const auto bytes = static_cast<uint32_t>(count * sizeof(uint64_t));
  if (address % sizeof(uint64_t) != 0 || !IsOperand(address, bytes)) return nullptr;
  const Piece piece = FindPiece(address, bytes, command.stream->device->ordinal, Access::kWrite);
  return piece.kind == Piece::Kind::kBytes && piece.length >= bytes ? piece.bytes : nullptr;
}

}  // namespace

bool WriteStamps(const Command& command, uint64_t now) {
  std::array<uint64_t, 4> words;
  uint8_t* const at = WordsAt(command, command.stamps, 4);
  if (at == nullptr) return false;
  std::memcpy(words.data(), at, sizeof(words));
  words[0] = std::min(words[0], command.began);
  words[1] = std::max(words[1], now);
  words[2] += command.kernel.groups * command.kernel.group_ns;
  std::memcpy(at, words.data(), sizeof(words));
  return true;
}

bool WriteAway(const Command& command, uint64_t from, uint64_t until) {
  std::array<uint64_t, 5> words;
  const uint8_t* const stamps = WordsAt(command, command.stamps, 5);
  if (stamps == nullptr) return false;
  std::memcpy(words.data(), stamps, sizeof(words));
  const uint64_t log = words[4];
  if (log == 0) return true;
  std::array<uint64_t, 3> head;
  uint8_t* const at = WordsAt(command, log, 3);
  if (at == nullptr) return false;
  std::memcpy(head.data(), at, sizeof(head));
  const uint64_t told = head[0];
  head[0] = std::max(told, until);
  if (told <= from && head[1]++ < head[2]) {
    const std::array<uint64_t, 2> gone = {from, until};
    uint8_t* const entry = WordsAt(command, log + sizeof(head) + (head[1] - 1) * sizeof(gone), 2);
    if (entry == nullptr) return false;
    std::memcpy(entry, gone.data(), sizeof(gone));
  }
  std::memcpy(at, head.data(), sizeof(head));
  return true;
}

}  // namespace gpushare::sim
