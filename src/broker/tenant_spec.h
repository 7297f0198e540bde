// SPDX-License-Identifier: Apache-2.0
// The specs of a broker's tenants: which keys they may have, what holds on one GPU, and what is within a parent's share.
#ifndef GPUSHARE_BROKER_TENANT_SPEC_H_
#define GPUSHARE_BROKER_TENANT_SPEC_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "broker/config.h"
#include "gpushare/c/gpushare.h"
#include "sched/arbiter.h"
#include "spec/spec.h"

namespace gpushare::broker {

// Like spec::ValidateSpec. Unimplemented: a key that could not be enforced, since processes make their own contexts and
// have no way to give back what they borrowed.
absl::Status CheckTenantSpec(const gpushare_spec& spec);
// Only the check for keys that could not be enforced, for a change.
absl::Status CheckTenantKeys(const gpushare_spec& spec);

// The tenant's share of the GPU with that UUID: its spec with the overrides for this GPU, validated as a whole.
absl::StatusOr<gpushare_spec> SpecOn(const TenantConfig& tenant, const std::string& uuid);

// What a spec comes to on a GPU of `capacity` bytes. Without a priority of its own a tenant has its parent's (null: no parent).
absl::StatusOr<spec::Limits> LimitsOf(const gpushare_spec& spec, const spec::Limits* parent,
                                      uint64_t capacity);

// The sum of guarantees may exceed a whole by this much, which is rounding.
inline constexpr double kGuaranteeRounding = 1e-9;

// Whether the limits of a child may stand within its parent's, beside `others`, which are guaranteed to the parent's other
// children. FailedPrecondition: the parent has no memory quota. InvalidArgument: the priority is above the parent's, or there is a guarantee at a
// lower one.
// ResourceExhausted: the guarantee does not fit. The messages name both tenants, and what would fit.
absl::Status CheckWithin(const std::string& child, const spec::Limits& limits,
                         const std::string& parent, const spec::Limits& of_parent, double others);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_TENANT_SPEC_H_
