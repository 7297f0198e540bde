// SPDX-License-Identifier: Apache-2.0
// Leases: permits for code that launches on its own.
#include <algorithm>
#include <utility>

#include "gate/state.h"

namespace gpushare::gate {

absl::StatusOr<uint64_t> Gate::AcquireLease(const LeaseRequest& request) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  if (request.hint <= Nanos(0) || request.hint > kLongestHint || request.maximum < request.hint) {
    return absl::InvalidArgumentError(
        "lease: the hint must be above 0, at most 60s and at most the maximum");
  }
  engine.OpenBooks(tenant);
  engine.CloseOpen(tenant, nullptr);
  const GrantRequest grant = {.charge = static_cast<uint64_t>(request.hint.count()),
                              .own_grant = true,
                              .exclusive = request.exclusive,
                              .cost_known = true,
                              .lease = true,
                              .deadline = request.deadline};
  uint64_t id = 0;
  const Verdict verdict = engine.WaitForGrant(tenant, grant, [&](uint32_t launch, Time now) {
    engine.mu.AssertHeld();
    tenant.ring->Put({launch, 0, LaunchRecord::kNoEntry, false, false});
    tenant.accounted_ns += request.hint.count();
    id = engine.next_lease++;
    engine.leases.push_back({id, &tenant, request, request.hint.count(), tenant.phase, now, now});
    if (request.exclusive) {
      engine.arbiter.HoldExclusive(tenant.id, request.held_back ? kNever : now + request.maximum);
    }
    if (request.streams.empty()) return;
    const float cost =
        static_cast<float>(request.hint.count()) / static_cast<float>(request.streams.size());
    for (StreamGate* stream : request.streams) {
      const bool idle = stream->markers_pending == 0 && stream->unmarked == 0;
      if (idle) stream->recorded_until = engine.DeviceTime(now);  // what comes did not begin before
      engine.replay.Append(stream->replay, {meter::CostModel::kCatchAll, cost, 1, /*opaque=*/true},
                           engine.DeviceTime(now));
    }
  });
  switch (verdict) {
    case Verdict::kAdmitted:
      return id;
    case Verdict::kDeadline:
      return absl::DeadlineExceededError("tenant '" + tenant.name +
                                         "': no lease before the deadline");
    case Verdict::kSuspended:
      break;
  }
  return absl::CancelledError("tenant '" + tenant.name + "' was removed");
}

void Gate::BeginLease(uint64_t id) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  const Time now = engine.clock.Now();
  const Section section(engine);
  const auto at = std::find_if(engine.leases.begin(), engine.leases.end(),
                               [id](const LeaseState& lease) { return lease.id == id; });
  if (at == engine.leases.end()) return;
  at->begun = now;
  if (at->request.exclusive) engine.arbiter.HoldExclusive(tenant.id, now + at->request.maximum);
}

Gate::LeaseResult Gate::ReleaseLease(uint64_t id) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  const Time now = engine.clock.Now();
  LeaseState lease;
  {
    const Section section(engine);
    const auto at = std::find_if(engine.leases.begin(), engine.leases.end(),
                                 [id](const LeaseState& l) { return l.id == id; });
    if (at == engine.leases.end()) return {};
    lease = std::move(*at);
    engine.leases.erase(at);
    if (lease.request.exclusive) engine.arbiter.HoldExclusive(tenant.id, now);
    int64_t charge = lease.charged_ns;
    for (StreamGate* stream : lease.request.streams) {
      if (!stream->live) continue;
      ++stream->unmarked;
      stream->unmarked_lease = true;
      stream->unmarked_ns += charge;
      charge = 0;
    }
    if (engine.recorder->on()) [[unlikely]] {
      engine.RecordLease(lease, now, /*charged_as_held=*/charge > 0);
    }
    if (charge > 0) {
      // No stream to put a marker on: what is charged is the time that it was held.
      engine.arbiter.Launched(tenant.id, 1, now);
      engine.arbiter.Settle(tenant.id, lease.phase, Nanos(charge), now - lease.acquired, 1, now);
      tenant.stats.predicted += Nanos(charge);
      tenant.stats.measured += now - lease.acquired;
    }
  }
  engine.CloseOpen(tenant, nullptr);
  Synchronizing(nullptr);
  const Nanos held = now - lease.begun;
  return {held, held > lease.request.maximum};
}

}  // namespace gpushare::gate
