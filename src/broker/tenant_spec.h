// SPDX-License-Identifier: Apache-2.0
// The specs of a broker's tenants: which keys they may have, and what holds on one GPU.
#ifndef GPUSHARE_BROKER_TENANT_SPEC_H_
#define GPUSHARE_BROKER_TENANT_SPEC_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "broker/config.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::broker {

// Like spec::ValidateSpec. Unimplemented: a key that could not be enforced, since processes make their own contexts and
// have no way to give back what they borrowed.
absl::Status CheckTenantSpec(const gpushare_spec& spec);
// Only the check for keys that could not be enforced, for a change.
absl::Status CheckTenantKeys(const gpushare_spec& spec);

// The tenant's share of the GPU with that UUID: its spec with the overrides for this GPU, validated as a whole.
absl::StatusOr<gpushare_spec> SpecOn(const TenantConfig& tenant, const std::string& uuid);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_TENANT_SPEC_H_
