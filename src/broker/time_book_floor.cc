// SPDX-License-Identifier: Apache-2.0
// The part of the device's time that tenants below high priority keep beside it.
#include <algorithm>

#include "broker/time_book.h"

namespace gpushare::broker {
namespace {

// How often pages are read in a turn of the floor.
constexpr Nanos kTurnLook = Micros(100);
// How long a turn may take if the GPU runs queued work of the high priority in time slices with it.
constexpr Nanos kTurnInSlices = Millis(4);

}  // namespace

// If the lower bands are shut out and have had less than their part, the high band is held back until they have used a turn and
// the work that they have begun by then is done.
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
    // From here on the lower bands are shut out again.
    arbiter_.HoldHighBand(false);
    for (Member& member : members_) {
      if (member.held && Bypasses(*member.tenant)) ReadBypass(member, now);
    }
  }
  // A command that is longer than the turn is waited for as long as predictions are believed.
  if (high_wants && in_flight > 0 && now < turn_->until + options_.believed) {
    return now + options_.overlap;
  }
  // A turn that is not used, or in which work is reported in flight forever, counts as used, so that the high band is held for
  // little more than the floor.
  const Nanos kept = std::max(Floor::kTurn, now - turn_->since - kTurnInSlices);
  floor_.Pass(now, std::max(kept - Nanos(turn_->used_ns), Nanos(0)));
  turn_.reset();
  HoldHigh(false, changed);
  return kNever;
}

void TimeBook::HoldHigh(bool held, Changed& changed) {
  // A pause that the floor imposes says nothing about the service's own pauses.
  bypassed_until_ = Time{};
  for (Member& member : members_) {
    const bool its = held && member.tenant->limits.band == sched::Band::kHigh;
    SetFlags(*member.seat, ipc::LimitsPage::kHeld, its ? uint32_t{ipc::LimitsPage::kHeld} : 0u,
             changed);
    if (its) member.held = Bypasses(*member.tenant);
  }
}

}  // namespace gpushare::broker
