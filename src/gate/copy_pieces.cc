// SPDX-License-Identifier: Apache-2.0
// Large copies beside other tenants. A device executes copies in the order of submission, so a tenant submits little at a time:
// it divides a copy into pieces, and submits the next piece only when one of its own earlier pieces is done. So a copy waits
// behind at most two pieces of each other tenant, and behind what is not counted: copies of less than kLeastSharedCopy,
// batches, copies of graphs, the piece of each thread that waits for its copy, and copies that cannot be divided. Tenants that
// always copy share the link in proportion to the sizes of their pieces, which follow their weights. A tenant waits here only
// for its own pieces, never for another tenant, and not for long if its own stream makes no progress. Where other processes copy
// it also waits for its process's part of the link (CopySupply::TakeLink()), within the same bound.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/no_cancel.h"
#include "driver/relaxed_capture.h"
#include "gate/state.h"

namespace gpushare::gate {
namespace {

// Two of the largest pieces are 8 MiB. Smaller pieces would cost some percent of the link, and host time for their markers.
constexpr uint64_t kLargestPiece = uint64_t{4} << 20, kLeastPiece = uint64_t{512} << 10;
constexpr uint64_t kPieceStep = uint64_t{64} << 10;
// Where another process copies little at a time, less is in flight (CopySupply::LinkWindow()).
constexpr uint64_t kLeastOfWindow = uint64_t{128} << 10;
constexpr uint64_t kPiecesInFlight = 2;
constexpr Nanos kLookEvery = Micros(20);
// While copies of other tenants make progress, the tenant's own piece may just be slow, since many share the link. Then it is
// waited for this many times as long.
constexpr int kPatience = 10;

// A tenant that has not copied in pieces for this long leaves its part of its family's weight to its siblings.
constexpr Nanos kStopped = Millis(20);

// The parent counts as a member of weight 1.
double WeightInFamily(const TenantState& tenant) {
  return tenant.shares() && tenant.parent == nullptr ? 1 : tenant.options.limits.weight;
}

bool CopiesInPieces(const TenantState& tenant, CopyDirection direction, Time now) {
  return now < tenant.copy_flights[static_cast<size_t>(direction)].copies_until;
}

uint64_t LargestPiece(const CopySupply* supply, CopyDirection direction) {
  const uint64_t window = supply == nullptr ? 0 : supply->LinkWindow(direction);
  if (window == 0) return kLargestPiece;
  return std::clamp(window / kPiecesInFlight, kLeastOfWindow, kLargestPiece);
}

}  // namespace

// A family weighs what its parent does. Those of its members that copy divide that by their own weights.
uint64_t Gate::CopyPiece(CopyDirection direction, uint64_t bytes) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  const CopySupply* const supply = engine.options.copy_supply.get();
  const bool small = bytes < kLeastSharedCopy;
  const uint64_t largest = LargestPiece(supply, direction);
  const uint64_t below =
      SharesLink(direction) || (!small && supply != nullptr && supply->OthersGoFirst()) ? largest
                                                                                        : 0;
  if (small) return below;
  if (engine.registered.load(std::memory_order_relaxed) < 2) return below;
  const Time now = engine.clock.Now();
  const Section section(engine);
  tenant.copy_flights[static_cast<size_t>(direction)].copies_until = now + kStopped;
  const sched::Band band = tenant.options.limits.band;
  bool others = false;
  for (const auto& other : engine.tenants) {
    if (other == nullptr) continue;
    others |= other.get() != &tenant && other->options.limits.band <= band;
    other->family().copying_weight = 0;
  }
  if (!others) return below;
  const auto counts = [&](const TenantState* one) {
    return one != nullptr && one->options.limits.band == band;
  };
  for (const auto& one : engine.tenants) {
    if (!counts(one.get()) || !CopiesInPieces(*one, direction, now)) continue;
    one->family().copying_weight += WeightInFamily(*one);
  }
  const auto weight = [&](TenantState& one) {
    const TenantState& family = one.family();
    const double own = WeightInFamily(one);
    const double rest = CopiesInPieces(one, direction, now) ? 0 : own;
    return family.options.limits.weight * own / (family.copying_weight + rest);
  };
  double most = 0;
  for (const auto& one : engine.tenants) {
    if (counts(one.get())) most = std::max(most, weight(*one));
  }
  const auto piece = static_cast<uint64_t>(weight(tenant) / most * static_cast<double>(largest));
  return std::max(std::min(kLeastPiece, largest), piece / kPieceStep * kPieceStep);
}

bool Gate::SharesLink(CopyDirection direction) const {
  const CopySupply* const supply = state_->engine.options.copy_supply.get();
  return supply != nullptr && supply->Link(direction) != LinkState::kFree;
}

bool Gate::CopiesInFlight(CopyDirection direction) const {
  const Section section(state_->engine);
  return !state_->copy_flights[static_cast<size_t>(direction)].pieces.empty();
}

