// SPDX-License-Identifier: Apache-2.0
// Budgets inside budgets: which tenants belong to which family, and how a family is one tenant to all others.
#include <algorithm>
#include <memory>
#include <utility>

#include "sched/state.h"

namespace gpushare::sched {

using State = Arbiter::State;

namespace {

// The limits of a family's group in `band`. The guarantee holds only in the parent's own band.
TenantLimits OfGroup(const TenantLimits& parent, Band band) {
  TenantLimits limits = parent;
  if (band != parent.band) limits.guarantee = 0;
  limits.band = band;
  return limits;
}

}  // namespace

TenantLimits AsMember(const TenantLimits& limits) {
  TenantLimits member = limits;
  member.weight = 1;
  member.guarantee = 0;
  member.cap = 1;
  return member;
}

Places State::MakePlaces(TenantId member, Band band) {
  Places places;
  Family* const family = FamilyOf(at(member));
  const auto make = [&](Band in) {
    const auto i = static_cast<size_t>(in);
    const TenantId group_id = family == nullptr ? kNobody : family->groups[i];
    if (group_id == kNobody && places.groups[i] == nullptr) {
      places.groups[i] = std::make_unique<Group>(&position_f, &position_r);
    }
    Group& group = group_id == kNobody ? *places.groups[i] : *at(group_id).group;
    const size_t most = group.members + 2;  // the parent, and its first child
    if (most <= group.room) return;
    group.Reserve(2 * most);
    group.room = 2 * most;
  };
  make(band);
  if (family != nullptr) return places;
  make(at(member).limits.band);
  places.family = std::make_unique<Family>();
  if (families.size() == families.capacity()) families.reserve(2 * families.size() + 1);
  return places;
}

// Makes a family of a tenant that gets its first child. The group's entry takes over the tenant's tags, its cap's bucket, and
// what it has in flight.
Family* State::MakeFamily(TenantId parent, Places& places) {
  families.push_back(std::move(places.family));
  Family* const family = families.back().get();
  Unfile(parent);
  --band(at(parent)).registered;
  family->parent = parent;
  family->limits = at(parent).limits;
  family->bucket = at(parent).bucket;
  Enter(parent, *family, places);
  TenantState& t = at(parent);
  TenantState& entry = at(t.group_id);
  entry.f = t.f;
  entry.r = t.r;
  entry.forgiven_f = std::exchange(t.forgiven_f, 0);
  entry.forgiven_r = std::exchange(t.forgiven_r, 0);
  entry.outstanding = t.outstanding;
  entry.idle_since = t.idle_since;
  t.limits = AsMember(t.limits);
  t.bucket = TokenBucket(t.limits.cap, Ns(t.limits.cap_depth), 0, now);
  t.f = LeastOther(parent);
  t.r = ReserveClock(t);
  File(parent);
  return family;
}

void State::Enter(TenantId id, Family& family, Places& places) {
  const Band in = at(id).limits.band;
  TenantId& group_id = family.groups[static_cast<size_t>(in)];
  if (group_id == kNobody) {
    group_id = NewEntry(OfGroup(family.limits, in));
    TenantState& entry = at(group_id);
    entry.peers = &band(entry);
    entry.group = std::move(places.groups[static_cast<size_t>(in)]);
    entry.group->family = &family;
    entry.is_group = true;
    entry.f = LeastOther(group_id);
    entry.r = ReserveClock();
    ++band(entry).registered;
  }
  Group& group = *at(group_id).group;
  ++group.members;
  at(id).group_id = group_id;
  at(id).peers = &group;
}

void State::Leave(TenantId id) {
  const TenantId group_id = std::exchange(at(id).group_id, kNobody);
  at(id).peers = &band(at(id));
  TenantState& entry = at(group_id);
  if (--entry.group->members > 0) {
    FileGroup(group_id);
    return;
  }
  FileGroup(group_id);  // it has no members any more, so this makes it inactive
  --band(entry).registered;
  entry.group->family->groups[static_cast<size_t>(entry.limits.band)] = kNobody;
  entry = TenantState();
  free_ids.push_back(group_id);
}

void State::SetFamilyLimits(Family& family, const TenantLimits& limits) {
  const bool was_capped = family.limits.cap < 1;
  family.limits = limits;
  if (was_capped) {
    family.bucket.Reshape(limits.cap, Ns(limits.cap_depth), now);
  } else {
    family.bucket = TokenBucket(limits.cap, Ns(limits.cap_depth), 0, now);
  }
  for (const TenantId id : family.groups) {
    if (id == kNobody) continue;
    Unfile(id);
    TenantState& entry = at(id);
    if (!entry.guaranteed()) entry.r = ReserveClock();
    entry.forgiven_f = entry.forgiven_r = 0;
    entry.limits = OfGroup(limits, entry.limits.band);
    FileGroup(id);
  }
}

}  // namespace gpushare::sched
