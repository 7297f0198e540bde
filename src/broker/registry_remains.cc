// SPDX-License-Identifier: Apache-2.0
// The state for the next broker, and taking over the state of the last one.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "broker/registry.h"
#include "broker/tenant_spec.h"
#include "spec/text.h"

namespace gpushare::broker {
Remains::Gpu Registry::RemainsOf(const Gpu& gpu) {
  return {.uuid = gpu.info.uuid,
          .memory = gpu.info.memory,
          .sm_count = gpu.info.sm_count,
          .draining = gpu.draining};
}

Remains::Tenant Registry::RemainsOf(const Tenant& tenant) {
  return {.name = tenant.name,
          .listed = tenant.listed,
          .owner = tenant.owner,
          .spec = tenant.config.spec,
          .on = tenant.config.on,
          .parent = tenant.parent == nullptr ? "" : tenant.parent->name,
          .suspended = tenant.suspended,
          .draining = tenant.draining};
}

Remains::Process Registry::TakeRemainsOf(const Session& session) {
  Remains::Process process{.session = session.id,
                           .pid = session.who.pid,
                           .began = session.who.began,
                           .uid = session.who.uid,
                           .gid = session.who.gid,
                           .asked = session.asked,
                           .tenant = session.tenant->name,
                           .program = session.program,
                           .image = session.image,
                           .returns = !session.ended || session.lost(),
                           .evicted = session.evicted,
                           .holds = {}};
  for (const Place& place : session.places) {
    place.memory->kept = place.memory->granted;
    process.holds.push_back({.gpu = place.share->gpu->info.uuid, .granted = place.memory->granted});
  }
  return process;
}

Remains Registry::TakeRemains() {
  Remains remains;
  remains.draining = draining_;
  for (const auto& [uuid, gpu] : gpus_) {
    if (!gpu->draining && (knows_gpus_ || gpu->shares.empty())) continue;
    remains.gpus.push_back(RemainsOf(*gpu));
  }
  // A parent is recorded with its children that have processes: it may not be listed any more when they are restored.
  std::set<const Tenant*> parents;
  for (const Session& session : sessions_) parents.insert(session.tenant->parent);
  for (const auto& [name, tenant] : tenants_) {
    const bool ordered = tenant->listed ? tenant->suspended || tenant->draining : Ordered(*tenant);
    if (!ordered && tenant->sessions == 0 && parents.count(tenant.get()) == 0) continue;
    remains.tenants.push_back(RemainsOf(*tenant));
  }
  for (const auto& [uuid, gpu] : gpus_) {
    for (const auto& [name, share] : gpu->shares) {
      if (!share->set) continue;
      const absl::StatusOr<gpushare_spec> configured = SpecOn(share->tenant->config, uuid);
      remains.changes.push_back({.gpu = uuid,
                                 .tenant = name,
                                 .configured = configured.ok() ? spec::FormatSpec(*configured) : "",
                                 .spec = spec::FormatSpec(share->spec)});
    }
  }
  for (const Session& session : sessions_) {
    if (session.ended && HoldsNothing(session)) continue;
    remains.processes.push_back(TakeRemainsOf(session));
  }
  return remains;
}

Remains::Growth Registry::TakeGrowth() {
  Remains::Growth growth;
  std::set<const Gpu*> gpus;
  std::set<const Tenant*> tenants;
  for (const Session& session : sessions_) {
    // Lower grants are recorded too: another process may have been granted the difference.
    const bool differs =
        std::any_of(session.places.begin(), session.places.end(),
                    [](const Place& place) { return place.memory->granted != place.memory->kept; });
    if (!differs) continue;
    growth.processes.push_back(TakeRemainsOf(session));
    for (const Tenant* tenant = session.tenant; tenant != nullptr; tenant = tenant->parent) {
      if (tenants.insert(tenant).second) growth.tenants.push_back(RemainsOf(*tenant));
    }
    for (const Place& place : session.places) {
      const Gpu& gpu = *place.share->gpu;
      if (!knows_gpus_ && gpus.insert(&gpu).second) growth.gpus.push_back(RemainsOf(gpu));
    }
    // The former session no longer holds what this session has taken over.
    const Session* const former = session.former;
    if (former == nullptr) continue;
    if (HoldsNothing(*former)) {
      growth.gone.push_back(former->id);
    } else {
      growth.processes.push_back(TakeRemainsOf(*former));
    }
  }
  return growth;
}

// An operator's change of a share stays in force if the configuration of that share is the same as then.
void Registry::RestoreChanges(const Remains& remains, Time now, Changed& changed,
                              const Dropped& dropped) {
  std::vector<const Remains::Change*> left;
  for (const Remains::Change& change : remains.changes) left.push_back(&change);
  // GPU and tenant of each process's holdings, and its tenant's parent.
  std::set<std::pair<std::string, std::string>> there;
  for (const Remains::Process& process : remains.processes) {
    const auto tenant = tenants_.find(process.tenant);
    if (tenant == tenants_.end()) continue;
    const Tenant* const parent = tenant->second->parent;
    for (const Remains::Holding& holding : process.holds) {
      there.emplace(holding.gpu, process.tenant);
      if (parent != nullptr) there.emplace(holding.gpu, parent->name);
    }
  }
  const auto restore = [&](const Remains::Change& change, bool as_fits) -> absl::Status {
    const auto gpu = gpus_.find(change.gpu);
    const auto tenant = tenants_.find(change.tenant);
    if (gpu == gpus_.end() || tenant == tenants_.end()) {
      return absl::NotFoundError("there is no such share any more");
    }
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec configured,
                              SpecOn(tenant->second->config, change.gpu));
    if (spec::FormatSpec(configured) != change.configured) {
      return absl::FailedPreconditionError("the configuration says something else since");
    }
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec spec, spec::ParseSpec(change.spec));
    GPUSHARE_RETURN_IF_ERROR(spec::ValidateSpec(spec));
    // An unlisted tenant without a process on the GPU gets a dormant share, since others may hold the memory.
    const bool dormant = !tenant->second->listed && there.count({change.gpu, change.tenant}) == 0;
    if (dormant && tenant->second->parent != nullptr) {
      return absl::NotFoundError("the tenant is no longer listed, and has no process there");
    }
    absl::StatusOr<Share*> share;
    if (dormant) {
      share = DormantShareOf(*tenant->second, *gpu->second, now, changed);
    } else if (as_fits) {
      share = RestoredShareOf(*tenant->second, *gpu->second, now, changed, dropped);
    } else {
      share = ShareOf(*tenant->second, *gpu->second, now, changed);
    }
    GPUSHARE_RETURN_IF_ERROR(share.status());
    std::vector<Checked> changes;
    if (dormant) {
      GPUSHARE_ASSIGN_OR_RETURN(const spec::Limits limits,
                                LimitsOf(spec, nullptr, gpu->second->capacity));
      changes.push_back({*share, spec, limits, dormant});
    } else {
      GPUSHARE_RETURN_IF_ERROR(CheckChange(**share, spec, &changes));
    }
    for (const Checked& each : changes) Assign(each, now, changed);
    (*share)->set = true;
    return absl::OkStatus();
  };
  // One change may make the room that another needs, so they are tried until none succeeds.
  for (size_t before = left.size() + 1; left.size() < before;) {
    before = left.size();
    std::erase_if(left,
                  [&](const Remains::Change* change) { return restore(*change, false).ok(); });
  }
  // The share that a change is of may not fit as it is configured, and fit with the change.
  for (const Remains::Change* change : left) {
    const bool holds = there.count({change->gpu, change->tenant}) != 0;
    const absl::Status restored = restore(*change, holds);
    if (restored.ok()) continue;
    dropped(absl::StrCat("a change of tenant '", change->tenant, "'"), restored);
  }
}

