// SPDX-License-Identifier: Apache-2.0
// An operator's changes: the limits of a tenant, suspending, and draining.
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "broker/registry.h"
#include "broker/tenant_spec.h"
#include "spec/text.h"

namespace gpushare::broker {

absl::StatusOr<std::string> Registry::Set(const std::string& tenant, const std::string& gpu,
                                          const std::string& change, Time now, Changed& changed) {
  const auto at = tenants_.find(tenant);
  if (at == tenants_.end()) return NoTenant(tenant);
  GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec keys, spec::ParseSpec(change));
  // The change is made on all GPUs or on none.
  std::vector<Checked> changes;
  std::set<std::string> ended;
  for (const auto& [uuid, there] : gpus_) {
    if (!gpu.empty() && gpu != uuid) continue;
    const auto share = there->shares.find(tenant);
    if (share == there->shares.end()) continue;
    const gpushare_spec merged = spec::MergeSpec(share->second->spec, keys);
    GPUSHARE_RETURN_IF_ERROR(CheckTenantSpec(merged));
    GPUSHARE_RETURN_IF_ERROR(CheckChange(*share->second, merged, &changes));
    ended.insert(spec::EndedBy(share->second->spec, keys));
  }
  if (!gpu.empty() && gpus_.find(gpu) == gpus_.end()) return NoGpu(gpu);
  if (changes.empty()) {
    return absl::NotFoundError(absl::StrCat("tenant '", tenant, "' has no share of ",
                                            gpu.empty() ? "any GPU" : "GPU " + gpu));
  }
  for (const Checked& each : changes) {
    Assign(each, now, changed);
    each.share->set |= each.share->tenant == at->second.get();
  }
  at->second->look_at = dormant_until_ = Time{};
  ended.erase("");
  return absl::StrJoin(ended, "; ");
}

absl::Status Registry::CheckChange(Share& share, const gpushare_spec& spec,
                                   std::vector<Checked>* changes) const {
  const Gpu& gpu = *share.gpu;
  const Tenant& tenant = *share.tenant;
  GPUSHARE_ASSIGN_OR_RETURN(const spec::Limits limits,
                            LimitsOf(spec, LimitsOfParent(share), gpu.capacity));
  GPUSHARE_RETURN_IF_ERROR(Admit(gpu, tenant.name, limits, &share, share.parent));
  GPUSHARE_RETURN_IF_ERROR(CheckQuota(share, limits));
  changes->push_back({&share, spec, limits, share.dormant});
  if (tenant.children == 0) return absl::OkStatus();
  // Children that have no priority of their own have the new one.
  double guaranteed = 0;
  for (const auto& [name, other] : gpu.shares) {
    if (other->parent != &share) continue;
    GPUSHARE_ASSIGN_OR_RETURN(const spec::Limits its, LimitsOf(other->spec, &limits, gpu.capacity));
    const absl::Status within = CheckWithin(name, its, tenant.name, limits, guaranteed);
    if (!within.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("tenant '", tenant.name, "' on GPU ", gpu.info.uuid,
                       ": then its child does not fit: ", within.message()));
    }
    guaranteed += its.compute.guarantee;
    changes->push_back({other.get(), other->spec, its, other->dormant});
  }
  return absl::OkStatus();
}

absl::Status Registry::Suspend(const std::string& tenant, bool suspended, Time now,
                               Changed& changed) {
  const auto at = tenants_.find(tenant);
  if (at == tenants_.end()) return NoTenant(tenant);
  at->second->suspended = suspended;
  at->second->look_at = dormant_until_ = Time{};
  for (const auto& [uuid, gpu] : gpus_) {
    const auto share = gpu->shares.find(tenant);
    if (share != gpu->shares.end()) gpu->time.Suspend(share->second->time, suspended, now, changed);
  }
  return absl::OkStatus();
}

absl::Status Registry::Drain(const std::string& tenant, const std::string& gpu, bool draining,
                             Changed& changed) {
  if (!tenant.empty() && !gpu.empty()) {
    return absl::InvalidArgumentError("a tenant and a GPU are named: one of them can be drained");
  }
  if (!gpu.empty()) {
    const auto at = gpus_.find(gpu);
    if (at == gpus_.end()) return NoGpu(gpu);
    at->second->draining = draining;
    for (Session& session : sessions_) TellOfDraining(session, changed);
    return absl::OkStatus();
  }
  if (!tenant.empty() && tenants_.find(tenant) == tenants_.end()) {
    return NoTenant(tenant);
  }
  if (!tenant.empty() && !draining && draining_) {
    return absl::FailedPreconditionError(
        "all tenants are being drained: that is to be undone first, without a name");
  }
  if (tenant.empty()) draining_ = draining;
  for (const auto& [name, there] : tenants_) {
    if (!tenant.empty() && name != tenant) continue;
    there->draining = draining;
    there->look_at = Time{};
  }
  dormant_until_ = Time{};
  for (Session& session : sessions_) TellOfDraining(session, changed);
  return absl::OkStatus();
}

void Registry::TellOfDraining(Session& session, Changed& changed) {
  if (session.ended) return;
  for (Place& place : session.places) {
    const bool draining = session.tenant->draining || place.share->gpu->draining;
    BookOf(*place.share).SetDraining(place.memory, draining, changed);
  }
}

}  // namespace gpushare::broker
