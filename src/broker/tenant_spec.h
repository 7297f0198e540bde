// SPDX-License-Identifier: Apache-2.0
// Which keys the spec of a broker's tenant may have.
#ifndef GPUSHARE_BROKER_TENANT_SPEC_H_
#define GPUSHARE_BROKER_TENANT_SPEC_H_

#include "absl/status/status.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::broker {

// Like spec::ValidateSpec. Unimplemented: a key that could not be enforced, since processes make their own contexts and
// have no way to give back what they borrowed.
absl::Status CheckTenantSpec(const gpushare_spec& spec);
// Only the check for keys that could not be enforced, for a change.
absl::Status CheckTenantKeys(const gpushare_spec& spec);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_TENANT_SPEC_H_
