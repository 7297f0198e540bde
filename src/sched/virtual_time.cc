// SPDX-License-Identifier: Apache-2.0
// The tags by which tenants are ordered: what each has been charged by its weight (F) and by its guarantee (R), and how the tags
// of a tenant that comes back are set.
#include <algorithm>

#include "sched/state.h"

namespace gpushare::sched {
namespace {

// Moves a tag by `step`, forwards up to `most` and backwards down to `least`. What is cut off forwards was
// never charged, so a later correction of the same work takes that back first.
void MoveTag(double step, double least, double most, double* tag, double* forgiven) {
  if (step >= 0) {
    const double to = std::min(*tag + step, std::max(*tag, most));
    *forgiven += *tag + step - to;
    *tag = to;
    return;
  }
  const double undone = std::min(-step, *forgiven);
  *forgiven -= undone;
  *tag = std::max(*tag + step + undone, std::min(*tag, least));
}

}  // namespace

using State = Arbiter::State;

double State::LeastOther(TenantId id) const {
  const Peers& b = *tenants[id].peers;
  double least = kInfinity, key = 0;
  if (b.waiting_f.LeastExcept(id, &key)) least = std::min(least, key);
  if (b.running_f.LeastExcept(id, &key)) least = std::min(least, key);
  return least == kInfinity ? b.virtual_time : least;
}

double State::LeastOtherReserve(TenantId id) const {
  const Peers& b = *tenants[id].peers;
  double least = ReserveClock(tenants[id]), key = 0;
  if (b.waiting_r.LeastExcept(id, &key)) least = std::min(least, key);
  if (b.running_r.LeastExcept(id, &key)) least = std::min(least, key);
  return least;
}

// Credit that a tenant saved up while it did not contend is worth at most `burst` of device time.
void State::Wakes(TenantId id, Place was) {
  TenantState& t = at(id);
  t.f = std::max(t.f, LeastOther(id) - Ns(t.limits.burst) / t.limits.weight);
  if (was == Place::kCapped && t.guaranteed()) {
    t.r = std::max(t.r, LeastOtherReserve(id) - Ns(t.limits.burst) / t.limits.guarantee);
  }
  if (t.idle_since != kNever) {
    EndIdle(id);
    t.idle_since = Idle(t) ? now : kNever;
  }
}

// Idle time earns no credit against a guarantee beyond `burst`; time spent waiting does.
void State::EndIdle(TenantId id) {
  TenantState& t = at(id);
  if (t.idle_since == kNever) return;
  const double idle = Ns(now - t.idle_since);
  t.idle_since = kNever;
  if (!t.guaranteed()) return;
  const double least = LeastOtherReserve(id) - Ns(t.limits.burst) / t.limits.guarantee;
  if (t.r < least) t.r = std::min(t.r + idle, least);
}

// Device time that was offered in turn and not asked for is lost, beyond `burst`.
bool State::ClampToLent(TenantState& t) {
  const Peers& b = *t.peers;
  const double f = t.f, r = t.r;
  t.f = std::max(f, b.lent_f - Ns(t.limits.burst) / t.limits.weight);
  if (t.guaranteed()) t.r = std::max(r, b.lent_r - Ns(t.limits.burst) / t.limits.guarantee);
  return t.f != f || t.r != r;
}

// A debt or a credit is worth at most `debt_horizon` of virtual time. So a tenant that ran a very long mispredicted
// command is not starved for it, nor does it starve others when its charge is corrected.
inline void State::TagAlone(TenantId id, bool guarantee, double ns) {
  TenantState& t = at(id);
  const double horizon_ns = Ns(options.debt_horizon);
  if (guarantee && t.guaranteed()) {
    const double clock = ReserveClock(t);
    MoveTag(ns / t.limits.guarantee, clock - horizon_ns, clock + horizon_ns, &t.r, &t.forgiven_r);
  } else {
    const Peers& b = *t.peers;
    double least = -kInfinity, most = kInfinity;
    if (b.active > 1 || (b.active == 1 && t.place == Place::kInactive)) {
      const double middle = LeastOther(id), reach = horizon_ns / b.active_weight;
      least = middle - reach;
      most = middle + reach;
    }
    MoveTag(ns / t.limits.weight, least, most, &t.f, &t.forgiven_f);
  }
  if (t.capped()) {
    bucket(t).Advance(now);
    bucket(t).Take(ns);
  }
}

void State::Tag(TenantId id, Phase phase, double ns) {
  TagAlone(id, OfGuarantee(phase), ns);
  if (at(id).group_id != kNobody) TagAlone(at(id).group_id, OfParentsGuarantee(phase), ns);
}

void State::SignOfLife(TenantState& t, Time ended) {
  if (!t.synced && !t.blocked && t.place != Place::kInactive && now > t.last_life) {
    const double sample = std::min(Ns(now - t.last_life), 200'000.0);
    t.gap_ns += 0.1 * (sample - t.gap_ns);
  }
  t.synced = false;
  t.last_life = t.last_act = now;
  if (!gated(t)) {
    high_last = std::max(high_last, std::min(ended, now));
    high_seen = true;
  }
}

}  // namespace gpushare::sched