bool Gate::AwaitCopyRoom(CopyDirection direction, uint64_t bytes, uint64_t piece, bool* linked) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  const size_t d = static_cast<size_t>(direction);
  CopyFlight& flight = tenant.copy_flights[d];
  Time now = engine.clock.Now();
  const Time began = now;
  const Nanos hold = engine.options.deadlock_hold;
  Time since = now;  // when the tenant's own pieces last made progress
  CopyWait wait(tenant);
  CopySupply* const supply = engine.options.copy_supply.get();
  const bool shares = SharesLink(direction);
  bool looked = !shares;  // for pieces that are done, of which the supply hears
  for (;;) {
    CopyFlight::Piece oldest;
    std::optional<meter::EventPool::Asking> asking;
    uint32_t seen = 0;
    bool passed = false;
    {
      const Section section(engine);
      wait.End();
      const bool fits = flight.pieces.empty() || flight.bytes + bytes <= kPiecesInFlight * piece;
      looked |= flight.pieces.empty();
      const bool late = now >= After(since, kPatience * hold);
      const bool room =
          fits && looked && (!shares || supply->TakeLink(direction, bytes, late, now));
      *linked = room && shares;
      // Pieces that wait for something that this thread has yet to do would never be done, so the wait is bounded.
      const Time goes_on = std::max(since, engine.copies_went_on[d]);
      const bool stuck = !fits && (late || now >= After(goes_on, hold));
      if (room || stuck || tenant.removed) {
        if (stuck) flight.passed = flight.pieces.front().id;
        if (stuck || (*linked && late)) ++tenant.stats.held_past_bound;
        tenant.stats.copy_throttled[d] += now - began;
        return room;
      }
      seen = tenant.page.wake.load(std::memory_order_acquire);
      wait.Begin();
      if (!flight.pieces.empty()) {
        oldest = flight.pieces.front();
        passed = flight.passed == oldest.id;
        asking.emplace(*oldest.events);
      }
    }
    if (!asking.has_value()) {  // it waits for its part of the link
      engine.clock.Wait(tenant.page.wake, seen, engine.clock.Now() + kLookEvery, Nanos(0));
      now = engine.clock.Now();
      continue;
    }
    driver::Result result;
    {
      const base::NoCancel whole;
      const driver::RelaxedCapture relaxed(engine.driver);  // the thread may capture another stream
      result = engine.driver.QueryEvent(oldest.event);
    }
    asking.reset();
    if (result == driver::Result::kNotReady && !looked) {
      looked = true;
      continue;
    }
    if (result == driver::Result::kNotReady && passed) {  // it was waited for in vain before
      const Section section(engine);
      wait.End();
      return false;
    }
    if (result == driver::Result::kNotReady) {
      engine.clock.Wait(tenant.page.wake, seen, engine.clock.Now() + kLookEvery, Nanos(0));
      now = engine.clock.Now();
      continue;
    }
    now = engine.clock.Now();
    since = now;
    const Section section(engine);
    engine.copies_went_on[d] = now;
    if (flight.pieces.empty() || flight.pieces.front().id != oldest.id) continue;
    flight.bytes -= oldest.bytes;
    flight.pieces.pop_front();
    if (oldest.linked) supply->LinkDone(direction, oldest.bytes);
    // With another result the event died with its context.
    if (result == driver::Result::kSuccess) oldest.events->Give(oldest.event, /*timing=*/false);
  }
}

void Gate::CopyGiven(CopyDirection direction, uint64_t bytes, StreamGate& stream, bool linked) {
  if (CountInFlight(direction, bytes, stream, linked) || !linked) return;
  state_->engine.options.copy_supply->LinkDone(direction, bytes);
}

bool Gate::CountInFlight(CopyDirection direction, uint64_t bytes, StreamGate& stream, bool linked) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  const base::NoCancel whole;
  if (engine.MayCapture(stream)) return false;
  driver::Event event = nullptr;
  try {
    const Engine::Impl::InContextOf there(engine, stream);
    if (!there.ok() || stream.events->Take(&event, /*timing=*/false) != driver::Result::kSuccess)
      return false;
    const driver::Result recorded = engine.driver.RecordEvent(event, stream.handle);
    if (recorded != driver::Result::kSuccess) {
      // An event that died with its context cannot be used again.
      if (recorded != driver::Result::kInvalidHandle) stream.events->Give(event, /*timing=*/false);
      return false;
    }
  } catch (const std::bad_alloc&) {
    return false;  // the piece is not counted as in flight
  }
  const Section section(engine);
  CopyFlight& flight = tenant.copy_flights[static_cast<size_t>(direction)];
  try {
    if (!tenant.removed) {
      flight.pieces.push_back({++flight.given, bytes, event, stream.events, linked});
      flight.bytes += bytes;
      return true;
    }
  } catch (const std::bad_alloc&) {
    // The piece is not counted as in flight.
  }
  stream.events->Give(event, /*timing=*/false);
  return false;
}

void Engine::Impl::ForgetCopies(TenantState& tenant, const meter::EventPool* of) {
  for (const CopyDirection direction :
       {CopyDirection::kHostToDevice, CopyDirection::kDeviceToHost}) {
    CopyFlight& flight = tenant.copy_flights[static_cast<size_t>(direction)];
    std::erase_if(flight.pieces, [&](const CopyFlight::Piece& piece) {
      if (of != nullptr && piece.events != of) return false;
      flight.bytes -= piece.bytes;
      if (piece.linked) options.copy_supply->LinkDone(direction, piece.bytes);
      if (of == nullptr) piece.events->Give(piece.event, /*timing=*/false);
      return true;
    });
  }
}

}  // namespace gpushare::gate
