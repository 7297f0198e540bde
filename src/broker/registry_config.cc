// SPDX-License-Identifier: Apache-2.0
// Applies a configuration: all of it or nothing.
#include <algorithm>
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

absl::Status Registry::Apply(const Config& config, Time now, Changed& changed) {
  // First checks that everything fits together on each GPU, with the shares of unlisted tenants, which keep them while they
  // have processes.
  std::set<std::string> listed;
  for (const TenantConfig& tenant : config.tenants) listed.insert(tenant.name);
  std::vector<Checked> changes;
  for (const auto& [uuid, gpu] : gpus_) {
    const uint64_t capacity = CapacityOf(gpu->info, config);
    uint64_t promised = 0;
    double guaranteed = 0;
    for (const auto& [name, share] : gpu->shares) {
      if (listed.count(name) != 0 || share->tenant->sessions == 0) continue;
      promised += share->limits.memory.value_or(0);
      guaranteed += share->limits.compute.guarantee;
    }
    for (const TenantConfig& tenant : config.tenants) {
      GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec spec, SpecOn(tenant, uuid));
      GPUSHARE_ASSIGN_OR_RETURN(const spec::Limits limits,
                                spec::ResolveSpec(spec, GPUSHARE_PRIORITY_UNSET, capacity));
      promised += limits.memory.value_or(0);
      guaranteed += limits.compute.guarantee;
      if (promised > capacity || guaranteed > 1 + kRounding) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "tenant '", tenant.name, "': with those before it, GPU ", uuid, " has ",
            spec::ReadableBytes(promised), " promised of ", spec::ReadableBytes(capacity), ", and ",
            spec::FormatShare(guaranteed), " of its time guaranteed of 100%"));
      }
      const auto at = gpu->shares.find(tenant.name);
      if (at == gpu->shares.end()) continue;
      GPUSHARE_RETURN_IF_ERROR(CheckQuota(*at->second, limits));
      changes.push_back({at->second.get(), spec, limits});
    }
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
  std::vector<std::string> gone;
  for (const auto& [name, tenant] : tenants_) {
    if (!tenant->listed || listed.count(name) != 0) continue;
    tenant->listed = false;  // its processes keep their shares until they end
    tenant->owner = kNobody;
    gone.push_back(name);
  }
  for (Tenant* tenant : dormant_) {
    if (!config.unlisted) tenant->owner = kNobody;
    for (const auto& [uuid, gpu] : gpus_) {
      const auto share = gpu->shares.find(tenant->name);
      if (share != gpu->shares.end()) share->second->set = false;
    }
    gone.push_back(tenant->name);
  }
  for (const std::string& name : gone) SweepIfThere(name, now, changed);
  for (const Checked& each : changes) {
    Assign(each, now, changed);
    each.share->set = false;
  }
  for (const auto& [uuid, gpu] : gpus_) {
    gpu->unpromised.SetLimit(gpu->capacity - std::min(gpu->promised, gpu->capacity), changed);
    for (const TenantConfig& entry : config.tenants) {
      GPUSHARE_RETURN_IF_ERROR(ShareOf(*tenants_.at(entry.name), *gpu, now, changed).status());
    }
  }
  return absl::OkStatus();
}

}  // namespace gpushare::broker
