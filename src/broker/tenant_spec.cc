// SPDX-License-Identifier: Apache-2.0
#include "broker/tenant_spec.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "spec/spec.h"
#include "spec/text.h"

namespace gpushare::broker {

absl::Status CheckTenantSpec(const gpushare_spec& spec) {
  GPUSHARE_RETURN_IF_ERROR(spec::ValidateSpec(spec));
  return CheckTenantKeys(spec);
}

absl::Status CheckTenantKeys(const gpushare_spec& spec) {
  if ((spec.set & (GPUSHARE_SPEC_MEMORY_CAP | GPUSHARE_SPEC_MEMORY_CAP_SHARE)) != 0) {
    return absl::UnimplementedError(
        "spec field 'memory_cap': a tenant of a broker cannot borrow what others leave unused; "
        "'memory' is all that it may hold");
  }
  if ((spec.set & GPUSHARE_SPEC_ISOLATION) != 0 && spec.isolation != GPUSHARE_ISOLATION_SHARED &&
      spec.isolation != GPUSHARE_ISOLATION_PROCESS) {
    return absl::UnimplementedError(
        "spec field 'isolation': a tenant of a broker is processes of its own, which 'process' "
        "says; the others divide one process, and are of the SDK");
  }
  return absl::OkStatus();
}

absl::StatusOr<gpushare_spec> SpecOn(const TenantConfig& tenant, const std::string& uuid) {
  GPUSHARE_ASSIGN_OR_RETURN(gpushare_spec spec, spec::ParseSpec(tenant.spec));
  if (const auto at = tenant.on.find(uuid); at != tenant.on.end()) {
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec change, spec::ParseSpec(at->second));
    spec = spec::MergeSpec(spec, change);
  }
  GPUSHARE_RETURN_IF_ERROR(CheckTenantSpec(spec));
  return spec;
}

absl::StatusOr<spec::Limits> LimitsOf(const gpushare_spec& spec, const spec::Limits* parent,
                                      uint64_t capacity) {
  const gpushare_priority priority =
      parent == nullptr ? GPUSHARE_PRIORITY_UNSET : spec::PriorityOf(parent->compute.band);
  return spec::ResolveSpec(spec, priority, capacity);
}

absl::Status CheckWithin(const std::string& child, const spec::Limits& limits,
                         const std::string& parent, const spec::Limits& of_parent, double others) {
  const std::string who = absl::StrCat("tenant ", Quoted(child), ": ");
  const std::string of = absl::StrCat("its parent ", Quoted(parent));
  if (!of_parent.memory) {
    return absl::FailedPreconditionError(absl::StrCat(
        who, of, " has no memory quota, which its children would be within; give it ", "'memory'"));
  }
  if (limits.compute.band < of_parent.compute.band) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, "priority: ", spec::PriorityName(limits.compute.band), " given, but ", of,
                     " is ", spec::PriorityName(of_parent.compute.band),
                     "; no child is above its parent: lower the child's, or raise the parent's"));
  }
  const double all = of_parent.compute.guarantee, asked = limits.compute.guarantee;
  if (asked <= 0) return absl::OkStatus();
  const auto text = [](double part) {
    return spec::FormatShare(std::round(std::max(0.0, part) * 1e9) / 1e9);
  };
  if (limits.compute.band != of_parent.compute.band) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, "a guarantee of ", text(asked), " at priority ",
                     spec::PriorityName(limits.compute.band), " asked, but ", of, " is ",
                     spec::PriorityName(of_parent.compute.band),
                     ", and guarantees of its children hold at its priority; leave out the child's "
                     "'compute' and "
                     "'guarantee' ('cap' and 'weight' remain), or give it the parent's priority"));
  }
  if (others + asked <= all + kGuaranteeRounding) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      who, "a guarantee of ", text(asked), " asked, ", text(all - others), " left of the ",
      text(all), " of ", of, " (", text(others),
      " guaranteed to its other children); ask for less ('compute' or 'guarantee'), or raise the "
      "parent's"));
}

}  // namespace gpushare::broker
