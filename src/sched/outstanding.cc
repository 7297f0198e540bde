// SPDX-License-Identifier: Apache-2.0
// What is in flight: how much of each tenant, how much of it is over by the clock, and what may never end.
#include <algorithm>

#include "sched/state.h"

namespace gpushare::sched {

using State = Arbiter::State;

void State::AddOutstanding(TenantState& t, Nanos amount) {
  t.outstanding += amount;
  band(t).outstanding += amount;
  if (t.group_id != kNobody) at(t.group_id).outstanding += amount;
  if (t.stalled()) {  // the new work is behind work that does not end
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
  if (t.group_id != kNobody) {
    TenantState& g = at(t.group_id);
    g.outstanding -= amount;
    if (g.outstanding == Nanos(0)) g.forgiven_f = g.forgiven_r = 0;
  }
  t.moves |= !unused && amount > Nanos(0);
  const Nanos stale = std::min(amount, t.stale);
  t.stale -= stale;
  amount -= stale;
  if (unused || t.held_up) t.room += stale;
  Time& until = gated(t) ? horizon : high_horizon;
  if (gated(t)) gated_outstanding -= amount;
  const Nanos total = gated(t) ? gated_outstanding : band(t).outstanding;
  if (unused && until > now) until = std::max(now, until - amount);
  // A stream is in order, so what is left of t begins after the work that was just seen to end.
  until = std::min(until, now + total);
  if (!unused) until = std::max(until, now + t.outstanding - t.stale);
  if (t.outstanding == Nanos(0)) {
    t.forgiven_f = t.forgiven_r = 0;
    AddCommands(t, -t.commands);
    CloseOpen(t);
  }
}

// Finds work in flight that is so long overdue that it may never end. It is not counted any more; otherwise each
// command that passes it would be the start of another such wait. Until something of theirs is settled, its tenants may
// add at most one window of work each `stale`, so that they do not queue without end.
void State::FindStale() {
  const bool overdue = gated_outstanding > Nanos(0) && now >= horizon + options.stale;
  if (!overdue && now < stalled_until) return;
  stalled_until = kNever;
  for (TenantId id = 0; id < tenants.size(); ++id) {
    TenantState& t = at(id);
    if (!t.live || t.is_group || !gated(t) || t.outstanding == Nanos(0)) continue;
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

// Charges that are settled without a number of commands, as a broker's are, only add. So there is a limit, far above what can be
// in flight.
void State::AddCommands(TenantState& t, int n) {
  constexpr int kMostCommands = 1 << 20;
  n = std::clamp(n, -t.commands, kMostCommands - t.commands);
  t.commands += n;
  CountGated(t, n);
}

void State::LearnEarly(Nanos predicted, Nanos measured) {
  if (predicted <= Nanos(0)) return;
  const double part = std::min(1.0, Ns(predicted) / 20e6);
  early += part * (std::max(0.0, 1 - Ns(measured) / Ns(predicted)) - early);
}

void State::CountGated(const TenantState& t, int n) {
  if (!gated(t)) return;
  gated_commands += n;
  if (t.leaves) leaving_commands += n;
}

void State::CloseOpen(TenantState& t) {
  if (!t.open) return;
  t.open = false;
  CountGated(t, -1);
}

Nanos State::GatedOutstanding(Time when) const {
  if (gated_outstanding == Nanos(0)) return Nanos(0);
  const Nanos by_clock = std::max(Nanos(0), std::min(gated_outstanding, horizon - when));
  // The clock only fills the gap until settlements arrive. If none arrive, the predictions were too low, and
  // believing the clock would queue work without end.
  if (when >= horizon + options.stale) return Nanos(0);
  if (awaited_at == now) return std::max(gated_outstanding, options.window);
  if (foreseen_at == now) return by_clock;
  // If the high band is another process's (SetBelow), the clock runs on while that process has the device, and that process
  // waits for everything begun by the clock. So with more than one command in flight, at most one window is taken to be done
  // before it is settled. Behind a single command, another one may be begun by the clock.
  const Nanos ahead = below && gated_commands > 1 ? options.high_band_window : 2 * options.window;
  return std::max(by_clock, gated_outstanding - ahead);
}

// When GatedOutstanding() will be below `level`, if nothing is settled before.
Time State::Drops(Nanos level) const {
  const Time by_clock = horizon - level + Nanos(1);
  return by_clock > now ? by_clock : horizon + options.stale;
}

bool State::HighBusy(Time* until, Time when) const {
  const BandState& high = bands[0];
  *until = when;
  if (high.registered == 0 || !high_seen || high_held) return false;
  // A tenant that its cap holds begins nothing until the cap lets it go, so its last command has no grace. This applies only if
  // all tenants of the band are held, since the last sign of life may be that of another one.
  const bool held_by_cap = high.active > 0 && high.active == high.registered &&
                           high.waiting_f.empty() && high.running_f.empty();
  if (held_by_cap && high.outstanding == Nanos(0)) return false;
  Time end = high_last + options.high_grace;
  if (high.outstanding > Nanos(0)) {
    end = std::max(end, std::max(high_horizon, high_last) + options.stale);
  }
  *until = end;
  return when < end;
}

// Whether the high band closes the others: until nothing of it is in flight, and a sleeping thread that is woken would launch
// after the grace.
bool State::ClosedByHigh(Time* until, Time when) const {
  if (!HighBusy(until, when)) return false;
  if (bands[0].outstanding == Nanos(0)) *until -= wake_latency;
  return when < *until;
}

// Whether nothing is in flight, or what is in flight is overdue for so long that it may never end.
bool State::Drained(Time* stale_at) const {
  const bool high = bands[0].outstanding > Nanos(0);
  if (gated_outstanding == Nanos(0) && !high) return true;
  *stale_at = std::max(horizon, high ? high_horizon : horizon) + options.stale;
  return now >= *stale_at;
}

}  // namespace gpushare::sched
