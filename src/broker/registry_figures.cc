// SPDX-License-Identifier: Apache-2.0
// The registry's figures and invariants.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "broker/registry.h"
#include "broker/tenant_spec.h"
#include "spec/spec.h"
#include "spec/text.h"

namespace gpushare::broker {
Snapshot Registry::TakeSnapshot(Time now) const {
  Snapshot snapshot;
  snapshot.at = now;
  std::map<const Share*, size_t> place_of;
  for (const auto& [uuid, gpu] : gpus_) {
    snapshot.gpus.push_back({.uuid = uuid,
                             .memory = gpu->capacity,
                             .memory_promised = gpu->promised,
                             .guaranteed = gpu->guaranteed,
                             .draining = gpu->draining});
    for (const auto& [name, share] : gpu->shares) {
      place_of[share.get()] = snapshot.shares.size();
      broker::Share& shown = snapshot.shares.emplace_back();
      shown.gpu = uuid;
      shown.tenant = name;
      if (share->parent != nullptr) shown.parent = share->parent->tenant->name;
      shown.spec = spec::FormatSpec(share->spec);
      shown.labels = share->tenant->config.labels;
      shown.suspended = share->tenant->suspended;
      shown.draining = share->tenant->draining || gpu->draining;
      if (share->quota != nullptr) shown.memory_limit = share->quota->limit();
      shown.priority = spec::PriorityName(share->limits.compute.band);
      shown.guarantee = share->limits.compute.guarantee;
      shown.weight = share->limits.compute.weight;
      shown.cap = share->limits.compute.cap;
      shown.time_used = Nanos(share->time->used_ns);
      shown.in_line = share->time->waits;
      shown.preempted = share->time->preempted;
      shown.launches = share->launches;
      shown.waits = share->waits;
      shown.allocations_denied = share->denied;
      shown.throttled = Nanos(share->throttled_ns);
      shown.memory_peak = share->peak;
    }
  }
  for (const Session& session : sessions_) {
    for (const Place& place : session.places) {
      broker::Share& shown = snapshot.shares[place_of.at(place.share)];
      ProcessShare& process = shown.processes.emplace_back();
      process.session = session.id;
      process.pid = session.who.pid;
      process.uid = session.who.uid;
      process.gid = session.who.gid;
      process.program = session.program;
      process.memory_used = MemoryBook::Used(*place.memory);
      process.memory_granted = place.memory->granted;
      process.gone = session.ended;
      process.evicted = session.evicted;
      process.reclaiming = session.reclaiming;
      if (session.reclaiming) shown.memory_reclaiming += process.memory_granted;
      shown.memory_used += process.memory_used;
      shown.memory_granted += process.memory_granted;
      if (place.time != nullptr) process.time_used = Nanos(place.time->used_ns);
      if (place.seat == nullptr) continue;
      const ipc::UsagePage& usage = *place.seat->usage;
      shown.launches += usage.launches.load(kRelaxed);
      shown.waits += usage.waits.load(kRelaxed);
      shown.allocations_denied += usage.allocations_denied.load(kRelaxed);
      shown.throttled += ThrottledOf(usage);
    }
  }
  // What a parent holds is with what its children do, as its quota is.
  for (const auto& [share, place] : place_of) {
    if (share->parent == nullptr) continue;
    broker::Share& parent = snapshot.shares[place_of.at(share->parent)];
    parent.memory_used += snapshot.shares[place].memory_used;
    parent.memory_granted += snapshot.shares[place].memory_granted;
    parent.memory_reclaiming += snapshot.shares[place].memory_reclaiming;
  }
  for (broker::Share& shown : snapshot.shares) {
    // No peak is kept without a quota.
    if (shown.memory_limit == UINT64_MAX) shown.memory_peak = shown.memory_used;
  }
  for (const Session& session : sessions_) snapshot.sessions += session.ended ? 0 : 1;
  snapshot.sessions_ever = sessions_ever_;
  snapshot.refused = refused_;
  return snapshot;
}

Claims Registry::TakeClaims() const {
  Claims claims;
  for (const Session& session : sessions_) {
    if (session.who.pid == 0) continue;
    for (const Place& place : session.places) {
      Claim& claim = claims[{place.share->gpu->info.uuid, session.who.pid}];
      claim.granted += place.memory->granted;
      // The process's claim as written: the audit judges whether it can be true.
      const uint64_t says = place.seat == nullptr
                                ? place.memory->granted
                                : place.seat->usage->memory_charged.load(kRelaxed);
      claim.says = says > UINT64_MAX - claim.says ? UINT64_MAX : claim.says + says;
      if (place.time != nullptr) claim.time_used_ns += place.time->used_ns;
      if (place.seat == nullptr) continue;
      claim.launches += place.seat->usage->launches.load(kRelaxed);
      claim.in_flight |= place.seat->usage->time_in_flight_ns.load(kRelaxed) > 0;
    }
  }
  return claims;
}

std::vector<std::string> Registry::gpus() const {
  std::vector<std::string> uuids;
  for (const auto& [uuid, gpu] : gpus_) uuids.push_back(uuid);
  return uuids;
}

const char* Registry::CheckFamily(const Share& share) {
  const Share* const parent = share.parent;
  if ((parent == nullptr ? nullptr : parent->tenant) != share.tenant->parent) {
    return "a share is not within its parent's";
  }
  if (parent == nullptr) {
    return (share.family == nullptr) == (share.quota == nullptr)
               ? nullptr
               : "a share has a family without a quota";
  }
  if (parent->parent != nullptr) return "a share's parent has a parent";
  if (parent->quota == nullptr) return "a share's parent has no quota";
  return share.family == parent->family ? nullptr : "a share is of another family than its parent";
}

const char* Registry::CheckInvariants() const {
  for (const auto& [uuid, gpu] : gpus_) {
    uint64_t promised = 0, granted = gpu->unpromised.granted();
    double guaranteed = 0;
    std::map<const Share*, double> guaranteed_to_children;
    for (const auto& [name, share] : gpu->shares) {
      if (share->parent == nullptr) {
        promised += share->limits.memory.value_or(0);
        guaranteed += share->limits.compute.guarantee;
      } else {
        guaranteed_to_children[share->parent] += share->limits.compute.guarantee;
      }
      if (const char* broken = CheckFamily(*share)) return broken;
      if (share->dormant && (share->quota != nullptr || share->limits.compute.guarantee > 0)) {
        return "a dormant share is promised something";
      }
      if (share->quota == nullptr) continue;
      granted += share->quota->granted();
      if (const char* broken = share->quota->CheckInvariants()) return broken;
    }
    if (promised != gpu->promised) return "the promises of a GPU do not add up";
    if (std::abs(guaranteed - gpu->guaranteed) > kGuaranteeRounding) {
      return "the guarantees of a GPU do not add up";
    }
    for (const auto& [name, share] : gpu->shares) {
      const double sum = guaranteed_to_children[share.get()];
      if (std::abs(sum - share->children_guaranteed) > kGuaranteeRounding) {
        return "the guarantees of a tenant's children do not add up";
      }
    }
    if (promised > gpu->capacity) return "more memory is promised than there is";
    if (granted != gpu->pool.granted) return "what the books of a GPU have granted does not add up";
    if (granted > std::max(gpu->pool.capacity, gpu->pool.excused)) {
      return "more memory was granted than there is";
    }
    if (const char* broken = gpu->unpromised.CheckInvariants()) return broken;
    if (const char* broken = gpu->time.CheckInvariants()) return broken;
  }
  std::map<const Tenant*, int> sessions, children;
  for (const auto& [name, tenant] : tenants_) ++children[tenant->parent];
  for (const Session& session : sessions_) {
    ++sessions[session.tenant];
    for (const Place& place : session.places) {
      if (place.share->dormant) return "a process has a dormant share";
    }
  }
  const std::set<const Tenant*> dormant(dormant_.begin(), dormant_.end());
  if (dormant.size() != dormant_.size()) return "a tenant is dormant twice";
  for (const auto& [name, tenant] : tenants_) {
    if (sessions[tenant.get()] != tenant->sessions) return "a tenant's sessions do not add up";
    if (children[tenant.get()] != tenant->children) return "a tenant's children do not add up";
    const bool unused = !tenant->listed && !InUse(*tenant);
    if (unused != (dormant.count(tenant.get()) == 1)) return "who is dormant is not known";
  }
  return nullptr;
}

}  // namespace gpushare::broker
