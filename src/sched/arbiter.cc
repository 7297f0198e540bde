// SPDX-License-Identifier: Apache-2.0
// The arbiter's public calls, in terms of its books.
#include "sched/arbiter.h"

#include <algorithm>
#include <utility>

#include "sched/state.h"

namespace gpushare::sched {
namespace {

// Amounts come from measurements and predictions. An absurd one must not overflow the books.
Nanos Sane(Nanos amount) { return std::clamp(amount, Nanos(0), Seconds(24 * 3600)); }

// Limits are validated where they enter (CheckLimits in policies.h). Values that got past that check must
// still not cause a division by zero here.
TenantLimits Usable(TenantLimits limits) {
  if (!(limits.weight >= 1e-6)) limits.weight = 1e-6;
  if (!(limits.guarantee >= 0)) limits.guarantee = 0;
  if (!(limits.cap > 0)) limits.cap = 1e-6;
  limits.guarantee = std::min({limits.guarantee, limits.cap, 1.0});
  limits.cap_depth = std::max(limits.cap_depth, Nanos(1));
  limits.burst = std::max(limits.burst, Nanos(0));
  return limits;
}

}  // namespace

using State = Arbiter::State;

Time State::Observe(Time t) {
  if (!started) {
    started = true;
    epoch = now = budget_at = horizon = high_horizon = t;
  }
  // Callers read the clock before they take the lock around the arbiter, so a call may pass a slightly
  // older time than the call before it.
  now = std::max(now, t);
  return now;
}

Arbiter::Arbiter(const ArbiterOptions& options) : state_(std::make_unique<State>(options)) {}
Arbiter::~Arbiter() = default;

void State::MakeRoom(size_t entries) {
  const size_t n = tenants.size() + entries;
  if (n <= room) return;
  const size_t more = 2 * n;
  tenants.reserve(more);
  for (IndexedHeap::Positions* table : {&position_f, &position_r, &position_capped}) {
    table->reserve(more);
  }
  free_ids.reserve(more);
  capped.Reserve(more);
  for (BandState& b : bands) b.Reserve(more);
  room = more;
}

TenantId State::NewEntry(const TenantLimits& limits) {
  TenantId id;
  if (!free_ids.empty()) {
    id = free_ids.back();
    free_ids.pop_back();
  } else {
    id = static_cast<TenantId>(tenants.size());
    tenants.emplace_back();
    for (IndexedHeap::Positions* table : {&position_f, &position_r, &position_capped}) {
      table->resize(tenants.size(), IndexedHeap::kAbsent);
    }
  }
  TenantState& t = at(id);
  t = TenantState();
  t.live = true;
  t.limits = limits;
  t.peers = &band(t);
  t.grant = options.grant;
  t.last_act = t.last_life = now - options.active_grace - Nanos(1);
  t.idle_since = now;
  const double depth = Ns(t.limits.cap_depth);
  t.bucket = TokenBucket(t.limits.cap, depth, depth, now);
  return id;
}

TenantId Arbiter::Add(const TenantLimits& limits, Time now, TenantId parent) {
  State& s = *state_;
  s.Observe(now);
  const TenantLimits usable = Usable(limits);
  const bool is_child = s.Known(parent);
  // All that needs memory: what follows cannot fail half-way.
  Places places;
  if (is_child) places = s.MakePlaces(parent, usable.band);
  s.MakeRoom(1 + kMostGroups);
  const TenantId id = s.NewEntry(usable);
  ++s.live;
  if (is_child) {
    Family* const family = s.FamilyOf(s.at(parent));
    s.Enter(id, family != nullptr ? *family : *s.MakeFamily(parent, places), places);
  } else {
    ++s.band(s.at(id)).registered;
  }
  TenantState& t = s.at(id);
  t.f = s.LeastOther(id);
  t.r = s.ReserveClock(t);
  GPUSHARE_SCHED_CHECK_BOOKS(s);
  return id;
}

void Arbiter::Update(TenantId tenant, const TenantLimits& limits, Time now) {
  State& s = *state_;
  s.Observe(now);
  if (!s.Known(tenant)) return;
  TenantLimits next = Usable(limits);
  Family* const family = s.FamilyOf(s.at(tenant));
  Places places;
  if (family != nullptr && next.band != s.at(tenant).limits.band) {
    places = s.MakePlaces(tenant, next.band);
    s.MakeRoom(kMostGroups);
  }
  if (family != nullptr && family->parent == tenant) {
    s.SetFamilyLimits(*family, next);
    next = AsMember(next);
  }
  s.Unfile(tenant);
  if (next.band != s.at(tenant).limits.band) {
    const Nanos outstanding = s.at(tenant).outstanding;
    const int commands = s.at(tenant).commands;
    const bool open = s.at(tenant).open;
    s.DropOutstanding(s.at(tenant), outstanding, /*unused=*/true);
    s.at(tenant).held_up = false;
    if (family != nullptr) {
      s.Leave(tenant);
    } else {
      --s.band(s.at(tenant)).registered;
    }
    s.at(tenant).limits.band = next.band;
    s.at(tenant).peers = &s.band(s.at(tenant));
    if (family != nullptr) {
      s.Enter(tenant, *family, places);
    } else {
      ++s.band(s.at(tenant)).registered;
    }
    TenantState& t = s.at(tenant);
    s.AddOutstanding(t, outstanding);
    s.AddCommands(t, commands);
    t.open = open;
    if (open) s.CountGated(t, 1);
    t.f = s.LeastOther(tenant);  // tags of different bands do not compare
    t.r = s.ReserveClock(t);
    if (s.exclusive == tenant) s.exclusive = kNobody;
  }
  TenantState& t = s.at(tenant);
  if (!t.guaranteed()) t.r = s.ReserveClock(t);
  t.forgiven_f = t.forgiven_r = 0;
  if (t.capped()) {
    t.bucket.Reshape(next.cap, Ns(next.cap_depth), s.now);
  } else {
    t.bucket = TokenBucket(next.cap, Ns(next.cap_depth), 0, s.now);  // it has saved up nothing
  }
  t.limits = next;
  s.File(tenant);
  GPUSHARE_SCHED_CHECK_BOOKS(s);
}

void Arbiter::Remove(TenantId tenant, Time now) {
  State& s = *state_;
  s.Observe(now);
  if (!s.Known(tenant)) return;
  TenantState& t = s.at(tenant);
  s.LeaveGraceList(tenant);
  s.Unfile(tenant);
  s.DropOutstanding(t, t.outstanding, /*unused=*/true);
  s.AddCommands(t, -t.commands);
  s.CloseOpen(t);
  if (s.exclusive == tenant) s.exclusive = kNobody;
  if (Family* const family = s.FamilyOf(t)) {
    if (family->parent == tenant) family->parent = kNobody;
    s.Leave(tenant);
    if (family->empty()) {
      std::erase_if(s.families, [&](const auto& one) { return one.get() == family; });
    }
  } else {
    --s.band(t).registered;
  }
  --s.live;
  t = TenantState();
  s.free_ids.push_back(tenant);
  GPUSHARE_SCHED_CHECK_BOOKS(s);
}

void Arbiter::Block(TenantId tenant, Nanos predicted, bool exclusive, Time now, int at_once,
                    bool known) {
  State& s = *state_;
  s.Observe(now);
  if (!s.Known(tenant)) return;
  TenantState& t = s.at(tenant);
  s.SignOfLife(t);
  if (!t.blocked) t.blocked_since = s.now;
  t.blocked = true;
  t.exclusive = exclusive;
  t.predicted = std::max(Sane(predicted), Nanos(1));
  t.at_once = std::max(at_once, 1);
  t.known = known;
  const auto within_horizon = [&](TenantState& one) {
    one.r = std::min(one.r, s.ReserveClock(one) + Ns(s.options.debt_horizon));
  };
  within_horizon(t);
  if (t.group_id != kNobody) within_horizon(s.at(t.group_id));
  s.File(tenant);
  GPUSHARE_SCHED_CHECK_BOOKS(s);
}

void Arbiter::Unblock(TenantId tenant, Time now) {
  State& s = *state_;
  s.Observe(now);
  if (!s.Known(tenant)) return;
  TenantState& t = s.at(tenant);
  if (!t.blocked) return;
  t.blocked = t.exclusive = false;
  t.last_life = t.last_act = s.now;
  t.bucket.KeepNoMore(s.now);
  s.File(tenant);
  GPUSHARE_SCHED_CHECK_BOOKS(s);
}

void Arbiter::Sync(TenantId tenant, Time now) {
  State& s = *state_;
  s.Observe(now);
  if (!s.Known(tenant)) return;
  s.at(tenant).synced = true;
  s.File(tenant);
  GPUSHARE_SCHED_CHECK_BOOKS(s);
}

void Arbiter::HoldUp(TenantId tenant, Time now) {
  State& s = *state_;
  s.Observe(now);
  if (!s.Known(tenant)) return;
  TenantState& t = s.at(tenant);
  if (t.held_up || !s.gated(t)) return;
  t.held_up = true;
  t.room = std::max(s.options.window - t.outstanding, Nanos(0));
  s.gated_outstanding -= t.outstanding - t.stale;
  t.stale = t.outstanding;
  s.stalled_until = std::min(s.stalled_until, s.now + s.options.stale);
  s.File(tenant);
  GPUSHARE_SCHED_CHECK_BOOKS(s);
}

void Arbiter::Resume(TenantId tenant, Time now) {
  State& s = *state_;
  s.Observe(now);
  if (!s.Known(tenant)) return;
  TenantState& t = s.at(tenant);
  if (!t.held_up) return;
  t.held_up = false;
  t.moves = true;
  const Nanos behind = std::exchange(t.stale, Nanos(0));
  s.gated_outstanding += behind;
  s.horizon = std::max(s.horizon, s.now) + behind;
  s.File(tenant);
  GPUSHARE_SCHED_CHECK_BOOKS(s);
}

void Arbiter::Touch(TenantId tenant, Time now) {
  State& s = *state_;
  s.Observe(now);
  if (!s.Known(tenant)) return;
  s.SignOfLife(s.at(tenant));
  s.File(tenant);
  GPUSHARE_SCHED_CHECK_BOOKS(s);
}

Phase Arbiter::Charge(TenantId tenant, Nanos predicted, Time now, Time ended) {
  State& s = *state_;
  s.Observe(now);
  if (!s.Known(tenant)) return Phase::kWeight;
  predicted = Sane(predicted);
  TenantState& t = s.at(tenant);
  s.SignOfLife(t, ended);
  s.EndIdle(tenant);
  const auto is_behind = [&](const TenantState& one) {
    return one.guaranteed() && one.r <= s.ReserveClock(one);
  };
  const bool is_member = t.group_id != kNobody;
  const Phase phase = PhaseOf(is_behind(t), is_member && is_behind(s.at(t.group_id)));
  t.charged += predicted;
  s.charged += predicted;
  s.AddOutstanding(t, predicted);
  s.AddCommands(t, 1);
  // Filed first, so that the credit of a tenant back from idle is clamped before it is charged.
  s.File(tenant);
  s.Tag(tenant, phase, Ns(predicted));
  s.File(tenant);
  const auto began = [&](TenantState& one, bool guarantee) {
    Peers& b = *one.peers;
    if (guarantee) return;
    b.virtual_time = std::max(b.virtual_time, one.f - Ns(predicted) / one.limits.weight);
  };
  began(t, OfGuarantee(phase));
  if (is_member) began(s.at(t.group_id), OfParentsGuarantee(phase));
  GPUSHARE_SCHED_CHECK_BOOKS(s);
  return phase;
}

void Arbiter::Settle(TenantId tenant, Phase phase, Nanos predicted, Nanos measured, int commands,
                     Time now, Time ended) {
  State& s = *state_;
  s.Observe(now);
  if (!s.Known(tenant)) return;
  TenantState& t = s.at(tenant);
  predicted = Sane(predicted);
  measured = Sane(measured);
  commands = std::max(commands, 0);
  const double correction = Ns(measured - predicted);
  s.Tag(tenant, phase, correction);
  t.charged += measured - predicted;
  s.charged += measured - predicted;
  if (t.on_floor) s.band(t).floor_tokens -= correction;
  t.last_act = s.now;
  // Work that is charged while it runs on has not ended. If that counted as a settlement, work that never ends
  // would never become stale.
  if (predicted > Nanos(0) || commands > 0) {
    s.LearnEarly(predicted, measured);
    if (commands > t.commands) s.CloseOpen(t);  // launches that were never reported
    s.AddCommands(t, -commands);
    s.DropOutstanding(t, predicted, /*unused=*/false);
    if (!s.gated(t)) {
      s.high_last = std::max(s.high_last, std::min(ended, s.now));
      s.high_seen = true;
    }
  }
  s.File(tenant);
  GPUSHARE_SCHED_CHECK_BOOKS(s);
}

void Arbiter::SetGrant(TenantId tenant, Nanos grant) {
  State& s = *state_;
  if (s.Known(tenant)) s.at(tenant).grant = std::max(grant, Nanos(0));
}

void Arbiter::SetLeaves(TenantId tenant, bool leaves) {
  State& s = *state_;
  if (!s.Known(tenant)) return;
  TenantState& t = s.at(tenant);
  const int in_flight = t.commands + (t.open ? 1 : 0);
  s.CountGated(t, -in_flight);
  t.leaves = leaves;
  s.CountGated(t, in_flight);
}

void Arbiter::SetWakeLatency(Nanos least) {
  state_->wake_latency = std::clamp(least, Nanos(0), state_->options.high_grace);
}

const ArbiterOptions& Arbiter::options() const { return state_->options; }

void Arbiter::SetOptions(const ArbiterOptions& options) {
  const ArbiterOptions before = std::exchange(state_->options, options);
  if (before.grant == options.grant) return;
  for (TenantState& tenant : state_->tenants) {
    if (tenant.live && tenant.grant == before.grant) tenant.grant = options.grant;
  }
}

void Arbiter::HoldHighBand(bool held) { state_->high_held = held; }

void Arbiter::SetBelow(bool below) { state_->below = below; }

double Arbiter::Entitled(TenantId tenant) const {
  State& s = *state_;
  if (!s.Known(tenant)) return 1;
  const auto part = [&](const TenantState& t) {
    double weights = t.peers->active_weight;
    if (t.place == Place::kInactive) weights += t.limits.weight;
    return t.limits.weight / std::max(weights, t.limits.weight);
  };
  const TenantState& t = s.at(tenant);
  if (t.group_id == kNobody) return std::max(t.limits.guarantee, part(t));
  const TenantState& group = s.at(t.group_id);
  return std::max(t.limits.guarantee, part(t) * std::max(group.limits.guarantee, part(group)));
}

void Arbiter::HoldExclusive(TenantId tenant, Time until) {
  State& s = *state_;
  if (s.exclusive == tenant) s.exclusive_until = until;
}

void Arbiter::Launched(TenantId tenant, int commands, Time now) {
  State& s = *state_;
  s.Observe(now);
  if (!s.Known(tenant) || commands <= 0) return;
  commands = std::min(commands, 1 << 20);
  TenantState& t = s.at(tenant);
  s.SignOfLife(t);
  s.CloseOpen(t);
  if (t.outstanding > Nanos(0)) s.AddCommands(t, commands);
  s.File(tenant);
  GPUSHARE_SCHED_CHECK_BOOKS(s);
}

void Arbiter::Return(TenantId tenant, Phase phase, Nanos unused, Time now) {
  State& s = *state_;
  s.Observe(now);
  if (!s.Known(tenant)) return;
  TenantState& t = s.at(tenant);
  s.CloseOpen(t);
  unused = std::min(unused, t.outstanding);
  if (unused > Nanos(0)) {
    s.Tag(tenant, phase, -Ns(unused));
    t.charged -= unused;
    s.charged -= unused;
    if (t.on_floor) s.band(t).floor_tokens += Ns(unused);
    s.DropOutstanding(t, unused, /*unused=*/true);
  }
  s.File(tenant);
  GPUSHARE_SCHED_CHECK_BOOKS(s);
}

void Arbiter::Foresee(Time ends, Time now) {
  State& s = *state_;
  s.Observe(now);
  s.CountIdle();
  s.horizon = std::max(ends, s.now);
  s.foreseen_at = s.now;
}

void Arbiter::Await(Time now) {
  State& s = *state_;
  s.Observe(now);
  s.awaited_at = s.now;
}

Time Arbiter::Run(Time now, std::vector<Grant>& grants, Beside* beside) {
  State& s = *state_;
  s.Observe(now);
  const Time again = s.Run(grants, beside);
  GPUSHARE_SCHED_CHECK_BOOKS(s);
  return again;
}

bool Arbiter::Closed(Band band, Time now) const {
  if (band == Band::kHigh) return false;
  Time until;
  return state_->draining || state_->ClosedByHigh(&until, std::max(now, state_->now));
}

bool Arbiter::Draining() const {
  Time until;
  return state_->draining && !state_->ClosedByHigh(&until, state_->now);
}

Arbiter::TenantView Arbiter::View(TenantId tenant) const {
  if (!state_->Known(tenant)) return TenantView{};
  const TenantState& t = state_->tenants[tenant];
  TenantView view{};
  view.blocked = t.blocked;
  view.active = t.place != Place::kInactive;
  view.outstanding = t.outstanding;
  view.virtual_time_ns = t.f;
  double tokens = t.bucket.LevelAt(state_->now);
  if (const Family* const family = state_->FamilyOf(t);
      family != nullptr && family->limits.cap < 1) {
    const double all = family->bucket.LevelAt(state_->now);
    tokens = t.capped() ? std::min(tokens, all) : all;
  }
  view.cap_tokens = Nanos(std::llround(tokens));
  view.charged = t.charged;
  return view;
}

Nanos Arbiter::Outstanding(Time now) const {
  return state_->GatedOutstanding(std::max(now, state_->now));
}

Arbiter::Totals Arbiter::totals() const {
  Totals totals{.charged = state_->charged,
                .ends = std::max(state_->horizon, state_->high_horizon)};
  for (const BandState& band : state_->bands) totals.unsettled += band.outstanding;
  return totals;
}

int Arbiter::tenants() const { return state_->live; }

const char* Arbiter::CheckInvariants() const { return state_->Broken(); }

}  // namespace gpushare::sched