Registry::Share* Registry::RestoredShareOf(Tenant& tenant, Gpu& gpu, Time now, Changed& changed,
                                           const Dropped& dropped) {
  Share* const parent = tenant.parent == nullptr
                            ? nullptr
                            : RestoredShareOf(*tenant.parent, gpu, now, changed, dropped);
  const absl::StatusOr<Share*> share = ShareOf(tenant, gpu, now, changed);
  if (share.ok()) return *share;
  dropped(absl::StrCat("a part of the share of tenant '", tenant.name, "'"), share.status());
  return FittingShareOf(tenant, gpu, parent, now, changed);
}

// Whether the tenant is to have a quota on each GPU.
bool Registry::HasQuota(const Tenant& tenant) const {
  return std::all_of(gpus_.begin(), gpus_.end(), [&tenant](const auto& gpu) {
    const absl::StatusOr<gpushare_spec> spec = SpecOn(tenant.config, gpu.first);
    return spec.ok() && (spec->set & (GPUSHARE_SPEC_MEMORY | GPUSHARE_SPEC_MEMORY_SHARE)) != 0;
  });
}

// A part of a share that does not fit is left out: of the guarantee and of a priority all, of memory what is too much. What
// processes hold counts in any case.
Registry::Share* Registry::FittingShareOf(Tenant& tenant, Gpu& gpu, Share* parent, Time now,
                                          Changed& changed) {
  gpushare_spec spec = SpecOn(tenant.config, gpu.info.uuid).value_or(gpushare_spec{});
  const spec::Limits* const of_parent = parent == nullptr ? nullptr : &parent->limits;
  const absl::StatusOr<spec::Limits> all = LimitsOf(spec, of_parent, gpu.capacity);
  if (!all.ok()) spec = {};
  spec::Limits limits = all.value_or(spec::Limits{});
  constexpr uint32_t kMemory = GPUSHARE_SPEC_MEMORY | GPUSHARE_SPEC_MEMORY_SHARE;
  if (parent != nullptr) {
    if (parent->quota == nullptr) limits.memory.reset();
  } else {
    const uint64_t left = gpu.capacity - std::min(gpu.promised, gpu.capacity);
    if (tenant.children > 0) {
      // Its children's memory is within its quota, so it has one, if only of nothing. No spec says that.
      limits.memory = std::min(limits.memory.value_or(0), left);
      spec.set = (spec.set & ~kMemory) | GPUSHARE_SPEC_MEMORY;
      spec.memory = std::max(*limits.memory, uint64_t{1});
    } else if (limits.memory.value_or(0) > left) {
      limits.memory.reset();
      spec.set &= ~kMemory;
    }
  }
  absl::Status fits = Admit(gpu, tenant.name, limits, nullptr, parent);
  if (fits.ok() && !tenant.listed && parent == nullptr) {
    fits = AdmitHigh(gpu, tenant.name, limits);
  }
  if (!fits.ok()) {
    // The policy may be what guarantees something; what else it came to stays.
    sched::TenantLimits& compute = limits.compute;
    compute.guarantee = 0;
    compute.band = std::max(compute.band,
                            parent == nullptr ? sched::Band::kNormal : parent->limits.compute.band);
    spec.set &= ~(GPUSHARE_SPEC_COMPUTE | GPUSHARE_SPEC_GUARANTEE | GPUSHARE_SPEC_POLICY);
    spec.set |= GPUSHARE_SPEC_WEIGHT | GPUSHARE_SPEC_PRIORITY;
    spec.weight = compute.weight;
    spec.priority = spec::PriorityOf(compute.band);
    if (compute.cap < 1) {
      spec.set |= GPUSHARE_SPEC_CAP;
      spec.cap = compute.cap;
    }
  }
  return MakeShare(tenant, gpu, parent, spec, limits, now, changed);
}

