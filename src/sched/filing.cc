// SPDX-License-Identifier: Apache-2.0
// Where each tenant is filed: inactive, held by its cap, waiting, running, or running with nothing outstanding within its grace.
#include <algorithm>

#include "sched/state.h"

namespace gpushare::sched {

using State = Arbiter::State;

void State::Unfile(TenantId id) {
  TenantState& t = at(id);
  Peers& b = *t.peers;
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
  if (!t.is_group && gated(t)) --gated_active;
}

void State::Move(TenantId id, Place want) {
  TenantState& t = at(id);
  const Place was = t.place;
  const bool contended = was == Place::kWaiting || was == Place::kRunning;
  t.released = was == Place::kCapped && want == Place::kWaiting ? now : kNever;
  Unfile(id);
  if (want == Place::kInactive) {
    bucket(t).KeepNoMore(now);
    return;
  }
  if (!contended && want != Place::kCapped) Wakes(id, was);
  Peers& b = *t.peers;
  ++b.active;
  b.active_weight += t.limits.weight;
  if (!t.is_group && gated(t)) ++gated_active;
  t.place = want;
  if (want == Place::kCapped) {
    capped.Push(id, Since(bucket(t).ExceedsAt(CapQuantum(t))));
  } else if (want == Place::kWaiting) {
    ClampToLent(t);
    b.waiting_f.Push(id, t.f);
    if (t.guaranteed()) b.waiting_r.Push(id, t.r);
  } else {
    b.running_f.Push(id, t.f);
    if (t.guaranteed()) b.running_r.Push(id, t.r);
  }
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
  if (want == t.place) {
    Rekey(id);
  } else {
    Move(id, want);
  }
  if (t.group_id != kNobody) [[unlikely]]
    FileFamily(t);
}

void State::FileGroup(TenantId id) {
  TenantState& t = at(id);
  if (!Idle(t)) {
    EndIdle(id);
  } else if (t.idle_since == kNever) {
    t.idle_since = now;
  }
  Place want = Place::kInactive;
  if (!t.group->waiting_f.empty()) {
    want = Place::kWaiting;
  } else if (!t.group->running_f.empty()) {
    want = Place::kRunning;
  }
  if (want != Place::kInactive && t.capped()) {
    TokenBucket& tokens = bucket(t);
    tokens.Advance(now);
    if (tokens.level() <= (t.place == Place::kCapped ? CapQuantum(t) : 0)) want = Place::kCapped;
  }
  if (want == t.place) {
    Rekey(id);
  } else {
    Move(id, want);
  }
}

// Members in all bands use the same cap, so the groups of all bands are filed anew.
void State::FileFamily(const TenantState& t) {
  const Family& family = *FamilyOf(t);
  if (family.limits.cap >= 1) {
    FileGroup(t.group_id);
    return;
  }
  for (const TenantId id : family.groups) {
    if (id != kNobody) FileGroup(id);
  }
}

// A cap that was used up lets go when it is worth a grant again, not only a single command, because each
// return from idle costs two markers and a wake-up.
double State::CapQuantum(const TenantState& t) const {
  return std::min(Ns(options.lone_grant), bucket(t).depth() / 2);
}

void State::Rekey(TenantId id) {
  TenantState& t = at(id);
  Peers& b = *t.peers;
  if (t.place == Place::kWaiting) {
    b.waiting_f.Update(id, t.f);
    if (t.guaranteed()) b.waiting_r.Update(id, t.r);
  } else if (t.place == Place::kRunning) {
    b.running_f.Update(id, t.f);
    if (t.guaranteed()) b.running_r.Update(id, t.r);
  } else if (t.place == Place::kCapped) {
    capped.Update(id, Since(bucket(t).ExceedsAt(CapQuantum(t))));
  }
}

void State::LeaveGraceList(TenantId id) {
  TenantState& t = at(id);
  if (!t.in_grace_list) return;
  t.in_grace_list = false;
  (t.grace_prev == kNobody ? grace_head : at(t.grace_prev).grace_next) = t.grace_next;
  (t.grace_next == kNobody ? grace_tail : at(t.grace_next).grace_prev) = t.grace_prev;
}

// Keeps the list in the order of last_act. A tenant joins at the tail with a last_act of now. If only its
// books changed, it stays where it is.
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
    at(id).bucket.KeepNoMore(now);
    if (at(id).group_id != kNobody) FileGroup(at(id).group_id);
  }
}

void State::ReleaseCapped() {
  while (!capped.empty() && capped.top().key <= Since(now)) {
    const TenantId id = capped.top().id;
    if (at(id).is_group) {
      FileGroup(id);
    } else {
      File(id);
    }
    // The bucket's own arithmetic decides. A rounding error must not cause an endless loop here.
    if (at(id).place == Place::kCapped) break;
  }
}

}  // namespace gpushare::sched
