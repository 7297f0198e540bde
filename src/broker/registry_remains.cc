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
  for (const auto& [name, tenant] : tenants_) {
    const bool ordered = tenant->listed ? tenant->suspended || tenant->draining : Ordered(*tenant);
    const bool stays = tenant->sessions > 0 || (!tenant->listed && tenant->children > 0);
    if (!ordered && !stays) continue;
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
    if (tenants.insert(session.tenant).second) {
      growth.tenants.push_back(RemainsOf(*session.tenant));
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
  const auto restore = [&](const Remains::Change& change) -> absl::Status {
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
    std::erase_if(left, [&](const Remains::Change* change) { return restore(*change).ok(); });
  }
  for (const Remains::Change* change : left) {
    dropped(absl::StrCat("a change of tenant '", change->tenant, "'"), restore(*change));
  }
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
    if (possible) {
      SetParent(*tenant->second, parent->second.get());
    } else {
      const std::string why =
          parent == tenants_.end() ? absl::StrCat("'", left.parent, "' is not listed any more")
          : tenant->second->children > 0
              ? absl::StrCat("'", left.name, "' has children itself now")
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
      absl::StatusOr<Share*> share = ShareOf(tenant, *gpu->second, now, changed);
      if (!share.ok() && !tenant.listed) {
        // The share no longer fits, so nothing is promised to the tenant, but what it holds still counts.
        dropped(absl::StrCat("the share of tenant '", left.tenant, "'"), share.status());
        tenant.config.spec.clear();
        if (tenant.parent != nullptr && !HasShare(tenant)) SetParent(tenant, nullptr);
        share = ShareOf(tenant, *gpu->second, now, changed);
      }
      if (!share.ok()) {
        dropped(absl::StrCat("process ", left.pid), share.status());
        continue;
      }
      Place place{.share = *share};
      place.memory =
          BookOf(**share).Restore(std::min(holding.granted, gpu->second->info.memory), changed);
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
