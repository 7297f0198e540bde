// SPDX-License-Identifier: Apache-2.0
// Applies a configuration: all of it or nothing.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "broker/registry.h"
#include "broker/tenant_spec.h"
#include "spec/text.h"

namespace gpushare::broker {

uint64_t Registry::CapacityOf(const GpuInfo& gpu, const Config& config) {
  auto at = config.reserve.find(gpu.uuid);
  if (at == config.reserve.end()) at = config.reserve.find("*");
  uint64_t reserve = gpu.reserve;
  if (at != config.reserve.end()) {
    const absl::StatusOr<uint64_t> bytes = spec::ParseMemory(at->second);
    if (bytes.ok()) reserve = *bytes;
  }
  return gpu.memory - std::min(reserve, gpu.memory);
}

// The tenants whose parent is another one than before, which then need new shares.
absl::Status Registry::CheckMoves(const Config& config, std::set<std::string>* moved) const {
  std::map<std::string, const TenantConfig*> entries;
  for (const TenantConfig& entry : config.tenants) entries[entry.name] = &entry;
  for (const TenantConfig& entry : config.tenants) {
    if (!entry.parent.empty()) {
      const auto parent = entries.find(entry.parent);
      if (parent == entries.end() || !parent->second->parent.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("tenant '", entry.name, "': '", entry.parent, "' cannot be its parent"));
      }
    }
    const auto at = tenants_.find(entry.name);
    if (at == tenants_.end()) continue;
    const Tenant& tenant = *at->second;
    if (entry.parent == (tenant.parent == nullptr ? "" : tenant.parent->name)) continue;
    if (tenant.sessions > 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("tenant '", entry.name,
                       "': its parent cannot be another one while its processes run; end them "
                       "first"));
    }
    moved->insert(entry.name);
  }
  // Those that are not listed any more keep their parent until their processes end.
  for (const auto& [name, tenant] : tenants_) {
    if (tenant->parent == nullptr || tenant->sessions == 0 || entries.count(name) != 0) continue;
    const auto parent = entries.find(tenant->parent->name);
    if (parent == entries.end() || parent->second->parent.empty()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("tenant '", tenant->parent->name,
                     "': it cannot have a parent while processes of its own child '", name,
                     "' run; end them first"));
  }
  return absl::OkStatus();
}

// Whether all of it fits on the GPU, with the shares of tenants that are not listed, which keep them while they have processes.
// Adds the changes of shares that stay to `changes`.
absl::Status Registry::CheckOn(const Gpu& gpu, const Config& config,
                               const std::set<std::string>& listed,
                               const std::set<std::string>& moved,
                               std::vector<Checked>* changes) const {
  const uint64_t capacity = CapacityOf(gpu.info, config);
  uint64_t promised = 0;
  double guaranteed = 0;
  // A parent that is no longer listed stays for its own processes, and for those of children that are not listed either.
  const auto stays = [&](const Tenant& tenant) {
    return tenant.sessions > 0 ||
           std::any_of(tenants_.begin(), tenants_.end(), [&](const auto& each) {
             return each.second->parent == &tenant && each.second->sessions > 0 &&
                    listed.count(each.first) == 0;
           });
  };
  for (const auto& [name, share] : gpu.shares) {
    if (listed.count(name) != 0 || share->parent != nullptr || !stays(*share->tenant)) continue;
    promised += share->limits.memory.value_or(0);
    guaranteed += share->limits.compute.guarantee;
  }
  const auto check_fits = [&](const std::string& up_to) -> absl::Status {
    if (promised <= capacity && guaranteed <= 1 + kGuaranteeRounding) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat(up_to, ", GPU ", gpu.info.uuid, " has ", spec::ReadableBytes(promised),
                     " promised of ", spec::ReadableBytes(capacity), ", and ",
                     spec::FormatShare(guaranteed), " of its time guaranteed of 100%"));
  };
  // There may be no tenant in the configuration, and less of the GPU than before.
  GPUSHARE_RETURN_IF_ERROR(check_fits("to tenants that are not listed and have processes"));
  struct OfParent {
    spec::Limits limits;
    double guaranteed = 0;  // to the children so far
  };
  std::map<std::string, OfParent> parents;
  const auto find = [&parents](const std::string& name) -> OfParent* {
    const auto at = parents.find(name);
    return at == parents.end() ? nullptr : &at->second;
  };
  const auto limits_within = [&](const std::string& name, const gpushare_spec& spec,
                                 const std::string& parent) -> absl::StatusOr<spec::Limits> {
    OfParent& of = *find(parent);
    GPUSHARE_ASSIGN_OR_RETURN(const spec::Limits limits, LimitsOf(spec, &of.limits, capacity));
    const absl::Status within = CheckWithin(name, limits, parent, of.limits, of.guaranteed);
    if (!within.ok()) {
      return absl::Status(within.code(),
                          absl::StrCat("on GPU ", gpu.info.uuid, ": ", within.message()));
    }
    of.guaranteed += limits.compute.guarantee;
    return limits;
  };
  const auto change = [&](const TenantConfig& tenant, const gpushare_spec& spec,
                          const spec::Limits& limits) -> absl::Status {
    const auto at = gpu.shares.find(tenant.name);
    if (at == gpu.shares.end() || moved.count(tenant.name) != 0) return absl::OkStatus();
    GPUSHARE_RETURN_IF_ERROR(CheckQuota(*at->second, limits));
    changes->push_back({at->second.get(), spec, limits});
    return absl::OkStatus();
  };

  for (const TenantConfig& tenant : config.tenants) {
    if (!tenant.parent.empty()) continue;
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec spec, SpecOn(tenant, gpu.info.uuid));
    GPUSHARE_ASSIGN_OR_RETURN(const spec::Limits limits, LimitsOf(spec, nullptr, capacity));
    promised += limits.memory.value_or(0);
    guaranteed += limits.compute.guarantee;
    GPUSHARE_RETURN_IF_ERROR(
        check_fits(absl::StrCat("tenant '", tenant.name, "': with those before it")));
    GPUSHARE_RETURN_IF_ERROR(change(tenant, spec, limits));
    parents[tenant.name].limits = limits;
  }
  for (const auto& [name, share] : gpu.shares) {
    if (listed.count(name) != 0 || share->parent == nullptr || !InUse(*share->tenant)) continue;
    const std::string& parent = share->parent->tenant->name;
    if (find(parent) == nullptr) continue;  // not listed either: both keep what they have
    GPUSHARE_ASSIGN_OR_RETURN(const spec::Limits limits, limits_within(name, share->spec, parent));
    changes->push_back({share.get(), share->spec, limits});
  }
  for (const TenantConfig& tenant : config.tenants) {
    if (tenant.parent.empty()) continue;
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec spec, SpecOn(tenant, gpu.info.uuid));
    GPUSHARE_ASSIGN_OR_RETURN(const spec::Limits limits,
                              limits_within(tenant.name, spec, tenant.parent));
    GPUSHARE_RETURN_IF_ERROR(change(tenant, spec, limits));
  }
  return absl::OkStatus();
}

