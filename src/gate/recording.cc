// SPDX-License-Identifier: Apache-2.0
// What the parts of the engine tell the flight recorder.
#include <algorithm>

#include "gate/state.h"

namespace gpushare::gate {

void Engine::Impl::RecordWait(const TenantState& tenant, const GrantRequest& request, Time began,
                              Time ended, bool gave_up) {
  TraceEvent event = {.kind = TraceEvent::Kind::kWait,
                      .begin = began,
                      .end = ended,
                      .value = static_cast<int64_t>(request.charge)};
  if (gave_up) event.flags |= TraceEvent::kGaveUp;
  if (request.lease) event.flags |= TraceEvent::kForLease;
  recorder->Record(event, tenant.name);
}

void Engine::Impl::RecordSettled(const Marker& marker, Nanos began, Nanos ended, Nanos used) {
  const Time end(ended + submit_offset);
  TraceEvent event = {.kind = TraceEvent::Kind::kDevice,
                      .count = static_cast<uint32_t>(marker.commands),
                      .begin = std::min(Time(began + submit_offset), end),
                      .end = end,
                      .value = used.count()};
  if (marker.lease) event.flags |= TraceEvent::kForLease;
  recorder->Record(event, marker.stream->tenant->name);
}

void Engine::Impl::RecordOverdue(const TenantState& tenant, Nanos more, Time now) {
  recorder->Record({.kind = TraceEvent::Kind::kDevice,
                    .flags = TraceEvent::kOverdue,
                    .begin = now,
                    .end = now,
                    .value = more.count()},
                   tenant.name);
}

void Engine::Impl::RecordLease(const LeaseState& lease, Time released, bool charged_as_held) {
  TraceEvent event = {.kind = TraceEvent::Kind::kLease,
                      .begin = lease.acquired,
                      .end = released,
                      .value = lease.request.hint.count()};
  if (lease.request.exclusive) event.flags |= TraceEvent::kExclusive;
  if (released - lease.acquired > lease.request.maximum) event.flags |= TraceEvent::kOverrun;
  recorder->Record(event, lease.tenant->name);
  if (!charged_as_held) return;
  recorder->Record({.kind = TraceEvent::Kind::kDevice,
                    .flags = TraceEvent::kForLease,
                    .count = 1,
                    .begin = lease.acquired,
                    .end = released,
                    .value = (released - lease.acquired).count()},
                   lease.tenant->name);
}

void Engine::Impl::RecordCopyWait(const TenantState& tenant, CopyDirection direction,
                                  uint64_t bytes, Time began, Time ended) {
  recorder->Record({.kind = TraceEvent::Kind::kCopyWait,
                    .begin = began,
                    .end = ended,
                    .value = static_cast<int64_t>(bytes),
                    .other = static_cast<uint64_t>(direction)},
                   tenant.name);
}

void Engine::Impl::RecordSuspend(const TenantState& tenant, Time now) {
  recorder->Record({.kind = TraceEvent::Kind::kSuspend,
                    .begin = now,
                    .end = now,
                    .value = tenant.suspended ? 1 : 0},
                   tenant.name);
}

}  // namespace gpushare::gate
