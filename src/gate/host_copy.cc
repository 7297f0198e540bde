// SPDX-License-Identifier: Apache-2.0
// The path of every copy between the host and a device through the gate, and of the copies in graphs.
#include <algorithm>
#include <array>
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

// Bytes that TakeLink() let go, which are done when this ends. A null supply: there are none.
class LinkBytes {
 public:
  LinkBytes(CopySupply* supply, CopyDirection direction, uint64_t bytes)
      : supply_(supply), direction_(direction), bytes_(bytes) {}
  ~LinkBytes() {
    if (supply_ != nullptr) supply_->LinkDone(direction_, bytes_);
  }
  LinkBytes(const LinkBytes&) = delete;
  LinkBytes& operator=(const LinkBytes&) = delete;
  void Release() { supply_ = nullptr; }

 private:
  CopySupply* supply_;
  const CopyDirection direction_;
  const uint64_t bytes_;
};

}  // namespace

bool Gate::PutPart(const HostCopy& copy, uint64_t count, Put put, Copied* copied) {
  const uint64_t bytes = count * copy.part_bytes;
  copied->verdict =
      PassCopy(copy.direction, bytes, kNever, copy.longest_hold, copy.though_suspended);
  if (copied->verdict != Verdict::kAdmitted) return false;
  AdmittedCopies admitted(*this, copy.direction == CopyDirection::kHostToDevice
                                     ? CopyBytes{.to_device = bytes}
                                     : CopyBytes{.to_host = bytes});
  if (!put(copied->parts, count)) return false;
  admitted.Made();
  copied->parts += count;
  return true;
}

Copied Gate::Copy(StreamGate& stream, const HostCopy& copy, Put put) {
  Copied copied;
  const CopyDirection direction = copy.direction;
  CopySupply* const supply = state_->engine.options.copy_supply.get();
  const LinkState link = supply == nullptr ? LinkState::kFree : supply->Link(direction);
  const uint64_t total = copy.parts * copy.part_bytes;
  if (total < kLeastSharedCopy && link != LinkState::kBound) {  // goes whole, and nothing holds it
    const bool linked =
        link == LinkState::kShared &&
        supply->TakeLink(direction, total, /*force=*/true, state_->engine.clock.Now());
    const LinkBytes taken(linked ? supply : nullptr, direction, total);
    PutPart(copy, copy.parts, put, &copied);
    return copied;
  }
  const uint64_t beside = CopyPiece(direction, total);
  uint64_t piece = beside != 0 ? beside : kLimitedPiece;
  const auto parts_of = [&](uint64_t bytes) {
    return std::max<uint64_t>(bytes / copy.part_bytes, 1);
  };
  bool paced = beside != 0;
  const bool alone_in_flight = copy.blocks && link != LinkState::kFree;
  bool in_pieces = (paced || LimitsCopies(direction)) && copy.parts > 2 * parts_of(piece) &&
                   IsDivisible(state_->engine.driver, copy);
  while (copied.parts < copy.parts) {
    const uint64_t left = copy.parts - copied.parts;
    // Other tenants may have come, and siblings may have begun to copy.
    if (paced && copied.parts > 0) {
      const uint64_t now = CopyPiece(direction, left * copy.part_bytes);
      if (now != 0) piece = now;
    }
    // What is waited for is alone in flight, so it may be as large as the others' pieces together, unless another thread of the
    // tenant copies too, which would never leave it so much room.
    const bool alone = alone_in_flight && !CopiesInFlight(direction);
    const uint64_t in_piece = parts_of(alone ? 2 * piece : piece);
    // When paced, a last piece of double size would have to wait for all pieces before it.
    const uint64_t whole = paced ? in_piece : 2 * in_piece;
    uint64_t n = in_pieces && left > whole ? in_piece : left;
    bool linked = false;
    if (paced && !AwaitCopyRoom(direction, n * copy.part_bytes, piece, &linked)) {
      paced = false;
      in_pieces &= LimitsCopies(direction);
      if (!in_pieces) n = left;
      // It goes whether or not there is a part of the link for it, and counts.
      linked =
          SharesLink(direction) && supply->TakeLink(direction, n * copy.part_bytes, /*force=*/true,
                                                    state_->engine.clock.Now());
    }
    LinkBytes taken(linked ? supply : nullptr, direction, n * copy.part_bytes);
    if (!PutPart(copy, n, put, &copied)) break;
    if (!paced || copy.blocks) continue;
    taken.Release();
    CopyGiven(direction, n * copy.part_bytes, stream, linked);
  }
  return copied;
}

Verdict Gate::AdmitCopies(const CopyBytes& bytes, Time deadline, Nanos longest_hold,
                          CopyDirection* held, bool though_suspended) {
  AdmittedCopies admitted(*this, {});
  for (const auto& [direction, n] : WaysOf(bytes)) {
    if (n == 0) continue;
    const Verdict verdict = PassCopy(direction, n, deadline, longest_hold, though_suspended);
    if (verdict != Verdict::kAdmitted) {
      if (held != nullptr) *held = direction;
      return verdict;
    }
    CopyBytes& so_far = admitted.bytes_;
    (direction == CopyDirection::kHostToDevice ? so_far.to_device : so_far.to_host) = n;
  }
  admitted.Made();
  return Verdict::kAdmitted;
}

AdmittedCopies::~AdmittedCopies() { gate_.CopiesRefused(bytes_); }

void Gate::CopiesRefused(const CopyBytes& bytes) {
  for (const auto& [direction, n] : WaysOf(bytes)) {
    if (n > 0) CopyRefused(direction, n);
  }
}

}  // namespace gpushare::gate
