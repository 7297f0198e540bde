// SPDX-License-Identifier: Apache-2.0
// The engine's events and its time line die with the engine's context. A primary context that was reset comes back to life
// when it is retained again; then the events and the time line are made anew.
#include <new>
#include <utility>

#include "gate/state.h"

namespace gpushare::gate {

void Engine::Impl::LoseEvents() {
  events.Abandon();
  time_line.reset();
  measures = false;
}

void Engine::Impl::RenewEvents() {
  if (time_line != nullptr && time_line->Stands()) return;  // the events are not lost
  LoseEvents();
  if (own_ends.load() > 0) return;  // new events would still belong to the ending context
  // Never popped: the context that was pushed before is that of the former life.
  if (driver.PushContext(context) != driver::Result::kSuccess) return;
  events.Renew();
  // Without a message, which needs no memory of the host.
  absl::StatusOr<std::unique_ptr<meter::TimeLine>> made =
      absl::Status(absl::StatusCode::kResourceExhausted, "");
  try {
    made = meter::TimeLine::Create(driver, events);
  } catch (const std::bad_alloc&) {
  }
  if (!made.ok()) {
    events.Abandon();
    return;
  }
  time_line = *std::move(made);
  marker_cost = time_line->marker_cost();
  measures = true;
  const Section section(*this);
  time_line->ShiftTo(submit_offset);  // so that device time goes on for the replay
  offset_seen = clock.Now();
  health = absl::OkStatus();
}

// Makes sure that the first launch in a new life of the context finds events of that life, so that a program which ends its
// context after every launch is measured too.
void Engine::Impl::AwaitRenewal() {
  events_suspect = true;
  AwaitLook();
}

}  // namespace gpushare::gate
