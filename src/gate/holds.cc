// SPDX-License-Identifier: Apache-2.0
// How long work is held at most, because another tenant may be waiting for it, and what it costs to fake such a wait.
#include <algorithm>

#include "gate/state.h"

namespace gpushare::gate {
namespace {

// Before work is let through again at the bound of holds, it is held for kHoldPerUse times the device time that such work used.
// If no work is let through for kSilencePerHold times that hold, the tenant starts anew.
constexpr int kHoldPerUse = 10, kSilencePerHold = 10;

bool PassedInFlight(const TenantState& tenant) {
  return tenant.passing ||
         std::any_of(tenant.streams.begin(), tenant.streams.end(), [](const auto& stream) {
           return stream->unmarked_passed ||
                  std::any_of(stream->markers.begin(), stream->markers.end(),
                              [](const Marker& marker) { return marker.passed; });
         });
}

}  // namespace

// `own` is when work is let through because the caller bounds its hold; `others` when it is let through because another tenant
// may be waiting for it. It is unknown what a stream that waits for a value or for a host function is waiting for.
Engine::Impl::Bounds Engine::Impl::BoundsOf(const TenantState& tenant, const GrantRequest& request,
                                            Time began, Time now) const {
  Bounds bounds;
  if (request.lease || tenant.suspended) return bounds;
  if (request.longest_hold != kNoBound) bounds.own = After(began, request.longest_hold);
  const Time since = std::max(began, tenant.passed);
  const Nanos hold = DeadlockHold(tenant, now);
  for (const StreamGate* stream : marked_streams) {
    if (stream->tenant == &tenant || stream->held_up_since == kNever) continue;
    bounds.others = std::min(bounds.others, After(std::max(since, stream->held_up_since), hold));
  }
  return bounds;
}

// Each time a command of the tenant is let through, the next one is held twice as long, and at least ten times as long as such
// commands used the device. This ends after a long enough silence. The reason is that a wait may be faked to get a tenant past
// its limits. While such a command is in flight, there is no silence, however long the host does nothing.
Nanos Engine::Impl::DeadlockHold(const TenantState& tenant, Time now) const {
  if (tenant.hold == Nanos(0)) return options.deadlock_hold;
  const Nanos hold = std::max(tenant.hold, kHoldPerUse * tenant.passed_used);
  if (now - tenant.passed <= kSilencePerHold * hold || PassedInFlight(tenant)) return hold;
  return options.deadlock_hold;
}

void Engine::Impl::Pass(TenantState& tenant, Time now) {
  const Nanos hold = DeadlockHold(tenant, now);
  if (hold < tenant.hold) tenant.passed_used = Nanos(0);  // forgiven
  tenant.hold = std::min(2 * hold, Nanos(Seconds(10)));
  tenant.passed = now;
}

void Engine::Impl::PassedDone(TenantState& tenant, Nanos used, Time now) {
  tenant.passed_used += used;
  tenant.passed = now;
}

}  // namespace gpushare::gate
