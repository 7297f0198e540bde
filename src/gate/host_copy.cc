// SPDX-License-Identifier: Apache-2.0
// The path of every copy between the host and a device through the gate, and of the copies in graphs.
#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "gate/state.h"

namespace gpushare::gate {
namespace {

// The size of pieces for tenants with a copy limit, so that other copies get in between. Beside other tenants CopyPiece()
// decides instead.
constexpr uint64_t kLimitedPiece = uint64_t{4} << 20;

std::array<std::pair<CopyDirection, uint64_t>, 2> WaysOf(const CopyBytes& bytes) {
  return {{{CopyDirection::kHostToDevice, bytes.to_device},
           {CopyDirection::kDeviceToHost, bytes.to_host}}};
}

// Whether a copy may be divided. For arrays and boxes the driver does not tell the allocation; these are divided.
bool IsDivisible(const driver::Driver& driver, const HostCopy& copy) {
  if (copy.line == 0) return true;
  driver::DevicePtr base = 0;
  size_t size = 0;
  if (driver.AddressRange(&base, &size, copy.line) != driver::Result::kSuccess) return false;
  const uint64_t before = copy.line - base;
  return before <= size && copy.parts * copy.part_bytes <= size - before;
}

}  // namespace

bool Gate::PutPart(const HostCopy& copy, uint64_t count, Put put, Copied* copied) {
  const uint64_t bytes = count * copy.part_bytes;
  copied->verdict =
      PassCopy(copy.direction, bytes, kNever, copy.longest_hold, copy.though_suspended);
  if (copied->verdict != Verdict::kAdmitted) return false;
  if (!put(copied->parts, count)) {
    CopyRefused(copy.direction, bytes);
    return false;
  }
  copied->parts += count;
  return true;
}

Copied Gate::Copy(StreamGate& stream, const HostCopy& copy, Put put) {
  Copied copied;
  if (copy.parts * copy.part_bytes < kLeastSharedCopy) {  // always goes whole
    PutPart(copy, copy.parts, put, &copied);
    return copied;
  }
  const CopyDirection direction = copy.direction;
  const uint64_t beside = CopyPiece(direction, copy.parts * copy.part_bytes);
  uint64_t piece = beside != 0 ? beside : kLimitedPiece;
  const auto parts_of = [&](uint64_t bytes) {
    return std::max<uint64_t>(bytes / copy.part_bytes, 1);
  };
  bool paced = beside != 0;
  bool in_pieces = (paced || LimitsCopies(direction)) && copy.parts > 2 * parts_of(piece) &&
                   IsDivisible(state_->engine.driver, copy);
  while (copied.parts < copy.parts) {
    const uint64_t left = copy.parts - copied.parts;
    // Other tenants may have come, and siblings may have begun to copy.
    if (paced && copied.parts > 0) {
      const uint64_t now = CopyPiece(direction, left * copy.part_bytes);
      if (now != 0) piece = now;
    }
    const uint64_t in_piece = parts_of(piece);
    // When paced, a last piece of double size would have to wait for all pieces before it.
    const uint64_t whole = paced ? in_piece : 2 * in_piece;
    uint64_t n = in_pieces && left > whole ? in_piece : left;
    if (paced && !AwaitCopyRoom(direction, n * copy.part_bytes, piece)) {
      paced = false;
      in_pieces &= LimitsCopies(direction);
      if (!in_pieces) n = left;
    }
    if (!PutPart(copy, n, put, &copied)) break;
    if (paced && !copy.blocks) CopyGiven(direction, n * copy.part_bytes, stream);
  }
  return copied;
}

Verdict Gate::AdmitCopies(const CopyBytes& bytes, Time deadline, Nanos longest_hold,
                          CopyDirection* held, bool though_suspended) {
  CopyBytes admitted;
  for (const auto& [direction, n] : WaysOf(bytes)) {
    if (n == 0) continue;
    Verdict verdict;
    try {
      verdict = PassCopy(direction, n, deadline, longest_hold, though_suspended);
    } catch (const std::bad_alloc&) {
      CopiesRefused(admitted);
      throw;
    }
    if (verdict != Verdict::kAdmitted) {
      CopiesRefused(admitted);
      if (held != nullptr) *held = direction;
      return verdict;
    }
    (direction == CopyDirection::kHostToDevice ? admitted.to_device : admitted.to_host) = n;
  }
  return Verdict::kAdmitted;
}

void Gate::CopiesRefused(const CopyBytes& bytes) {
  for (const auto& [direction, n] : WaysOf(bytes)) {
    if (n > 0) CopyRefused(direction, n);
  }
}

}  // namespace gpushare::gate
