// SPDX-License-Identifier: Apache-2.0
// What a tenant's time on one GPU has to do with that on others; collective.h says why.
#include <algorithm>
#include <optional>
#include <utility>

#include "broker/time_book.h"

namespace gpushare::broker {
namespace {

// Of what passes a cap, each time.
constexpr Nanos kLeastPassed = Micros(100);

}  // namespace

// Whether what a process has in flight should have ended; nothing: it has nothing in flight.
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

// What passes may be longer than it was granted, and count for no more would let pass as much as there is.
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
  if (tenant.members > 0 && tenant.limits.cap < 1) {
    const Nanos tokens = arbiter_.View(tenant.id).cap_tokens;
    // As the arbiter has it: what is used up is worth a grant before it lets go.
    const Nanos enough =
        tenant.side->in_debt ? std::min(settings_.slice, tenant.limits.cap_depth / 2) : Nanos(0);
    in_debt = tokens <= enough;
  }
  tenant.collective->Say(*tenant.side, HasInFlight(tenant, /*late=*/true, now), in_debt, now);
  tenant.passing &= in_debt;
  tenant.held = tenant.limits.cap < 1 && tenant.collective->HeldInStep(*tenant.side, now);
}

Time TimeBook::PassHeld(Tenant& tenant, Time now, Changed& changed) {
  if (tenant.collective == nullptr || tenant.collective->sides() < 2) return kNever;
  if (tenant.limits.cap >= 1 || tenant.suspended || tenant.line.empty()) return kNever;
  if (!tenant.side->in_debt && !tenant.held) return kNever;     // it is in line for others
  if (arbiter_.Closed(tenant.limits.band, now)) return kNever;  // it could not begin
  // What is late on other GPUs, and when their caps are paid, a look alone can tell.
  const Time at = tenant.collective->PassesAt(*tenant.side);
  // And what is about to end may be what the others wait for.
  if (now < at || HasInFlight(tenant, /*late=*/false, now)) {
    return now < at ? std::min(at, now + options_.look) : now + options_.look;
  }
  // What others wait for is to be over before much else has begun.
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