std::vector<Registry::Session*> Registry::Restore(const Remains& remains, Time now,
                                                  Changed& changed, const Dropped& dropped) {
  for (const Remains::Gpu& left : remains.gpus) {
    if (gpus_.count(left.uuid) == 0) {
      const absl::StatusOr<Gpu*> gpu = FindGpu({.uuid = left.uuid,
                                                .memory = left.memory,
                                                .sm_count = static_cast<uint32_t>(left.sm_count)},
                                               now, changed);
      if (!gpu.ok()) {
        dropped(absl::StrCat("GPU ", left.uuid), gpu.status());
        continue;
      }
    }
    gpus_.at(left.uuid)->draining = left.draining;
  }
  draining_ = remains.draining;
  for (const Remains::Tenant& left : remains.tenants) {
    std::unique_ptr<Tenant>& tenant = tenants_[left.name];
    if (tenant == nullptr) {
      absl::Status valid = spec::ValidateTenantName(left.name);
      const absl::StatusOr<gpushare_spec> spec = spec::ParseSpec(left.spec);
      if (valid.ok()) valid = spec.ok() ? spec::ValidateSpec(*spec) : spec.status();
      if (!valid.ok()) {
        tenants_.erase(left.name);
        dropped(absl::StrCat("tenant '", left.name, "'"), valid);
        continue;
      }
      tenant = std::make_unique<Tenant>();
      tenant->name = tenant->config.name = left.name;
      tenant->config.spec = left.spec;
      tenant->config.on = left.on;
      // If the configuration no longer admits the tenant, its processes keep what they hold, and no new process may join.
      tenant->owner = config_.unlisted && !left.listed ? left.owner : kNobody;
    }
    tenant->draining = left.draining || draining_;
    if (left.suspended) Suspend(left.name, true, now, changed).IgnoreError();
  }
  for (const auto& [name, tenant] : tenants_) tenant->draining |= draining_;
  // One that is no longer listed is within its former parent until its processes end, if that can still be a parent.
  for (const Remains::Tenant& left : remains.tenants) {
    const auto tenant = tenants_.find(left.name), parent = tenants_.find(left.parent);
    if (left.parent.empty() || tenant == tenants_.end() || tenant->second->listed) continue;
    const bool possible = parent != tenants_.end() && parent != tenant &&
                          parent->second->parent == nullptr && tenant->second->children == 0;
    if (possible && HasQuota(*parent->second)) {
      SetParent(*tenant->second, parent->second.get());
    } else {
      const std::string why =
          parent == tenants_.end() ? absl::StrCat("'", left.parent, "' is not listed any more")
          : tenant->second->children > 0 ? absl::StrCat("'", left.name, "' has children itself now")
          : possible
              ? absl::StrCat("'", left.parent, "' has no memory quota any more")
              : absl::StrCat("'", left.parent, "' has a parent itself now, or is the same tenant");
      dropped(absl::StrCat("the parent '", left.parent, "' of tenant '", left.name, "'"),
              absl::FailedPreconditionError(
                  absl::StrCat(why, "; its processes keep what they hold, within no parent")));
    }
  }
  RestoreChanges(remains, now, changed, dropped);

  std::vector<Session*> restored;
  for (const Remains::Process& left : remains.processes) {
    restored.push_back(nullptr);
    const auto at = tenants_.find(left.tenant);
    if (at == tenants_.end()) {
      dropped(absl::StrCat("process ", left.pid),
              absl::NotFoundError(absl::StrCat("there is no tenant '", left.tenant, "'")));
      continue;
    }
    Tenant& tenant = *at->second;
    Session& session = sessions_.emplace_back();
    session.id = next_session_++;
    session.who = {.pid = left.pid, .uid = left.uid, .gid = left.gid, .began = left.began};
    session.program = left.program;
    session.asked = left.asked;
    session.image = left.image;
    session.tenant = &tenant;
    tenant.numbered = !tenant.listed && left.asked.empty();
    session.ended = true;
    session.evicted = left.evicted;
    session.ended_by_itself = !left.returns && !left.evicted;
    ++tenant.sessions;
    restored.back() = &session;
    for (const Remains::Holding& holding : left.holds) {
      const auto gpu = gpus_.find(holding.gpu);
      if (gpu == gpus_.end()) {
        dropped(absl::StrCat("process ", left.pid),
                absl::NotFoundError(absl::StrCat("there is no GPU ", holding.gpu)));
        continue;
      }
      Share* const share = RestoredShareOf(tenant, *gpu->second, now, changed, dropped);
      Place place{.share = share};
      place.memory =
          BookOf(*share).Restore(std::min(holding.granted, gpu->second->info.memory), changed);
      session.places.push_back(place);
    }
  }
  std::vector<std::string> unused;
  for (const auto& [name, tenant] : tenants_) {
    unused.push_back(name);
    if (tenant->listed || InUse(*tenant) || tenant->parent != nullptr) continue;
    if (!HeldBack(*tenant)) continue;
    for (const auto& [uuid, gpu] : gpus_) DormantShareOf(*tenant, *gpu, now, changed);
  }
  for (const std::string& name : unused) SweepIfThere(name, now, changed);
  return restored;
}

}  // namespace gpushare::broker
