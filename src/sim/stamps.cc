// SPDX-License-Identifier: Apache-2.0
#include "sim/stamps.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "sim/address.h"
#include "sim/memory_operation.h"
#include "sim/stream.h"

namespace gpushare::sim {

bool WriteStamps(const Command& command, uint64_t now) {
  std::array<uint64_t, 4> words;
  if (command.stamps % sizeof(words[0]) != 0 || !IsOperand(command.stamps, sizeof(words))) {
    return false;
  }
  const Piece piece =
      FindPiece(command.stamps, sizeof(words), command.stream->device->ordinal, Access::kWrite);
  if (piece.kind != Piece::Kind::kBytes || piece.length < sizeof(words)) return false;
  std::memcpy(words.data(), piece.bytes, sizeof(words));
  words[0] = std::min(words[0], command.began);
  words[1] = std::max(words[1], now);
  words[2] += command.kernel.groups * command.kernel.group_ns;
  std::memcpy(piece.bytes, words.data(), sizeof(words));
  return true;
}

}  // namespace gpushare::sim
