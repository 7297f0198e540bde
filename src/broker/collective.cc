// SPDX-License-Identifier: Apache-2.0
#include "broker/collective.h"

namespace gpushare::broker {

void Collective::Say(Side& side, bool late, bool in_debt, Time now) {
  if (!late) {
    side.late_since = kNever;
  } else if (side.late_since == kNever) {
    side.late_since = now;
  }
  side.in_debt = in_debt;
  const auto owes = [](const Side& each) { return each.in_debt || each.late_since != kNever; };
  if (std::none_of(sides_.begin(), sides_.end(), owes)) passed_ = Nanos(0);
}

Time Collective::OthersLateSince(const Side& side) const {
  Time since = kNever;
  for (const Side& other : sides_) {
    if (&other != &side) since = std::min(since, other.late_since);
  }
  return since;
}

Time Collective::PassesAt(const Side& side) const {
  const Time late = OthersLateSince(side);
  return late == kNever ? kNever : std::max(late + options_.patience, held_until_);
}

bool Collective::HeldInStep(const Side& side, Time now) const {
  // What others may be waiting for is held by its own cap alone.
  const Time late = OthersLateSince(side);
  const bool waited_for = late != kNever && now >= late + options_.patience;
  return now < remembered_until_ && !waited_for &&
         std::any_of(sides_.begin(), sides_.end(), [](const Side& each) { return each.in_debt; });
}

void Collective::Passed(Nanos amount, Time now) {
  passed_ += amount;
  if (passed_ > options_.at_once) {
    held_until_ = std::max(held_until_, now) + options_.hold_per_use * amount;
  }
  remembered_until_ = now + options_.remembered;
}

}  // namespace gpushare::broker
