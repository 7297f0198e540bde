// SPDX-License-Identifier: Apache-2.0
// Leases: permits for code that launches on its own.
#include <algorithm>
#include <new>
#include <utility>

#include "gate/state.h"

namespace gpushare::gate {

// When the last of the tenant's exclusive leases ends, as far as known; `now` if it has none.
Time Engine::Impl::ExclusiveUntil(const TenantState& tenant, Time now) const {
  Time until = now;
  for (const LeaseState& lease : leases) {
    if (lease.tenant != &tenant || !lease.request.exclusive) continue;
    until = std::max(
        until, lease.request.held_back ? kNever : After(lease.acquired, lease.request.maximum));
  }
  return until;
}

std::vector<LeaseState>::iterator Engine::Impl::FindLease(uint64_t id) {
  return std::find_if(leases.begin(), leases.end(),
                      [id](const LeaseState& lease) { return lease.id == id; });
}

// What is launched on the lease's streams from now on belongs to the lease.
void Engine::Impl::OpenLease(const LeaseState& lease, Time now) {
  const LeaseRequest& request = lease.request;
  const float cost =
      static_cast<float>(request.hint.count()) / static_cast<float>(request.streams.size());
  for (StreamGate* stream : request.streams) OpenLeaseOn(*stream, cost, now);
}

void Engine::Impl::OpenLeaseOn(StreamGate& stream, float cost, Time now) {
  const bool idle = stream.markers_pending == 0 && stream.unmarked == 0;
  if (idle) stream.recorded_until = DeviceTime(now);  // what is launched now did not begin before
  try {
    replay.Append(stream.replay, {meter::CostModel::kCatchAll, cost, 1, /*opaque=*/true},
                  DeviceTime(now));
  } catch (const std::bad_alloc&) {
    // Work launched there is then charged to no other tenant, and the lease is charged its hint.
  }
}

namespace {

// Reserves room for one more lease while it exists.
class LeaseRoom {
 public:
  explicit LeaseRoom(Engine::Impl& engine) : engine_(engine) {
    const Section section(engine_);
    engine_.leases.reserve(engine_.leases.size() + engine_.leases_asked + 1);
    ++engine_.leases_asked;
  }
  ~LeaseRoom() {
    const Section section(engine_);
    --engine_.leases_asked;
  }
  LeaseRoom(const LeaseRoom&) = delete;
  LeaseRoom& operator=(const LeaseRoom&) = delete;

 private:
  Engine::Impl& engine_;
};

}  // namespace

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
                              .deadline = request.deadline,
                              .called_off = request.called_off};
  uint64_t id = 0;
  // Everything that needs memory is done before the grant is spent.
  LeaseState lease = {0, &tenant, request, request.hint.count(), {}, {}};
  const LeaseRoom room(engine);
  const Verdict verdict = engine.WaitForGrant(tenant, grant, [&](uint32_t launch, Time now) {
    engine.mu.AssertHeld();
    tenant.ring->Put({launch, 0, LaunchRecord::kNoEntry, false, false});
    tenant.accounted_ns += request.hint.count();
    id = lease.id = engine.next_lease++;
    lease.phase = tenant.phase;
    lease.acquired = now;
    engine.leases.push_back(std::move(lease));
    // What runs under a lease is not seen, so it may leave a part of the device to others.
    engine.arbiter.SetLeaves(tenant.id, true);
    if (request.exclusive) {
      engine.arbiter.HoldExclusive(tenant.id, engine.ExclusiveUntil(tenant, now));
    }
    if (!request.held_back) engine.OpenLease(engine.leases.back(), now);
  });
  switch (verdict) {
    case Verdict::kAdmitted:
      return id;
    case Verdict::kDeadline:
      return absl::DeadlineExceededError("tenant '" + tenant.name +
                                         "': no lease before the deadline");
    case Verdict::kEnded:
      return absl::CancelledError("tenant '" + tenant.name + "': " + kEvicted);
    case Verdict::kInterrupted:
      return absl::CancelledError("tenant '" + tenant.name + "': " + kInterruptedText);
    case Verdict::kCalledOff:
      return absl::CancelledError("tenant '" + tenant.name + "': the lease was called off");
    case Verdict::kSuspended:
      break;
  }
  return absl::CancelledError("tenant '" + tenant.name + "' was removed");
}

