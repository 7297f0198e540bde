// SPDX-License-Identifier: Apache-2.0
// The engine's events, and with them the time line, die with the engine's context. A primary context that was reset
// comes back to life when it is retained the next time: then they are made anew.
#include <utility>

#include "gate/state.h"

namespace gpushare::gate {

void Engine::Impl::LoseEvents() {
  events.Abandon();
  time_line.reset();
  measures = false;
}

void Engine::Impl::RenewEvents() {
  if (time_line != nullptr && time_line->Stands()) return;  // it was something else
  LoseEvents();
  if (own_ends.load() > 0) return;  // what would be made now would be of this life still
  // Never popped: what was pushed before is of the former life.
  if (driver.PushContext(context) != driver::Result::kSuccess) return;
  events.Renew();
  absl::StatusOr<std::unique_ptr<meter::TimeLine>> made = meter::TimeLine::Create(driver, events);
  if (!made.ok()) {
    events.Abandon();
    return;
  }
  time_line = *std::move(made);
  marker_cost = time_line->marker_cost();
  measures = true;
  const Section section(*this);
  time_line->ShiftTo(submit_offset);  // to the replay it is the same time that goes on
  offset_seen = clock.Now();
  health = absl::OkStatus();
}

// A program that ends its context after every launch is measured all the same: the first one of a new life finds
// events that are of it.
void Engine::Impl::AwaitRenewal() {
  events_suspect = true;
  AwaitLook();
}

}  // namespace gpushare::gate
