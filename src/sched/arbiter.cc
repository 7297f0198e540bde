// SPDX-License-Identifier: Apache-2.0
// The arbiter's calls, in terms of its books.
#include "sched/arbiter.h"

#include <algorithm>
#include <utility>

#include "sched/state.h"

namespace gpushare::sched {
namespace {

// Amounts come from measurements and predictions; one that is nonsense must not overflow the books.
Nanos Sane(Nanos amount) { return std::clamp(amount, Nanos(0), Seconds(24 * 3600)); }

// Limits are validated where they enter (CheckLimits in policies.h); a weight that got past it must
// still not divide by zero here.
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
  // Callers read their clock before they take the lock around the arbiter, so a call may carry a
  // slightly older time than the one before it.
  now = std::max(now, t);
  return now;
}

Arbiter::Arbiter(const ArbiterOptions& options) : state_(std::make_unique<State>(options)) {}
Arbiter::~Arbiter() = default;

TenantId Arbiter::Add(const TenantLimits& limits, Time now) {
  State& s = *state_;
  s.Observe(now);
  TenantId id;
  if (!s.free_ids.empty()) {
    id = s.free_ids.back();
    s.free_ids.pop_back();
  } else {
    id = static_cast<TenantId>(s.tenants.size());
    s.tenants.emplace_back();
    const size_t n = s.tenants.size();
    s.position_f.resize(n, IndexedHeap::kAbsent);
    s.position_r.resize(n, IndexedHeap::kAbsent);
    s.position_capped.resize(n, IndexedHeap::kAbsent);
    if (n >
        s.free_ids.capacity()) {  // grow everything that decisions push to, so that they never do
      const size_t room = 2 * n;
      s.free_ids.reserve(room);
      s.capped.Reserve(room);
      for (BandState& b : s.bands) {
        for (IndexedHeap* h : {&b.waiting_f, &b.running_f, &b.waiting_r, &b.running_r}) {
          h->Reserve(room);
        }
      }
    }
  }
  TenantState& t = s.at(id);
  t = TenantState();
  t.live = true;
  t.limits = Usable(limits);
  t.grant = s.options.grant;
  t.last_act = t.last_life = s.now - s.options.active_grace - Nanos(1);
  t.idle_since = s.now;
  const double depth = Ns(t.limits.cap_depth);
  t.bucket = TokenBucket(t.limits.cap, depth, depth, s.now);
  t.f = s.LeastOther(id);
  t.r = s.ReserveClock();
  ++s.live;
  ++s.band(t).registered;
  GPUSHARE_SCHED_CHECK_BOOKS(s);
  return id;
}

void Arbiter::Update(TenantId tenant, const TenantLimits& limits, Time now) {
  State& s = *state_;
  s.Observe(now);
  if (!s.Known(tenant)) return;
  TenantState& t = s.at(tenant);
  const TenantLimits next = Usable(limits);
  s.Unfile(tenant);
  if (next.band != t.limits.band) {
    const Nanos outstanding = t.outstanding;
    const int commands = t.commands;
    const bool open = t.open;
    s.DropOutstanding(t, outstanding, /*unused=*/true);
    t.held_up = false;
    --s.band(t).registered;
    t.limits.band = next.band;
    ++s.band(t).registered;
    s.AddOutstanding(t, outstanding);
    s.AddCommands(t, commands);
    t.open = open;
    if (open && s.gated(t)) ++s.gated_commands;
    t.f = s.LeastOther(tenant);  // tags of different bands do not compare
    t.r = s.ReserveClock();
    if (s.exclusive == tenant) s.exclusive = kNobody;
  }
  if (!t.guaranteed()) t.r = s.ReserveClock();
  t.forgiven_f = t.forgiven_r = 0;
  if (t.capped()) {
    t.bucket.Reshape(next.cap, Ns(next.cap_depth), s.now);
  } else {
    t.bucket = TokenBucket(next.cap, Ns(next.cap_depth), 0, s.now);  // it has been saving nothing
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
  --s.band(t).registered;
  --s.live;
  t = TenantState();
  s.free_ids.push_back(tenant);
  GPUSHARE_SCHED_CHECK_BOOKS(s);
}

void Arbiter::Block(TenantId tenant, Nanos predicted, bool exclusive, Time now) {
  State& s = *state_;
  s.Observe(now);
  if (!s.Known(tenant)) return;
  TenantState& t = s.at(tenant);
  s.SignOfLife(t);
  if (!t.blocked) t.blocked_since = s.now;
  t.blocked = true;
  t.exclusive = exclusive;
  t.predicted = std::max(Sane(predicted), Nanos(1));
  t.r = std::min(t.r, s.ReserveClock() + Ns(s.options.debt_horizon));
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

Phase Arbiter::Charge(TenantId tenant, Nanos predicted, Time now) {
  State& s = *state_;
  s.Observe(now);
  if (!s.Known(tenant)) return Phase::kWeight;
  predicted = Sane(predicted);
  TenantState& t = s.at(tenant);
  s.SignOfLife(t);
  s.EndIdle(tenant);
  const Phase phase =
      t.guaranteed() && t.r <= s.ReserveClock() ? Phase::kGuarantee : Phase::kWeight;
  t.charged += predicted;
  s.charged += predicted;
  s.AddOutstanding(t, predicted);
  s.AddCommands(t, 1);
  s.File(tenant);  // first: back from idle, its credit is clamped before it is charged
  s.Tag(tenant, phase, Ns(predicted));
  s.File(tenant);
  BandState& b = s.band(t);
  if (phase == Phase::kWeight)
    b.virtual_time = std::max(b.virtual_time, t.f - Ns(predicted) / t.limits.weight);
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
  // What is charged while it runs on has not ended: were it taken for a settlement, work that never ends
  // would never be stale.
  if (predicted > Nanos(0) || commands > 0) {
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

void Arbiter::SetWakeLatency(Nanos least) {
  state_->wake_latency = std::clamp(least, Nanos(0), state_->options.high_grace);
}

void Arbiter::SetHighGrace(Nanos grace) { state_->options.high_grace = std::max(grace, Nanos(0)); }

void Arbiter::SetBelow(bool below) { state_->below = below; }

double Arbiter::Entitled(TenantId tenant) const {
  State& s = *state_;
  if (!s.Known(tenant)) return 1;
  const TenantState& t = s.at(tenant);
  double weights = s.band(t).active_weight;
  if (t.place == Place::kInactive) weights += t.limits.weight;
  return std::max(t.limits.guarantee, t.limits.weight / std::max(weights, t.limits.weight));
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
  view.cap_tokens = Nanos(std::llround(t.bucket.LevelAt(state_->now)));
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
