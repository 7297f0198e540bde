// SPDX-License-Identifier: Apache-2.0
// Checks of every invariant of the books. They cost O(tenants) and are meant for tests and debug builds.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "sched/state.h"

namespace gpushare::sched {

using State = Arbiter::State;

const char* State::BrokenPeers(const Peers& b) const {
  for (const IndexedHeap* h : {&b.waiting_f, &b.running_f, &b.waiting_r, &b.running_r}) {
    if (!h->Sound()) return "a heap is out of order";
  }
  for (const auto& e : b.waiting_f.entries()) {
    if (tenants[e.id].place != Place::kWaiting || e.key != tenants[e.id].f)
      return "stale F (waiting)";
  }
  for (const auto& e : b.running_f.entries()) {
    if (tenants[e.id].place != Place::kRunning || e.key != tenants[e.id].f)
      return "stale F (running)";
  }
  for (const auto& e : b.waiting_r.entries()) {
    if (tenants[e.id].place != Place::kWaiting || e.key != tenants[e.id].r)
      return "stale R (waiting)";
  }
  for (const auto& e : b.running_r.entries()) {
    if (tenants[e.id].place != Place::kRunning || e.key != tenants[e.id].r)
      return "stale R (running)";
  }
  return "";
}

const char* State::BrokenFamily(const Family& family) const {
  if (family.empty()) return "a family has no members";
  for (size_t i = 0; i < family.groups.size(); ++i) {
    const TenantId group_id = family.groups[i];
    if (group_id == kNobody) continue;
    const TenantState& entry = tenants[group_id];
    if (entry.group == nullptr || entry.group->family != &family)
      return "a group is another family's";
    const Group& group = *entry.group;
    size_t members = 0, waiting = 0, running = 0, waiting_r = 0, running_r = 0;
    int active = 0;
    double weight = 0;
    Nanos outstanding{0};
    for (const TenantState& t : tenants) {
      if (t.group_id != group_id) continue;
      if (t.peers != &group || static_cast<size_t>(t.limits.band) != i) {
        return "a member is in the wrong group";
      }
      ++members;
      outstanding += t.outstanding;
      waiting += t.place == Place::kWaiting;
      running += t.place == Place::kRunning;
      waiting_r += t.place == Place::kWaiting && t.guaranteed();
      running_r += t.place == Place::kRunning && t.guaranteed();
      if (t.place == Place::kInactive) continue;
      ++active;
      weight += t.limits.weight;
    }
    if (members != group.members || active != group.active)
      return "a group's members are miscounted";
    if (outstanding != entry.outstanding) return "the outstanding time of a group is wrong";
    if (std::abs(group.active_weight - weight) > 1e-6 * (1 + weight)) {
      return "the active weight of a group is wrong";
    }
    if (group.waiting_f.size() != waiting || group.running_f.size() != running ||
        group.waiting_r.size() != waiting_r || group.running_r.size() != running_r) {
      return "a heap of a group holds the wrong number of tenants";
    }
    if (const char* broken = BrokenPeers(group); *broken != '\0') return broken;
  }
  return "";
}

const char* State::Broken() const {
  std::array<int, 3> registered{}, active{};
  std::array<double, 3> weight{};
  std::array<size_t, 3> waiting{}, running{}, waiting_r{}, running_r{};
  std::array<Nanos, 3> outstanding{};
  Nanos stale{0};
  size_t in_cap = 0, in_grace = 0, entries = 0;
  int commands = 0, leaving = 0, alive = 0, in_lower_bands = 0;
  for (TenantId id = 0; id < tenants.size(); ++id) {
    const TenantState& t = tenants[id];
    if (!t.live) {
      if (t.place != Place::kInactive || t.in_grace_list) return "a removed tenant is still filed";
      continue;
    }
    const auto b = static_cast<size_t>(t.limits.band);
    const bool is_entry = t.is_group, is_member = t.group_id != kNobody;
    if (is_entry) {
      ++entries;
    } else {
      ++alive;
    }
    if (!is_member) ++registered[b];
    if (t.place != Place::kInactive && !is_entry && gated(t)) ++in_lower_bands;
    if (!std::isfinite(t.f) || !std::isfinite(t.r)) return "a tag is not a number";
    if (t.outstanding < Nanos(0)) return "a tenant's outstanding device time is negative";
    if (t.commands < 0) return "a tenant's commands in flight are negative";
    if (t.commands > 0 && t.outstanding == Nanos(0)) return "commands without outstanding time";
    if (t.open && t.outstanding == Nanos(0)) return "an open grant without outstanding time";
    if (t.exclusive && !t.blocked) return "an exclusive request of a tenant that is not blocked";
    if (t.capped() && bucket(t).level() > bucket(t).most())
      return "a cap holds more than its depth";
    if (!is_entry) outstanding[b] += t.outstanding;
    stale += t.stale;
    if (t.stale < Nanos(0) || t.stale > (gated(t) ? t.outstanding : Nanos(0))) {
      return "what is stale is not part of what a gated tenant has outstanding";
    }
    if (gated(t)) commands += t.commands + (t.open ? 1 : 0);
    if (gated(t) && t.leaves) leaving += t.commands + (t.open ? 1 : 0);
    const bool idle = Idle(t);
    if (idle != (t.idle_since != kNever)) return "idle time is not being counted right";
    if (t.in_grace_list) {
      ++in_grace;
      if (!idle || t.synced) return "a tenant in the grace list is not idle";
    }
    const bool asks = is_entry ? !t.group->waiting_f.empty() : t.asks();
    switch (t.place) {
      case Place::kInactive:
        if (is_entry ? asks || !t.group->running_f.empty() : !idle) {
          return "a tenant with work is inactive";
        }
        break;
      case Place::kWaiting:
        if (!asks) return "a waiting tenant is not blocked, or stalled";
        waiting[b] += !is_member;
        waiting_r[b] += !is_member && t.guaranteed();
        break;
      case Place::kRunning:
        if (asks) return "a running tenant is blocked";
        running[b] += !is_member;
        running_r[b] += !is_member && t.guaranteed();
        break;
      case Place::kCapped:
        if (!t.capped()) return "a tenant without a cap is held by one";
        ++in_cap;
        break;
    }
    if (t.place != Place::kInactive) {
      active[b] += !is_member;
      weight[b] += is_member ? 0 : t.limits.weight;
      if (idle && !t.in_grace_list && !is_entry) return "an idle tenant is active beyond its grace";
    }
    const bool by_f = t.place == Place::kWaiting || t.place == Place::kRunning;
    if (by_f != (position_f[id] != IndexedHeap::kAbsent)) return "a contender is not filed by F";
    if ((by_f && t.guaranteed()) != (position_r[id] != IndexedHeap::kAbsent)) {
      return "a guaranteed contender is not filed by R";
    }
    if ((t.place == Place::kCapped) != (position_capped[id] != IndexedHeap::kAbsent)) {
      return "a capped tenant is not filed by its cap";
    }
  }
  if (alive != live) return "the number of tenants is wrong";
  if (free_ids.size() + static_cast<size_t>(live) + entries != tenants.size())
    return "ids are lost";
  if (in_lower_bands != gated_active) return "the active tenants of the lower bands are miscounted";
  for (size_t i = 0; i < bands.size(); ++i) {
    const BandState& b = bands[i];
    if (b.registered != registered[i]) return "the tenants of a band are miscounted";
    if (b.active != active[i]) return "the active tenants of a band are miscounted";
    if (std::abs(b.active_weight - weight[i]) > 1e-6 * (1 + weight[i])) {
      return "the active weight of a band is wrong";
    }
    if (b.outstanding != outstanding[i]) return "the outstanding time of a band is wrong";
    if (b.waiting_f.size() != waiting[i] || b.running_f.size() != running[i] ||
        b.waiting_r.size() != waiting_r[i] || b.running_r.size() != running_r[i]) {
      return "a heap holds the wrong number of tenants";
    }
    if (const char* broken = BrokenPeers(b); *broken != '\0') return broken;
  }
  for (const auto& family : families) {
    if (const char* broken = BrokenFamily(*family); *broken != '\0') return broken;
  }
  if (capped.size() != in_cap || !capped.Sound()) return "the heap of capped tenants is wrong";
  if (gated_outstanding != bands[1].outstanding + bands[2].outstanding - stale) {
    return "the outstanding time of the gated bands is wrong";
  }
  if (gated_commands != commands || leaving_commands != leaving)
    return "the commands in flight are miscounted";
  size_t listed = 0;
  Time last{Nanos::min()};
  for (uint32_t id = grace_head, prev = kNobody; id != kNobody;
       prev = id, id = tenants[id].grace_next) {
    if (!tenants[id].in_grace_list || tenants[id].grace_prev != prev || ++listed > in_grace) {
      return "the grace list is broken";
    }
    if (tenants[id].last_act < last) return "the grace list is out of order";
    last = tenants[id].last_act;
  }
  if (listed != in_grace) return "the grace list lost a tenant";
  if (exclusive != kNobody && !Known(exclusive)) return "a removed tenant holds the device";
  return "";
}

#ifndef NDEBUG
void AbortIfBroken(const char* broken) {
  if (*broken == '\0') return;
  std::fprintf(stderr, "gpushare: the arbiter's books are broken: %s\n", broken);
  std::abort();
}
#endif

}  // namespace gpushare::sched
