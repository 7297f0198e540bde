// SPDX-License-Identifier: Apache-2.0
// What the arbiter is told of a spec, whatever the GPU. Pure functions.
#ifndef GPUSHARE_SPEC_LIMITS_H_
#define GPUSHARE_SPEC_LIMITS_H_

#include "absl/status/statusor.h"
#include "gpushare/c/gpushare.h"
#include "sched/arbiter.h"

namespace gpushare::spec {

// Of fields that are valid each. InvalidArgument: they contradict one another, or the policy one of them.
absl::StatusOr<sched::TenantLimits> ComputeLimits(const gpushare_spec& spec);

}  // namespace gpushare::spec

#endif  // GPUSHARE_SPEC_LIMITS_H_