absl::Status Registry::Apply(const Config& config, Time now, Changed& changed) {
  std::set<std::string> listed;
  for (const TenantConfig& tenant : config.tenants) listed.insert(tenant.name);
  std::set<std::string> moved;
  GPUSHARE_RETURN_IF_ERROR(CheckMoves(config, &moved));
  std::vector<Checked> changes;
  for (const auto& [uuid, gpu] : gpus_) {
    GPUSHARE_RETURN_IF_ERROR(CheckOn(*gpu, config, listed, moved, &changes));
  }
  // From here on nothing fails.
  config_ = config;
  for (const auto& [uuid, gpu] : gpus_) {
    gpu->SetCapacity(CapacityOf(gpu->info, config), changed);
    gpu->time.Configure({.slice = config.slice, .floor = config.floor});
  }
  for (const TenantConfig& entry : config.tenants) {
    std::unique_ptr<Tenant>& tenant = tenants_[entry.name];
    if (tenant == nullptr) tenant = std::make_unique<Tenant>();
    tenant->name = entry.name;
    tenant->config = entry;
    if (!std::exchange(tenant->listed, true)) dormant_.remove(tenant.get());
  }
  Unlist(listed, now, changed);
  Move(moved, now, changed);
  for (const Checked& each : changes) {
    Assign(each, now, changed);
    if (each.share->tenant->listed) each.share->set = false;
  }
  for (const auto& [uuid, gpu] : gpus_) {
    gpu->unpromised.SetLimit(gpu->capacity - std::min(gpu->promised, gpu->capacity), changed);
    for (const TenantConfig& entry : config.tenants) {
      GPUSHARE_RETURN_IF_ERROR(ShareOf(*tenants_.at(entry.name), *gpu, now, changed).status());
    }
  }
  return absl::OkStatus();
}

// Tenants that are not listed any more keep their shares until their processes end.
void Registry::Unlist(const std::set<std::string>& listed, Time now, Changed& changed) {
  std::vector<std::string> gone;
  for (const auto& [name, tenant] : tenants_) {
    if (!tenant->listed || listed.count(name) != 0) continue;
    tenant->listed = false;
    tenant->owner = kNobody;
    gone.push_back(name);
  }
  for (Tenant* tenant : dormant_) {
    if (!config_.unlisted) tenant->owner = kNobody;
    for (const auto& [uuid, gpu] : gpus_) {
      const auto share = gpu->shares.find(tenant->name);
      if (share != gpu->shares.end()) share->second->set = false;
    }
    gone.push_back(tenant->name);
  }
  for (const std::string& name : gone) SweepIfThere(name, now, changed);
}

// Gives the tenants the parents of their configuration. Their shares are made anew after that.
void Registry::Move(const std::set<std::string>& moved, Time now, Changed& changed) {
  for (const bool children : {true, false}) {  // before their parents
    for (const std::string& name : moved) {
      for (const auto& [uuid, gpu] : gpus_) {
        const auto at = gpu->shares.find(name);
        if (at == gpu->shares.end() || (at->second->parent != nullptr) != children) continue;
        Remove(*at->second, now, changed);
      }
    }
  }
  std::set<std::string> left;  // parents that may have stayed for a child that is another's now
  for (const TenantConfig& entry : config_.tenants) {
    Tenant& tenant = *tenants_.at(entry.name);
    Tenant* const parent = entry.parent.empty() ? nullptr : tenants_.at(entry.parent).get();
    if (tenant.parent == parent) continue;
    if (tenant.parent != nullptr) left.insert(tenant.parent->name);
    SetParent(tenant, parent);
  }
  for (const std::string& name : left) SweepIfThere(name, now, changed);
}

}  // namespace gpushare::broker
