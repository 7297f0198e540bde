// SPDX-License-Identifier: Apache-2.0
#include "broker/tenant_spec.h"

#include "base/status_macros.h"
#include "spec/spec.h"

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

}  // namespace gpushare::broker
