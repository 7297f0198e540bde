// SPDX-License-Identifier: Apache-2.0
// The books: who is active, what is outstanding, what each tenant has been charged.
#include "sched/arbiter.h"

#include <algorithm>
#include <cmath>
#include <limits>
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

// Moves a tag by `step`, within `most` forwards and `least` backwards. What is cut off forwards was
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

// ------------------------------------------------------------------------------------------ filing

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

void State::Unfile(TenantId id) {
  TenantState& t = at(id);
  BandState& b = band(t);
  switch (t.place) {
    case Place::kInactive:
      return;
    case Place::kWaiting:
      b.waiting_f.Erase(id);
      if (t.guaranteed()) b.waiting_r.Erase(id);
      break;
    case Place::kRunning:
      b.running_f.Erase(id);
      if (t.guaranteed()) b.running_r.Erase(id);
      break;
    case Place::kCapped:
      capped.Erase(id);
      break;
  }
  t.place = Place::kInactive;
  --b.active;
  b.active_weight = b.active == 0 ? 0 : b.active_weight - t.limits.weight;
}

void State::File(TenantId id) {
  TenantState& t = at(id);
  const bool idle = !t.blocked && t.outstanding == Nanos(0);
  if (!idle) {
    EndIdle(id);
    LeaveGraceList(id);
  } else if (t.idle_since == kNever) {
    t.idle_since = now;
  }
  const bool in_grace = !t.synced && now - t.last_act <= options.active_grace;
  if (idle && in_grace) {
    JoinGraceList(id);
  } else if (idle) {
    LeaveGraceList(id);
  }

  Place want = t.asks() ? Place::kWaiting : Place::kRunning;
  if (t.capped()) {
    t.bucket.Advance(now);
    const double needed = t.place == Place::kCapped ? CapQuantum(t) : 0;
    if (t.bucket.level() <= needed) want = Place::kCapped;
  }
  if (idle && !in_grace) want = Place::kInactive;

  if (want != t.place) {
    const Place was = t.place;
    const bool contended = was == Place::kWaiting || was == Place::kRunning;
    Unfile(id);
    if (want == Place::kInactive) return;
    if (!contended && want != Place::kCapped) Wakes(id, was);
    BandState& b = band(t);
    ++b.active;
    b.active_weight += t.limits.weight;
    t.place = want;
    if (want == Place::kCapped) {
      capped.Push(id, Since(t.bucket.ExceedsAt(CapQuantum(t))));
    } else if (want == Place::kWaiting) {
      ClampToLent(t);
      b.waiting_f.Push(id, t.f);
      if (t.guaranteed()) b.waiting_r.Push(id, t.r);
    } else {
      b.running_f.Push(id, t.f);
      if (t.guaranteed()) b.running_r.Push(id, t.r);
    }
  } else {
    Rekey(id);
  }
}

// A cap that is used up lets go when it is worth a grant again, not a single command: each return from
// idle costs two markers and a wake-up.
double State::CapQuantum(const TenantState& t) const {
  return std::min(Ns(options.lone_grant), t.bucket.depth() / 2);
}

void State::Rekey(TenantId id) {
  TenantState& t = at(id);
  BandState& b = band(t);
  if (t.place == Place::kWaiting) {
    b.waiting_f.Update(id, t.f);
    if (t.guaranteed()) b.waiting_r.Update(id, t.r);
  } else if (t.place == Place::kRunning) {
    b.running_f.Update(id, t.f);
    if (t.guaranteed()) b.running_r.Update(id, t.r);
  } else if (t.place == Place::kCapped) {
    capped.Update(id, Since(t.bucket.ExceedsAt(CapQuantum(t))));
  }
}

void State::LeaveGraceList(TenantId id) {
  TenantState& t = at(id);
  if (!t.in_grace_list) return;
  t.in_grace_list = false;
  (t.grace_prev == kNobody ? grace_head : at(t.grace_prev).grace_next) = t.grace_next;
  (t.grace_next == kNobody ? grace_tail : at(t.grace_next).grace_prev) = t.grace_prev;
}

