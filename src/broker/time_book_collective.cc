// SPDX-License-Identifier: Apache-2.0
// How a tenant's caps on several GPUs act on one another; collective.h says why.
#include <algorithm>
#include <optional>
#include <utility>

#include "broker/time_book.h"

namespace gpushare::broker {
namespace {

// The least device time that passes a cap at once.
constexpr Nanos kLeastPassed = Micros(100);

}  // namespace

// Whether a process's work in flight should have ended. nullopt: it has nothing in flight.
std::optional<bool> TimeBook::LateInFlight(const Member& member, Time now) const {
  const ipc::UsagePage& usage = *member.seat->usage;
  if (usage.time_in_flight_ns.load(kRelaxed) <= 0) return std::nullopt;
  const int64_t ends = usage.time_ends_ns.load(kRelaxed);
  if (ends == ipc::UsagePage::kGuess) return now > member.until;
  return ends < now.time_since_epoch().count() - options_.overlap.count();
}

bool TimeBook::HasInFlight(const Tenant& tenant, bool late, Time now) const {
  return std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
    return member.tenant == &tenant && LateInFlight(member, now) == late;
  });
}

// Work that passes a cap may take longer than its grant. The excess has to count too, or any amount could pass.
void TimeBook::CountBeyond(Tenant& tenant, int64_t ns, Time now) {
  if (tenant.passing && ns > 0) tenant.collective->Passed(Nanos(ns), now);
}

void TimeBook::Say(Tenant& tenant, Time now) {
  if (tenant.collective == nullptr) return;
  if (tenant.collective->sides() < 2) {
    tenant.held = tenant.passing = false;
    return;
  }
  bool in_debt = false;
  if (tenant.members > 0 && CapOf(tenant) < 1) {
    const Nanos tokens = arbiter_.View(tenant.id).cap_tokens;
    // The same rule as in the arbiter: a used-up cap has to cover a grant before it lets go.
    const Nanos enough =
        tenant.side->in_debt ? std::min(settings_.slice, tenant.limits.cap_depth / 2) : Nanos(0);
    in_debt = tokens <= enough;
  }
  tenant.collective->Say(*tenant.side, HasInFlight(tenant, /*late=*/true, now), in_debt, now);
  tenant.passing &= in_debt;
  tenant.held = CapOf(tenant) < 1 && tenant.collective->HeldInStep(*tenant.side, now);
}

Time TimeBook::PassHeld(Tenant& tenant, Time now, Changed& changed) {
  if (tenant.collective == nullptr || tenant.collective->sides() < 2) return kNever;
  if (CapOf(tenant) >= 1 || tenant.suspended || tenant.line.empty()) return kNever;
  // It waits for other tenants, not for its cap.
  if (!tenant.side->in_debt && !tenant.held) return kNever;
  if (arbiter_.Closed(tenant.limits.band, now)) return kNever;  // it could not begin anyway
  // Only a look can tell what is late on other GPUs and when their caps are paid.
  const Time at = tenant.collective->PassesAt(*tenant.side);
  // Work that is about to end here may be what the other GPUs wait for.
  if (now < at || HasInFlight(tenant, /*late=*/false, now)) {
    return now < at ? std::min(at, now + options_.look) : now + options_.look;
  }
  // Pass only as much as the first process asks for, so that the work others wait for is done before much else begins.
  Member& member = *tenant.line.front();
  const int64_t wanted = member.seat->usage->time_wanted_ns.load(kRelaxed);
  const Nanos amount = std::clamp(Nanos(wanted), kLeastPassed, settings_.slice);
  const sched::Phase phase = arbiter_.Charge(tenant.id, amount, now);
  tenant.collective->Passed(amount, now);
  tenant.passing = true;
  if (std::exchange(tenant.blocked, false)) arbiter_.Unblock(tenant.id, now);
  Give(tenant, {.tenant = tenant.id, .amount = amount, .phase = phase}, now, changed);
  return now + options_.overlap;
}

}  // namespace gpushare::broker