void Gate::LookAtCalledOff() {
  const Section section(state_->engine);
  state_->engine.Wake(*state_);
}

void Gate::BeginLease(uint64_t id) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  const Time now = engine.clock.Now();
  const Section section(engine);
  const auto at = engine.FindLease(id);
  if (at == engine.leases.end()) return;
  LeaseState& lease = *at;
  if (lease.request.exclusive) {
    const Nanos kept = now - lease.acquired;
    engine.arbiter.Settle(tenant.id, lease.phase, Nanos(0), kept, 0, now);
    tenant.stats.measured += kept;
  }
  lease.request.held_back = false;
  lease.acquired = now;
  engine.OpenLease(lease, now);
  if (!lease.request.exclusive) return;
  engine.arbiter.HoldExclusive(tenant.id, engine.ExclusiveUntil(tenant, now));
  engine.RunArbiter(now, nullptr);  // waiters were given no time at which the lease ends
}

void Gate::ExtendLease(uint64_t id, const std::vector<StreamGate*>& streams) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  engine.CloseOpen(tenant, nullptr);  // earlier launches there do not belong to the lease
  const Time now = engine.clock.Now();
  const Section section(engine);
  const auto at = engine.FindLease(id);
  if (at == engine.leases.end() || at->request.streams.empty()) return;
  LeaseRequest& request = at->request;
  request.streams.reserve(request.streams.size() + streams.size());
  const float cost = static_cast<float>(request.hint.count()) /
                     static_cast<float>(request.streams.size() + streams.size());
  for (StreamGate* const stream : streams) {
    const auto end = request.streams.end();
    if (std::find(request.streams.begin(), end, stream) != end) continue;
    request.streams.push_back(stream);
    if (!request.held_back) engine.OpenLeaseOn(*stream, cost, now);
  }
}

Gate::LeaseResult Gate::LookAtLease(uint64_t id) {
  Engine::Impl& engine = state_->engine;
  const Time now = engine.clock.Now();
  const Section section(engine);
  const auto at = engine.FindLease(id);
  if (at == engine.leases.end()) return {};
  const Nanos held = now - at->acquired;
  return {held, held > at->request.maximum};
}

Gate::LeaseResult Gate::ReleaseLease(uint64_t id) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  const Time now = engine.clock.Now();
  LeaseState lease;
  {
    const Section section(engine);
    const auto at = engine.FindLease(id);
    if (at == engine.leases.end()) return {};
    lease = std::move(*at);
    engine.leases.erase(at);
    if (lease.request.exclusive) {
      engine.arbiter.HoldExclusive(tenant.id, engine.ExclusiveUntil(tenant, now));
    }
    // If the gang never became complete, the lease has run nothing.
    if (lease.request.held_back) lease.request.streams.clear();
    int64_t charge = lease.charged_ns;
    for (StreamGate* stream : lease.request.streams) {
      if (!stream->live || stream->leaving) continue;
      ++stream->unmarked;
      stream->unmarked_lease = true;
      stream->unmarked_ns += charge;
      charge = 0;
    }
    if (engine.recorder->on()) [[unlikely]] {
      engine.RecordLease(lease, now, /*charged_as_held=*/charge > 0);
    }
    if (charge > 0) {
      // Without a stream for a marker, the lease is charged the time for which it was held.
      const bool kept = lease.request.exclusive || !lease.request.held_back;
      const Nanos measured = kept ? now - lease.acquired : Nanos(0);
      engine.arbiter.Launched(tenant.id, 1, now);
      engine.arbiter.Settle(tenant.id, lease.phase, Nanos(charge), measured, 1, now);
      tenant.stats.predicted += Nanos(charge);
      tenant.stats.measured += measured;
    }
    if (lease.request.held_back) engine.RunArbiter(now, nullptr);  // as in BeginLease()
  }
  engine.CloseOpen(tenant, nullptr);
  Synchronizing(nullptr);
  const Nanos held = now - lease.acquired;
  return {held, held > lease.request.maximum};
}

}  // namespace gpushare::gate
