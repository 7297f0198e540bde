// SPDX-License-Identifier: Apache-2.0
#include "sim/stream/copy.h"

#include <algorithm>
#include <cstring>

#include "sim/memory/address.h"
#include "sim/state.h"

namespace gpushare::sim {
namespace {

using Kind = Piece::Kind;

// Whether an address that was on a device at submission no longer is: its reservation has been freed since.
bool IsGone(bool on_device, uint64_t address) {
  return on_device && !IsDeviceAddress(address) && IsPageable(address);
}

// Copies piece by piece: a range may cross the border between two mappings.
Kind CopyRow(uint64_t to, uint64_t from, const uint8_t* staged, uint64_t bytes, int device,
             CopyDirection direction) {
  const bool from_device =
      direction == CopyDirection::kDeviceToHost || direction == CopyDirection::kDeviceToDevice;
  const bool to_device =
      direction == CopyDirection::kHostToDevice || direction == CopyDirection::kDeviceToDevice;
  while (bytes > 0) {
    if (IsGone(to_device, to) || (staged == nullptr && IsGone(from_device, from))) {
      return Kind::kNoAccess;
    }
    const Piece target = FindPiece(to, bytes, device, Access::kWrite);
    if (target.kind != Kind::kBytes) return target.kind;
    uint64_t length = target.length;
    const uint8_t* source = staged;
    if (staged == nullptr) {
      const Piece piece = FindPiece(from, length, device, Access::kRead);
      if (piece.kind != Kind::kBytes) return piece.kind;
      source = piece.bytes;
      length = piece.length;
    } else {
      staged += length;
    }
    std::memmove(target.bytes, source, length);
    for (uint32_t i = 1; i < target.replicas; ++i) {
      std::memcpy(FindReplica(to, i), source, length);
    }
    to += length;
    from += length;
    bytes -= length;
  }
  return Kind::kBytes;
}

bool Copy(const Command& command) {
  const CopyWork& copy = command.copy;
  Account& account = *command.account;
  switch (copy.direction) {
    case CopyDirection::kHostToDevice:
      account.h2d_bytes += copy.total();
      break;
    case CopyDirection::kDeviceToHost:
      account.d2h_bytes += copy.total();
      break;
    case CopyDirection::kDeviceToDevice:
      account.d2d_bytes += copy.total();
      break;
    case CopyDirection::kHostToHost:
      break;
  }
  const int device = command.stream->device->ordinal;
  const uint8_t* staged = copy.staged;
  for (uint64_t slice = 0; slice < copy.slices; ++slice) {
    const uint64_t to = copy.to + slice * copy.slice_to;
    const uint64_t from = copy.from + slice * copy.slice_from;
    for (uint64_t row = 0; row < copy.rows; ++row) {
      const Kind kind = CopyRow(to + row * copy.pitch_to, from + row * copy.pitch_from, staged,
                                copy.bytes, device, copy.direction);
      if (kind != Kind::kBytes) return kind != Kind::kNoAccess;
      if (staged != nullptr) staged += copy.bytes;
    }
  }
  return true;
}

bool Set(const Command& command) {
  const SetWork& set = command.set;
  const int device = command.stream->device->ordinal;
  for (uint64_t row = 0; row < set.rows; ++row) {
    uint64_t to = set.to + row * set.pitch;
    // Elements do not cross a border: both are aligned.
    for (uint64_t left = set.width * set.element; left > 0;) {
      if (IsGone(/*on_device=*/true, to)) return false;
      const Piece piece = FindPiece(to, left, device, Access::kWrite);
      if (piece.kind != Kind::kBytes) return piece.kind != Kind::kNoAccess;
      if (set.element == 1) {
        std::memset(piece.bytes, static_cast<int>(set.value & 0xff), piece.length);
      } else {
        for (uint64_t i = 0; i < piece.length; i += set.element) {
          std::memcpy(piece.bytes + i, &set.value, set.element);
        }
      }
      for (uint32_t i = 1; i < piece.replicas; ++i) {
        std::memcpy(FindReplica(to, i), piece.bytes, piece.length);
      }
      to += piece.length;
      left -= piece.length;
    }
  }
  return true;
}

void Prefetch(const Command& command) {
  const PrefetchWork& work = command.prefetch;
  State& s = state();
  ManagedRange* const range = s.managed.Find(work.address);
  if (range == nullptr) return;  // freed since the submission
  Device* const device =
      work.device < 0 ? nullptr : s.devices[static_cast<size_t>(work.device)].get();
  const uint64_t moved =
      ManagedMemory::Migrate(range, work.address - range->block->address, work.bytes, device);
  // Discarded pages moved without crossing a link.
  (device == nullptr ? command.account->d2h_bytes : command.account->h2d_bytes) +=
      std::min(moved, work.missing);
}

}  // namespace

bool MoveBytes(const Command& command) {
  switch (command.type) {
    case CommandType::kCopy:
      return Copy(command);
    case CommandType::kSet:
      return Set(command);
    default:
      Prefetch(command);
      return true;
  }
}

}  // namespace gpushare::sim
