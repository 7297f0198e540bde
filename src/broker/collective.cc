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

Time Collective::WaitedForAt(const Side& side) const {
  Time late_since = kNever;
  for (const Side& other : sides_) {
    if (&other != &side) late_since = std::min(late_since, other.late_since);
  }
  return After(late_since, options_.patience);
}

Time Collective::PassesAt(const Side& side) const {
  return std::max(WaitedForAt(side), held_until_);
}

bool Collective::HeldInStep(const Side& side, Time now) const {
  // Work that other GPUs may be waiting for is held only by its own cap.
  return now < remembered_until_ && now < WaitedForAt(side) &&
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
