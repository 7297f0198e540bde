// SPDX-License-Identifier: Apache-2.0
// Dormant tenants: unlisted tenants after their last process has gone.
//
// Processes that come one after another under one name are one tenant. So the next process waits for what the last has used
// beyond the cap, and an operator's orders hold for it. A dormant tenant keeps no memory and no guarantee: these are admitted
// anew when a process comes back. Its name belongs to its owner until it is forgotten.
#include <algorithm>
#include <string>
#include <vector>

#include "broker/registry.h"
#include "spec/text.h"

namespace gpushare::broker {

bool Registry::HasShare(const Tenant& tenant) const {
  return std::any_of(gpus_.begin(), gpus_.end(), [&tenant](const auto& gpu) {
    return gpu.second->shares.count(tenant.name) != 0;
  });
}

bool Registry::HeldBack(const Tenant& tenant) const {
  // A drain of everything sets `draining` of every tenant, and is no order about this one.
  return tenant.suspended || (tenant.draining && !draining_);
}

bool Registry::Ordered(const Tenant& tenant) const {
  return HeldBack(tenant) || std::any_of(gpus_.begin(), gpus_.end(), [&tenant](const auto& gpu) {
           const auto share = gpu.second->shares.find(tenant.name);
           return share != gpu.second->shares.end() && share->second->set;
         });
}

Registry::Share* Registry::DormantShareOf(Tenant& tenant, Gpu& gpu, Time now, Changed& changed) {
  std::unique_ptr<Share>& share = gpu.shares[tenant.name];
  if (share != nullptr) return share.get();
  share = std::make_unique<Share>();
  share->tenant = &tenant;
  share->gpu = &gpu;
  share->dormant = true;
  share->time = gpu.time.AddTenant(share->limits.compute, now, &tenant.collective);
  gpu.time.Suspend(share->time, tenant.suspended, now, changed);
  return share.get();
}

void Registry::Forget(Tenant& tenant, Time now, Changed& changed) {
  for (const auto& [uuid, gpu] : gpus_) {
    if (const auto at = gpu->shares.find(tenant.name); at != gpu->shares.end()) {
      Remove(*at->second, now, changed);
    }
  }
  dormant_.remove(&tenant);
  Tenant* const parent = tenant.parent;
  SetParent(tenant, nullptr);
  const std::string name = tenant.name;
  tenants_.erase(name);
  if (parent != nullptr) Sweep(*parent, now, changed);  // it may have stayed for this child alone
}

void Registry::Sweep(Tenant& tenant, Time now, Changed& changed) {
  if (tenant.listed || InUse(tenant)) return;
  // No process may or would come back as this tenant.
  if (tenant.owner == kNobody || tenant.numbered) return Forget(tenant, now, changed);
  tenant.look_at = kNever;
  for (const auto& [uuid, gpu] : gpus_) {
    const auto at = gpu->shares.find(tenant.name);
    if (at == gpu->shares.end()) continue;
    Share& share = *at->second;
    const Time clear = std::max(gpu->time.ClearAt(*share.time, now), share.copies.ClearAt(now));
    // A suspended or draining tenant keeps its shares, so that the order is shown with them.
    if (clear <= now && !share.set && !HeldBack(tenant)) {
      Remove(share, now, changed);
      continue;
    }
    if (!share.dormant) Assign({&share, share.spec, share.limits, true}, now, changed);
    if (clear > now) tenant.look_at = std::min(tenant.look_at, clear);
  }
  tenant.ordered = Ordered(tenant);
  if (!tenant.ordered && tenant.look_at == kNever) return Forget(tenant, now, changed);
  if (std::find(dormant_.begin(), dormant_.end(), &tenant) == dormant_.end()) {
    dormant_.push_back(&tenant);
  }
  dormant_until_ = std::min(dormant_until_, tenant.look_at);
  Bound(tenant.owner, now, changed);
}

// Sweeping one of several tenants may have removed another.
void Registry::SweepIfThere(const std::string& tenant, Time now, Changed& changed) {
  if (const auto at = tenants_.find(tenant); at != tenants_.end()) Sweep(*at->second, now, changed);
}

// Processes that come and go under ever new names must not fill the broker, so the oldest dormant tenants are forgotten.
// Tenants with orders are counted apart, so that a user cannot get rid of an order with tenants that only owe time.
void Registry::Bound(uint32_t owner, Time now, Changed& changed) {
  for (const bool ordered : {false, true}) {
    std::vector<Tenant*> owners, all;
    for (Tenant* tenant : dormant_) {
      if (tenant->ordered != ordered) continue;
      all.push_back(tenant);
      if (tenant->owner == owner) owners.push_back(tenant);
    }
    if (owners.size() > kMostDormantOfOwner) {
      Forget(*owners.front(), now, changed);
    } else if (all.size() > kMostDormant) {
      Forget(*all.front(), now, changed);
    }
  }
}

Time Registry::LookAtDormant(Time now, Changed& changed) {
  if (now < dormant_until_) return dormant_until_;
  dormant_until_ = kNever;
  std::vector<std::string> due;
  for (const Tenant* tenant : dormant_) {
    if (tenant->look_at <= now) {
      due.push_back(tenant->name);
    } else {
      dormant_until_ = std::min(dormant_until_, tenant->look_at);
    }
  }
  for (const std::string& name : due) SweepIfThere(name, now, changed);
  return dormant_until_;
}

// If processes describe the GPUs: forgets those that only dormant tenants without orders there have a share of.
void Registry::ForgetUnusedGpus(Time now, Changed& changed) {
  std::erase_if(gpus_, [&](const auto& each) {
    Gpu& gpu = *each.second;
    const bool used =
        gpu.draining || std::any_of(gpu.shares.begin(), gpu.shares.end(), [](const auto& share) {
          return !share.second->dormant || share.second->set;
        });
    if (used) return false;
    while (!gpu.shares.empty()) Remove(*gpu.shares.begin()->second, now, changed);
    return true;
  });
}

}  // namespace gpushare::broker
