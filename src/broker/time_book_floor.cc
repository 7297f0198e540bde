// SPDX-License-Identifier: Apache-2.0
// The part of the device's time that those below a high priority keep beside it.
#include <algorithm>

#include "broker/time_book.h"

namespace gpushare::broker {
namespace {

// In a turn of the floor pages are read so often.
constexpr Nanos kTurnLook = Micros(100);
// So long it may take, where what the high priority has in the GPU's queue runs in slices with it.
constexpr Nanos kTurnInSlices = Millis(4);

}  // namespace

// Those below are shut out, and have had less than is kept for them: the high band is held back until they have used a turn of
// it, and what they have begun by then is done.
Time TimeBook::TakeFloorTurn(Time now, Changed& changed) {
  floor_.Pass(now, Nanos(used_below_ns_));
  if (turn_) turn_->used_ns += used_below_ns_;
  used_below_ns_ = 0;
  bool wants = false, shut_out = false, high_wants = false;
  int64_t in_flight = 0;
  for (const Member& member : members_) {
    const Tenant& tenant = *member.tenant;
    const bool its = !tenant.suspended && member.seat->usage->time_wanted_ns.load(kRelaxed) > 0;
    if (tenant.limits.band == sched::Band::kHigh) {
      high_wants |= its;
      continue;
    }
    in_flight += ChargedInFlight(member);
    wants |= its && !tenant.held;
    shut_out |= its && !tenant.held && arbiter_.Closed(tenant.limits.band, now);
  }
  if (!turn_) {
    if (!shut_out || floor_.part() <= 0) return kNever;
    if (!floor_.has_turn()) return floor_.TurnAt();
    turn_ = Turn{.since = now, .until = now + 2 * Floor::kTurn};
    HoldHigh(true, changed);
    arbiter_.HoldHighBand(true);
    return now + kTurnLook;
  }
  if (!turn_->over) {
    turn_->over =
        turn_->used_ns + in_flight >= Floor::kTurn.count() || now >= turn_->until || !wants;
    if (!turn_->over) return now + kTurnLook;
    // From here on those below are shut out again.
    arbiter_.HoldHighBand(false);
    for (Member& member : members_) {
      if (member.held && Bypasses(*member.tenant)) ReadBypass(member, now);
    }
  }
  // A command that is longer than the turn is waited for as long as such is believed to end.
  if (high_wants && in_flight > 0 && now < turn_->until + options_.believed) {
    return now + options_.overlap;
  }
  // Who does not use it, or says without end that something is in flight, has had it all the same: the high band is held for
  // little more than the floor.
  const Nanos kept = std::max(Floor::kTurn, now - turn_->since - kTurnInSlices);
  floor_.Pass(now, std::max(kept - Nanos(turn_->used_ns), Nanos(0)));
  turn_.reset();
  HoldHigh(false, changed);
  return kNever;
}

void TimeBook::HoldHigh(bool held, Changed& changed) {
  bypassed_until_ = Time{};  // a pause that it is made to make says nothing of its own
  for (Member& member : members_) {
    const bool its = held && member.tenant->limits.band == sched::Band::kHigh;
    SetFlags(*member.seat, ipc::LimitsPage::kHeld, its ? uint32_t{ipc::LimitsPage::kHeld} : 0u,
             changed);
    if (its) member.held = Bypasses(*member.tenant);
  }
}

}  // namespace gpushare::broker
