// SPDX-License-Identifier: Apache-2.0
// Budgets inside budgets: a virtual device of a tenant that has a parent is within that one's on the same GPU.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/process/tenant.h"
#include "device/share/virtual_device.h"
#include "spec/spec.h"
#include "spec/text.h"

namespace gpushare::device {
namespace {

// Both have to be tenants of one engine.
bool IsOfGpusEngine(int32_t isolation) {
  return isolation == GPUSHARE_ISOLATION_SHARED || isolation == GPUSHARE_ISOLATION_CONTEXT;
}

}  // namespace

absl::Status VirtualDevice::FindParent() {
  const std::shared_ptr<Tenant>& of = tenant_->parent();
  if (of == nullptr) return absl::OkStatus();
  const std::string who = absl::StrCat("tenant ", Quoted(tenant_->name()), " on GPU ",
                                       raw_gpu_->ordinal(), ": its parent ", Quoted(of->name()));
  const std::shared_ptr<VirtualDevice> parent = of->DeviceOn(raw_gpu_);
  if (parent == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(who, " has no virtual device there; create that one first"));
  }
  if (!parent->has_quota()) {
    return absl::FailedPreconditionError(
        absl::StrCat(who,
                     " has no memory quota there, which its children would be within; create its "
                     "virtual device with 'memory'"));
  }
  if (!IsOfGpusEngine(isolation_) || !IsOfGpusEngine(parent->isolation_)) {
    return absl::UnimplementedError(
        absl::StrCat(who,
                     " and it are to share the GPU's time, which is not implemented for the "
                     "isolations green and process; use 'shared' or 'context' for both"));
  }
  parent_ = parent;
  raw_parent_ = parent.get();
  raw_parent_->children_.fetch_add(1, std::memory_order_relaxed);
  raw_parent_->Hold();
  return absl::OkStatus();
}

// What has no priority has its parent's.
gpushare_priority VirtualDevice::DefaultPriority() const {
  if (raw_parent_ == nullptr || tenant_->priority() != GPUSHARE_PRIORITY_UNSET) {
    return tenant_->priority();
  }
  return spec::PriorityOf(raw_parent_->band());
}

absl::Status VirtualDevice::CheckWithinParent(const spec::Limits& limits) const {
  const std::string who = absl::StrCat("tenant ", Quoted(tenant_->name()), ": spec field ");
  const std::string parent = absl::StrCat("its parent ", Quoted(raw_parent_->tenant().name()));
  if (limits.memory_cap.has_value()) {
    return absl::UnimplementedError(
        absl::StrCat(who, "'memory_cap': ", parent,
                     " may borrow for all of its children ('memory_cap' "
                     "there), a child by itself not yet; leave it out"));
  }
  if (limits.compute.band < raw_parent_->band()) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, "'priority': ", spec::PriorityName(limits.compute.band), " given, but ", parent,
        " is ", spec::PriorityName(raw_parent_->band()), "; no child is above its parent"));
  }
  if (limits.compute.band != raw_parent_->band() && limits.compute.guarantee > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, "'guarantee': ", spec::FormatShare(limits.compute.guarantee),
                     " at priority ", spec::PriorityName(limits.compute.band), " given, but ",
                     parent, " is ", spec::PriorityName(raw_parent_->band()),
                     ", and guarantees of its children hold at its priority; leave out 'compute' "
                     "and 'guarantee' "
                     "('cap' and 'weight' remain), or give it the parent's priority"));
  }
  return absl::OkStatus();
}

// Of a parent's new limits.
absl::Status VirtualDevice::CheckChildren(
    const spec::Limits& limits, const std::vector<std::shared_ptr<VirtualDevice>>& others) const {
  for (const std::shared_ptr<VirtualDevice>& child : others) {
    if (child->parent() != this) continue;
    if (child->band() > limits.compute.band && child->guaranteed_) {
      return absl::FailedPreconditionError(
          absl::StrCat("tenant ", Quoted(tenant_->name()),
                       ": spec field 'priority': ", spec::PriorityName(limits.compute.band),
                       " given, but its child ", Quoted(child->tenant().name()),
                       " has a guarantee at priority ", spec::PriorityName(child->band()),
                       "; guarantees of children hold at the parent's priority: take the child's "
                       "away first, and "
                       "give it back with that priority"));
    }
    if (child->band() >= limits.compute.band) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("tenant ", Quoted(tenant_->name()), ": spec field 'priority': ",
                     spec::PriorityName(limits.compute.band), " given, but its child ",
                     Quoted(child->tenant().name()), " is ", spec::PriorityName(child->band()),
                     "; no child is above its parent: lower the child's first"));
  }
  return absl::OkStatus();
}

}  // namespace gpushare::device