// Keeps the list in the order of last_act: a tenant joins at the tail, with a last_act of now or, when
// only its books changed, where it already is.
void State::JoinGraceList(TenantId id) {
  TenantState& t = at(id);
  if (t.in_grace_list) {
    if (t.last_act != now || grace_tail == id) return;
    LeaveGraceList(id);
  }
  t.last_act = now;
  t.in_grace_list = true;
  t.grace_prev = grace_tail;
  t.grace_next = kNobody;
  (grace_tail == kNobody ? grace_head : at(grace_tail).grace_next) = id;
  grace_tail = id;
}

void State::ExpireGrace() {
  while (grace_head != kNobody && now - at(grace_head).last_act > options.active_grace) {
    const TenantId id = grace_head;
    LeaveGraceList(id);
    Unfile(id);
  }
}

void State::ReleaseCapped() {
  while (!capped.empty() && capped.top().key <= Since(now)) {
    const TenantId id = capped.top().id;
    File(id);
    // The bucket's own arithmetic decides; a rounding error must not spin here.
    if (at(id).place == Place::kCapped) break;
  }
}

// ------------------------------------------------------------------------------------------- tags

double State::LeastOther(TenantId id) const {
  const BandState& b = bands[static_cast<size_t>(tenants[id].limits.band)];
  double least = kInfinity, key = 0;
  if (b.waiting_f.LeastExcept(id, &key)) least = std::min(least, key);
  if (b.running_f.LeastExcept(id, &key)) least = std::min(least, key);
  return least == kInfinity ? b.virtual_time : least;
}

double State::LeastOtherReserve(TenantId id) const {
  const BandState& b = bands[static_cast<size_t>(tenants[id].limits.band)];
  double least = ReserveClock(), key = 0;
  if (b.waiting_r.LeastExcept(id, &key)) least = std::min(least, key);
  if (b.running_r.LeastExcept(id, &key)) least = std::min(least, key);
  return least;
}

