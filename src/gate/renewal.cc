// SPDX-License-Identifier: Apache-2.0
// The engine's events, and with them the time line, die with the engine's context. A primary context that was reset
// comes back to life when it is retained the next time: then they are made anew.
#include <utility>

#include "gate/state.h"

namespace gpushare::gate {

void Engine::Impl::LoseEvents() {
  events.Abandon();
  time_line.reset();
}

void Engine::Impl::RenewEvents() {
  if (time_line != nullptr && time_line->Stands()) return;  // it was something else
  LoseEvents();
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
  const Section section(*this);
  time_line->ShiftTo(submit_offset);  // to the replay it is the same time that goes on
  offset_seen = clock.Now();
  health = absl::OkStatus();
}

void Engine::Impl::OwnContextEnds() {
  {
    const Time now = clock.Now();
    const Section section(*this);
    const std::vector<StreamGate*> marked = marked_streams;
    for (StreamGate* stream : marked) {
      if (stream->events == &events) DropMarkers(*stream, now);
    }
    events.Abandon();
    context_ends = true;
    RunArbiter(now, nullptr);
  }
  // The reconciler may be asking for an event of it just now.
  Poke();
  while (context_ends.load()) clock.SleepUntil(clock.Now() + Micros(5));
}

}  // namespace gpushare::gate
