// SPDX-License-Identifier: Apache-2.0
// The decision: which tenant gets the device next and with how much, or when to look again.
// docs/arbiter.md derives each rule; the checks here are in the order of its section 4.
#include <algorithm>
#include <utility>

#include "sched/state.h"

namespace gpushare::sched {
namespace {

constexpr int kClampsPerLook = 8;
// If what a tenant waited for did not end in time, there is no such wait again for this many times as long.
constexpr int kNoWaitFor = 25;
// The last of the least number of commands may follow when no more than this many windows are left of those before it.
constexpr int kWindowsLeft = 2;
// How many times the mean part by which work ends early it is taken to do so now, to be on the safe side.
constexpr double kEarlyEnds = 6;

Nanos ToNanos(double ns) { return Nanos(static_cast<int64_t>(ns)); }

// `when` plus `wait_ns`; kNever if that is beyond what a Time can hold.
Time After(Time when, double wait_ns) {
  return wait_ns > 1e18 ? kNever : when + ToNanos(wait_ns) + Nanos(1);
}

}  // namespace

using State = Arbiter::State;

bool State::Above(const TenantState& t) const {
  return below || bands[0].registered > 0 ||
         (t.limits.band == Band::kLow && bands[1].registered > 0);
}

bool State::Sole(const TenantState& t) const {
  return live == 1 && !below && !t.capped() && t.known && options.sole_grant > Nanos(0);
}

Nanos State::Window(const TenantState& t) const {
  if (Above(t)) return options.high_band_window;
  return Sole(t) ? std::max(options.window, 2 * options.sole_grant) : options.window;
}

int State::MinCommands(const TenantState& t) const {
  return Above(t) ? options.high_band_min_commands : options.min_commands;
}

// Whether this tenant of the high band has to wait until what others have in flight is over.
bool State::WaitsForOthers(TenantState& one, Time* until) {
  const bool by_parent = one.released == kNever && one.group_id != kNobody;
  TenantState& t = by_parent ? at(one.group_id) : one;
  if (t.released == kNever || now < waits_again || GatedOutstanding(now) <= options.low_window) {
    return false;
  }
  // Work that does not end in time may do so on purpose, so later requests do not wait for it.
  const bool foreseen = foreseen_at == now;
  const Time longest =
      t.released +
      (foreseen ? std::max(options.high_waits, options.high_waits_foreseen) : options.high_waits);
  if (now >= longest) {
    if (options.high_waits > Nanos(0)) {
      waits_again = now + kNoWaitFor * std::max(options.high_waits, now - t.released);
    }
    return false;
  }
  *until = std::min(longest, Drops(options.low_window));
  bucket(t).KeepUntil(*until);
  return true;
}

// ---------------------------------------------------------------- which tenants are before a candidate

double State::LeastRunning(Peers& b) {
  for (int i = 0; i < kClampsPerLook && !b.running_f.empty(); ++i) {
    const TenantId id = b.running_f.top().id;
    if (!ClampToLent(at(id))) break;
    Rekey(id);
  }
  return b.running_f.empty() ? kInfinity : b.running_f.top().key;
}

double State::LeastRunningReserve(Peers& b) {
  for (int i = 0; i < kClampsPerLook && !b.running_r.empty(); ++i) {
    const TenantId id = b.running_r.top().id;
    if (!ClampToLent(at(id))) break;
    Rekey(id);
  }
  return b.running_r.empty() ? kInfinity : b.running_r.top().key;
}

// Whether `t` is about to launch, so that it is worth keeping the device for it. `until` is when that hope ends.
bool State::Covers(const TenantState& t, Time* until) const {
  if (t.is_group) {
    return t.group->running_f.Look(kInfinity,
                                   [&](TenantId id) { return Covers(tenants[id], until); });
  }
  if (t.synced || t.stalled()) return false;
  const Nanos gap = ToNanos(t.gap_ns);
  Time end = now;
  if (t.outstanding > Nanos(0)) {
    if (t.outstanding > 2 * gap) {
      end = now + options.anticipation;  // it launches ahead; look again soon
    } else {
      end = t.last_life + 3 * gap;
    }
  } else {
    end = t.last_act + std::max(options.anticipation, 3 * gap);
  }
  if (end <= now) return false;
  *until = std::min(*until, end);
  return true;
}

inline TenantId State::PickPeer(Peers& b, double* lag, bool* guarantee) {
  *guarantee = false;
  if (!b.waiting_r.empty()) {
    // If the waiting tenant that is furthest behind is more than the horizon behind, the device, or the parent's share, cannot
    // give what was guaranteed. The reserve clock then slows for all of these tenants, so that their order and their proportions
    // stay.
    const double behind = ReserveClock() - b.reserve_lag - b.waiting_r.top().key;
    if (behind > Ns(options.debt_horizon)) *lag += behind - Ns(options.debt_horizon);
    if (behind >= 0) {
      *guarantee = true;
      return b.waiting_r.top().id;
    }
  }
  return b.waiting_f.empty() ? kNobody : b.waiting_f.top().id;
}

bool State::PickFrom(BandState& b, TenantId* id, Phase* phase) {
  bool guarantee = false;
  const TenantId first = PickPeer(b, &reserve_lag, &guarantee);
  if (first == kNobody) return false;
  *id = first;
  *phase = PhaseOf(guarantee, false);
  if (at(first).is_group) {
    Group& group = *at(first).group;
    bool own = false;
    *id = PickPeer(group, &group.reserve_lag, &own);
    *phase = PhaseOf(own, guarantee);
  }
  return true;
}

// ------------------------------------------------------------------------------------- the decision

// Refills what may be idled away on purpose, and takes from it what was since the last call. `horizon` is still what the device
// was predicted to be busy until.
void State::CountIdle() {
  const double elapsed = Ns(now - budget_at);
  if (elapsed <= 0) return;
  if (held) {  // the device may have idled although a tenant waited
    const Time idle_from = std::max(budget_at, horizon);
    if (now > idle_from) idle_budget -= Ns(now - idle_from);
  }
  idle_budget =
      std::min(idle_budget + elapsed * options.idle_budget, Ns(options.idle_budget_depth));
  for (size_t b = 1; b < bands.size(); ++b) {
    bands[b].floor_tokens = std::min(bands[b].floor_tokens + elapsed * options.low_band_floor,
                                     Ns(options.idle_budget_depth));
  }
  budget_at = now;
}

Time State::Run(std::vector<Grant>& grants, Beside* beside) {
  CountIdle();
  FindStale();
  ExpireGrace();
  ReleaseCapped();
  held = false;
  draining = false;
  for (;;) {
    const Choice choice = Choose(beside);
    if (!choice.admit) {
      const Time again = std::min(choice.again, stalled_until);
      return again == kNever ? kNever : std::max(again, now + Nanos(1));
    }
    grants.push_back(Admit(choice));
  }
}

State::Choice State::Choose(Beside* beside) {
  Choice choice;
  if (!capped.empty()) {
    const TenantState& t = at(capped.top().id);
    choice.again = bucket(t).ExceedsAt(CapQuantum(t));
  }

  // The high band does not have to wait, except for its cap.
  if (!high_held && PickFrom(bands[0], &choice.tenant, &choice.phase)) {
    Time until;
    draining = WaitsForOthers(at(choice.tenant), &until);
    choice.admit = !draining;
    if (draining) choice.again = std::min(choice.again, until);
    return choice;
  }
  if (exclusive != kNobody) {
    const TenantState& holder = at(exclusive);
    const Time stale_at = std::max(horizon + options.stale, exclusive_until);
    const bool let = holder.group_id == kNobody || at(holder.group_id).place == Place::kWaiting;
    if (now < exclusive_until && holder.place == Place::kWaiting && let) {
      choice.admit = true;
      choice.tenant = exclusive;
      choice.phase = Phase::kWeight;
      return choice;
    }
    if ((holder.outstanding > Nanos(0) || now < exclusive_until) && now < stale_at) {
      choice.again = std::min(choice.again, stale_at);
      return choice;
    }
    exclusive = kNobody;
  }
  Time closed_until;
  if (ClosedByHigh(&closed_until, now)) {
    return ChooseClosed(std::min(choice.again, closed_until), beside);
  }
  const bool for_sleepers = HighBusy(&closed_until, now);

  BandState& normal = bands[1];
  BandState& low = bands[2];
  TenantId id;
  Phase phase;
  const bool low_waits = !low.waiting_f.empty();
  if (low_waits && normal.active > 0 && options.low_band_floor > 0 && low.floor_tokens > 0 &&
      low.outstanding == Nanos(0) && PickFrom(low, &id, &phase) && !at(id).exclusive) {
    choice.admit = choice.on_floor = true;
    choice.tenant = id;
    choice.phase = phase;
    return choice;
  }
  if (PickFrom(normal, &id, &phase) || PickFrom(low, &id, &phase)) {
    if (for_sleepers && (at(id).exclusive || now - at(id).blocked_since <= options.asleep_after)) {
      return ChooseClosed(std::min(choice.again, closed_until), beside);
    }
    return Judge(id, phase, choice.again);
  }
  return choice;
}

// Chooses the tenant in turn if its command may run beside the high band's commands. Within the grace behind these it does not
// ask, since it is unknown what comes next.
bool State::ChooseBeside(Beside* beside, Choice* choice) {
  if (bands[0].outstanding == Nanos(0)) return false;
  if (!PickFrom(bands[1], &choice->tenant, &choice->phase) &&
      !PickFrom(bands[2], &choice->tenant, &choice->phase)) {
    return false;
  }
  // Tenants behind an exclusive request wait for it here too.
  if (at(choice->tenant).exclusive) return false;
  Time again = kNever;
  choice->admit = choice->beside = beside->Admits(choice->tenant, now, &again);
  choice->again = std::min(choice->again, again);
  return choice->admit;
}

// While a higher band runs, one command of a lower band passes whenever the floor has saved up enough for it.
State::Choice State::ChooseClosed(Time again, Beside* beside) {
  Choice choice;
  choice.again = again;
  if (beside != nullptr && ChooseBeside(beside, &choice)) return choice;
  if (options.low_band_floor <= 0 || gated_outstanding > Nanos(0)) return choice;
  for (size_t b = 1; b < bands.size(); ++b) {
    if (!PickFrom(bands[b], &choice.tenant, &choice.phase)) continue;
    if (at(choice.tenant).exclusive) continue;  // it cannot have the device to itself now
    if (bands[b].floor_tokens > 0) {
      choice.admit = choice.on_floor = true;
      return choice;
    }
    choice.again =
        std::min(choice.again, After(now, -bands[b].floor_tokens / options.low_band_floor));
  }
  return choice;
}

// Whether a command may follow those in flight though they fill the window, since there are fewer than `min_commands`. The last
// of these waits until, by the clock, little is left of those before it: it would be in the way of a tenant that comes back
// meanwhile. More may be left where work ended early lately. Beside commands that leave a part of the device to others nothing
// has to be over. If it may not, `again` is when it may.
bool State::Follows(const TenantState& t, Nanos window, Time* again) const {
  const int min_commands = MinCommands(t);
  if (gated_commands >= min_commands) return false;
  const bool last = gated_commands > 0 && gated_commands == min_commands - 1;
  if (!last || live == 1 || Above(t) || leaving_commands > 0) return true;
  const double left = kEarlyEnds * early * Ns(gated_outstanding);
  const Time from = horizon - std::max(kWindowsLeft * window, ToNanos(left)) + Nanos(1);
  if (now >= from) return true;
  *again = std::min(*again, from);
  return false;
}

// How far the tenant is ahead of its running peers, in normalised virtual time.
inline State::Ahead State::AheadOf(const TenantState& t, bool guarantee) {
  Peers& b = *t.peers;
  Ahead ahead;
  const double clock = ReserveClock(t);
  const double least_r = LeastRunningReserve(b);
  if (guarantee) {
    ahead.by = t.r - least_r;
    ahead.limit_r = t.r;
  } else {
    ahead.by = std::max((t.f - LeastRunning(b)) * b.active_weight, clock - least_r);
    ahead.limit_f = t.f;
    ahead.limit_r = clock;
  }
  return ahead;
}

// Decides whether the candidate is in turn, and whether it is admitted.
State::Choice State::Judge(TenantId id, Phase phase, Time again) {
  Choice choice;
  choice.tenant = id;
  choice.phase = phase;
  choice.again = again;
  const TenantState& t = at(id);
  if (t.exclusive) {
    Time stale_at = kNever;
    if (!Drained(&stale_at)) {
      draining = held = true;
      choice.again = std::min(choice.again, stale_at);
      return choice;
    }
  }

  // A member of a family is judged twice: its group among others, and itself within the group.
  const bool is_member = t.group_id != kNobody;
  const TenantState& outer = is_member ? at(t.group_id) : t;
  Ahead ahead = AheadOf(outer, is_member ? OfParentsGuarantee(phase) : OfGuarantee(phase));
  const Ahead inside = is_member ? AheadOf(t, OfGuarantee(phase)) : Ahead{.by = -kInfinity};
  BandState* above = nullptr;
  if (t.limits.band == Band::kLow && !bands[1].running_f.empty()) {
    above = &bands[1];
    ahead.by = kInfinity;
  }

  const Nanos window = Window(t);
  const int min_commands = MinCommands(t);
  const Nanos out = GatedOutstanding(now);
  const bool outer_in_turn = ahead.by <= Ns(options.slack);
  const bool inside_in_turn = inside.by <= Ns(options.slack);
  if (outer_in_turn && inside_in_turn) {
    const bool fits_beside =
        t.leaves && !Above(t) && t.commands == 0 && !t.open && gated_commands < outer.peers->active;
    if (out < window || fits_beside || Follows(t, window, &choice.again)) {
      choice.admit = true;
      return choice;
    }
    held = awaited_at != now;  // a wait asked for by Await() does not count as idling on purpose
    choice.again = std::min(choice.again, Drops(window));
    return choice;
  }
  // The tenants before it are not served either, so it takes nothing of theirs. A grant longer than the window would: it is in the
  // way of the next.
  if (t.stalled() && !t.held_up && t.grant <= options.window) {
    choice.admit = true;
    return choice;
  }

  // Out of turn, it is admitted only to keep the device from running dry, and only if no tenant before it is about to
  // launch or the idle budget for such hopes is used up.
  const bool idle = out == Nanos(0);
  const bool nearly_idle =
      out <= options.low_window || (gated_commands < min_commands - 1 && out < window);
  Time covered_until = kNever;
  bool covered = false;
  // Before a command out of turn is let in, the wait may also use what the command's own run will give back to the budget:
  // letting in a command of 100 ms to avoid a moment's idleness costs the others 100 ms.
  // If the cap of the parent is what bounds the family, and nobody else waits, waiting for a sibling costs nothing of the budget,
  // since the parent's bucket keeps what is not used now.
  const bool among_themselves = is_member && outer_in_turn && outer.capped() &&
                                bands[1].waiting_f.size() + bands[2].waiting_f.size() == 1;
  const double budget =
      among_themselves ? kInfinity : idle_budget + options.idle_budget * Ns(t.predicted);
  if (nearly_idle && budget > 0) {
    const auto covers = [&](TenantId other) { return Covers(at(other), &covered_until); };
    const auto one_covers = [&](const Peers& among, const Ahead& candidate) {
      return among.running_f.Look(candidate.limit_f, covers) ||
             among.running_r.Look(candidate.limit_r, covers);
    };
    covered = (!outer_in_turn && one_covers(*outer.peers, ahead)) ||
              (!inside_in_turn && one_covers(*t.peers, inside)) ||
              (above != nullptr && above->running_f.Look(kInfinity, covers));
  }
  if (nearly_idle && !covered) {
    choice.admit = true;
    choice.lent = !outer_in_turn;
    choice.lent_inside = !inside_in_turn;
    return choice;
  }
  held = !among_themselves;
  if (!nearly_idle) {
    choice.again = std::min(choice.again, Drops(options.low_window));
  } else {
    const Time spent = After(idle ? now : std::max(horizon, now), budget);
    choice.again = std::min(choice.again, std::min(covered_until, spent));
  }
  return choice;
}

// Updates the peers of a tenant that is served, and its own tag.
inline void State::Serve(TenantId id, bool guarantee, bool lent, bool alone) {
  TenantState& t = at(id);
  Peers& b = *t.peers;
  if (lent) {
    // The tenants before it did not ask, and lose what they did not ask for.
    if (guarantee) {
      b.lent_r = std::max(b.lent_r, t.r);
    } else {
      b.lent_f = std::max(b.lent_f, t.f);
      b.lent_r = std::max(b.lent_r, ReserveClock(t));
    }
  }
  if (alone && t.guaranteed()) {  // no tenant is in its way, so nothing is owed to it
    t.r = std::max(t.r, ReserveClock(t) - Ns(t.limits.burst) / t.limits.guarantee);
  }
  if (!guarantee) b.virtual_time = std::max(b.virtual_time, t.f);
}

Grant State::Admit(const Choice& choice) {
  const TenantId id = choice.tenant;
  TenantState& t = at(id);
  BandState& b = band(t);
  const int contenders = gated_active;
  const bool alone = contenders <= 1;

  Nanos amount = t.predicted;
  if (!gated(t)) {
    amount = std::max(amount, options.high_grant);
  } else if (!t.exclusive && !choice.on_floor && !choice.beside) {
    const Nanos window = Window(t);
    const Nanos most = Sole(t) ? options.sole_grant : alone ? options.lone_grant : t.grant;
    Nanos more = std::min(most, window);
    if (!alone) {
      const Nanos part = window / contenders;
      more = std::min({more, part, options.grant_commands * t.predicted});
      const Nanos together = t.predicted <= t.grant ? t.at_once * t.predicted : Nanos(0);
      if (together <= part) more = std::max(more, together);
    }
    amount = std::max(amount, more);
  }
  const auto within_cap = [&](TenantState& one) {
    if (!one.capped()) return;
    bucket(one).Advance(now);
    amount = std::max(t.predicted, std::min(amount, ToNanos(bucket(one).level())));
  };
  within_cap(t);

  if (t.group_id == kNobody) {
    Serve(id, OfGuarantee(choice.phase), choice.lent, alone);
  } else {
    within_cap(at(t.group_id));
    Serve(id, OfGuarantee(choice.phase), choice.lent_inside, alone);
    Serve(t.group_id, OfParentsGuarantee(choice.phase), choice.lent, alone);
    at(t.group_id).released = kNever;
  }
  // If the tenant has the device already, its hold stays.
  if (t.exclusive && std::exchange(exclusive, id) != id) exclusive_until = Time{};
  // The tenant that holds the device keeps its grants, whichever band is at work beside it.
  const bool holds = exclusive == id && now < exclusive_until;
  const bool stands = t.exclusive || holds || choice.on_floor || choice.beside;
  if (choice.on_floor) b.floor_tokens -= Ns(amount);
  t.on_floor = choice.on_floor;
  Tag(id, choice.phase, Ns(amount));
  t.charged += amount;
  charged += amount;
  t.blocked = t.exclusive = false;
  t.synced = false;
  t.last_life = t.last_act = now;
  if (!gated(t)) {
    high_last = now;
    high_seen = true;
  }
  AddOutstanding(t, amount);
  if (!t.open) {
    t.open = true;
    CountGated(t, 1);
  }
  File(id);
  return Grant{id, amount, choice.phase, stands, choice.beside};
}

}  // namespace gpushare::sched