// Credit that a tenant saved up while it did not contend is worth `burst` of device time at most.
void State::Wakes(TenantId id, Place was) {
  TenantState& t = at(id);
  t.f = std::max(t.f, LeastOther(id) - Ns(t.limits.burst) / t.limits.weight);
  if (was == Place::kCapped && t.guaranteed()) {
    t.r = std::max(t.r, LeastOtherReserve(id) - Ns(t.limits.burst) / t.limits.guarantee);
  }
  if (t.idle_since != kNever) {
    EndIdle(id);
    t.idle_since = !t.blocked && t.outstanding == Nanos(0) ? now : kNever;
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

// Device time that was offered in turn and not asked for does not come back, beyond `burst`.
bool State::ClampToLent(TenantState& t) {
  const BandState& b = band(t);
  const double f = t.f, r = t.r;
  t.f = std::max(f, b.lent_f - Ns(t.limits.burst) / t.limits.weight);
  if (t.guaranteed()) t.r = std::max(r, b.lent_r - Ns(t.limits.burst) / t.limits.guarantee);
  return t.f != f || t.r != r;
}

// A debt, and a credit, is worth `debt_horizon` of virtual time at most: whoever ran a mispredicted
// giant is not starved for it, nor does it starve others when its charge is corrected.
void State::Tag(TenantId id, Phase phase, double ns) {
  TenantState& t = at(id);
  const double horizon_ns = Ns(options.debt_horizon);
  if (phase == Phase::kGuarantee && t.guaranteed()) {
    const double clock = ReserveClock();
    MoveTag(ns / t.limits.guarantee, clock - horizon_ns, clock + horizon_ns, &t.r, &t.forgiven_r);
  } else {
    const BandState& b = band(t);
    double least = -kInfinity, most = kInfinity;
    if (b.active > 1 || (b.active == 1 && t.place == Place::kInactive)) {
      const double middle = LeastOther(id), reach = horizon_ns / b.active_weight;
      least = middle - reach;
      most = middle + reach;
    }
    MoveTag(ns / t.limits.weight, least, most, &t.f, &t.forgiven_f);
  }
  if (t.capped()) {
    t.bucket.Advance(now);
    t.bucket.Take(ns);
  }
}

void State::SignOfLife(TenantState& t) {
  if (!t.synced && !t.blocked && t.place != Place::kInactive && now > t.last_life) {
    const double sample = std::min(Ns(now - t.last_life), 200'000.0);
    t.gap_ns += 0.1 * (sample - t.gap_ns);
  }
  t.synced = false;
  t.last_life = t.last_act = now;
  if (!gated(t)) {
    high_last = now;
    high_seen = true;
  }
}

// ------------------------------------------------------------------------------------ outstanding

void State::AddOutstanding(TenantState& t, Nanos amount) {
  t.outstanding += amount;
  band(t).outstanding += amount;
  if (t.stalled()) {  // it stands behind work that does not end
    t.stale += amount;
    t.room -= amount;
    return;
  }
  Time& until = gated(t) ? horizon : high_horizon;
  until = std::max(until, now) + amount;
  if (gated(t)) gated_outstanding += amount;
}

void State::DropOutstanding(TenantState& t, Nanos amount, bool unused) {
  amount = std::min(amount, t.outstanding);
  t.outstanding -= amount;
  band(t).outstanding -= amount;
  t.moves |= !unused && amount > Nanos(0);
  const Nanos stale = std::min(amount, t.stale);
  t.stale -= stale;
  amount -= stale;
  if (unused || t.held_up) t.room += stale;
  Time& until = gated(t) ? horizon : high_horizon;
  if (gated(t)) gated_outstanding -= amount;
  const Nanos total = gated(t) ? gated_outstanding : band(t).outstanding;
  if (unused && until > now) until = std::max(now, until - amount);
  // A stream is in order: what is left of t begins after what was just seen to end.
  until = std::min(until, now + total);
  if (!unused) until = std::max(until, now + t.outstanding - t.stale);
  if (t.outstanding == Nanos(0)) {
    t.forgiven_f = t.forgiven_r = 0;
    AddCommands(t, -t.commands);
    CloseOpen(t);
  }
}

// What is in flight is so long overdue that it may never end. It is counted no longer: else each command that
// passes it would be the start of another such wait. Until something of theirs ends, its tenants may add to it
// a window at a time, each as long after the last: else they would queue without end.
void State::FindStale() {
  const bool overdue = gated_outstanding > Nanos(0) && now >= horizon + options.stale;
  if (!overdue && now < stalled_until) return;
  stalled_until = kNever;
  for (TenantId id = 0; id < tenants.size(); ++id) {
    TenantState& t = at(id);
    if (!t.live || !gated(t) || t.outstanding == Nanos(0)) continue;
    if (overdue && !t.stalled()) {
      t.stale = t.outstanding;
      t.moves = false;
    }
    if (!t.stalled()) continue;
    t.room = options.window;
    stalled_until = now + options.stale;
    File(id);
  }
  if (overdue) gated_outstanding = Nanos(0);
}

void State::AddCommands(TenantState& t, int n) {
  n = std::max(n, -t.commands);
  t.commands += n;
  if (gated(t)) gated_commands += n;
}

void State::CloseOpen(TenantState& t) {
  if (!t.open) return;
  t.open = false;
  if (gated(t)) --gated_commands;
}

// ------------------------------------------------------------------------------------- public face

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
                     Time now) {
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
  const bool ended = predicted > Nanos(0) || commands > 0;
  if (ended) {
    if (commands > t.commands) s.CloseOpen(t);  // launches that were never reported
    s.AddCommands(t, -commands);
    s.DropOutstanding(t, predicted, /*unused=*/false);
    if (!s.gated(t)) {
      s.high_last = s.now;
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

Time Arbiter::Run(Time now, std::vector<Grant>& grants) {
  State& s = *state_;
  s.Observe(now);
  const Time again = s.Run(grants);
  GPUSHARE_SCHED_CHECK_BOOKS(s);
  return again;
}

bool Arbiter::Closed(Band band, Time now) const {
  if (band == Band::kHigh) return false;
  Time until;
  return state_->draining || state_->HighBusy(&until, std::max(now, state_->now));
}

bool Arbiter::Draining() const {
  Time until;
  return state_->draining && !state_->HighBusy(&until, state_->now);
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
