// SPDX-License-Identifier: Apache-2.0
// The end of a context. Work that is over by then is measured, from markers that are read before they are gone. Other work is
// charged until the driver's call has returned: whether the driver waits for the work or cuts it off, it runs no longer.
#include <algorithm>
#include <utility>

#include "gate/state.h"

namespace gpushare::gate {

void Engine::Impl::AwaitLook() {
  const uint32_t asked = looks_asked.fetch_add(1) + 1;
  Poke();
  for (;;) {
    const uint32_t done = looks_done.load(std::memory_order_acquire);
    if (static_cast<int32_t>(done - asked) >= 0) return;
    clock.Wait(looks_done, done, kNever, options.spin);
  }
}

bool Engine::Impl::InFlight(const meter::EventPool* pool) const {
  return std::any_of(marked_streams.begin(), marked_streams.end(),
                     [&](const StreamGate* stream) { return stream->events == pool; });
}

void Engine::Impl::ContextEnds(driver::Context ending) {
  const bool own = ending == context;
  if (own) ++own_ends;
  meter::EventPool* pool = own ? &events : nullptr;
  bool in_flight = false;
  {
    const Section section(*this);
    for (const ForeignPool& foreign : foreign_pools) {
      if (foreign.context == ending) pool = foreign.events.get();
    }
    if (pool == nullptr) return;
    in_flight = InFlight(pool);
  }
  if (in_flight) AwaitLook();
  {
    const Time now = clock.Now();
    const Section section(*this);
    in_flight = InFlight(pool);
    std::erase_if(marked_streams, [&](StreamGate* stream) {
      if (stream->events != pool) return false;
      stream->ended = true;
      stream->ends_since = now;
      return true;
    });
    for (ForeignPool& foreign : foreign_pools) {
      if (foreign.events.get() == pool) foreign.context = nullptr;
    }
    for (const auto& tenant : tenants) {
      if (tenant != nullptr) ForgetCopies(*tenant, pool);
    }
    pool->Abandon();
    context_ends = context_ends || own;
  }
  // A copying thread may be querying an event of this pool right now; threads that begin to copy find none of them. Events of
  // other contexts need no wait.
  while (pool->asked()) {
    clock.SleepUntil(clock.Now() + Micros(20));
  }
  // The reconciler may be querying an event of this pool right now.
  if (in_flight || own) AwaitLook();
}

void Engine::Impl::ContextEnded(driver::Context ended) {
  if (ended == context) --own_ends;
  const auto for_each = [&](const auto& what) {
    mu.AssertHeld();
    for (const auto& tenant : tenants) {
      if (tenant == nullptr) continue;
      for (const auto& stream : tenant->streams) {
        if (stream->ended && ContextOf(*stream) == ended) what(*stream);
      }
    }
  };
  bool any = false;
  {
    const Section section(*this);
    for_each([&](StreamGate&) { any = true; });
  }
  if (!any) return;
  AwaitLook();  // so that device time of other streams is settled as theirs first
  const Time now = clock.Now();
  const Section section(*this);
  for_each([&](StreamGate& stream) {
    mu.AssertHeld();
    SettleEnded(stream, now);
  });
  RunArbiter(now, nullptr);
}

void Engine::Impl::SettleEnded(StreamGate& stream, Time now) {
  TenantState& tenant = *stream.tenant;
  stream.ended = false;
  if (stream.markers.empty()) return;  // the reconciler has seen all of them complete
  // In the replay the oldest batch has run until now, and those behind it have not begun.
  Nanos used(static_cast<int64_t>(replay.UsedSoFar(stream.replay, DeviceTime(now))));
  // A batch that was not seen to begin may have begun while the driver ended the context, unless it waits for the host.
  const Marker& first = stream.markers.front();
  if (first.commands == 0) used = first.waits_for_host ? Nanos(0) : now - stream.ends_since;
  for (const Marker& marker : stream.markers) {
    --stream.markers_pending;
    UnknownDone(tenant, marker.unknown);
    if (marker.waits_for_host) arbiter.Resume(tenant.id, now);
    if (marker.commands == 0) continue;
    const Nanos measured = std::exchange(used, Nanos(0));
    arbiter.Settle(tenant.id, marker.phase, Nanos(marker.charged_ns),
                   measured - Nanos(marker.accrued_ns), marker.commands, now);
    tenant.stats.predicted += Nanos(marker.charged_ns);
    tenant.stats.measured += measured - Nanos(marker.accrued_ns);
    if (marker.passed) PassedDone(tenant, measured, now);
  }
  // The stream may not have been removed, but its handle is invalid now and may soon mean another stream.
  for (; !stream.markers.empty(); stream.markers.pop_front()) {
    replay.Complete(stream.replay, DeviceTime(now), DeviceTime(now), meter::Replay::End::kUnknown);
  }
  if (stream.leaving && stream.markers_pending == 0) EndStream(stream);
}

}  // namespace gpushare::gate
