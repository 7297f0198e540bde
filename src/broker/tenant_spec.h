// SPDX-License-Identifier: Apache-2.0
// What the spec of a broker's tenant may say.
#ifndef GPUSHARE_BROKER_TENANT_SPEC_H_
#define GPUSHARE_BROKER_TENANT_SPEC_H_

#include "absl/status/status.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::broker {

// As spec::ValidateSpec. Unimplemented: a key that would not hold, since processes make their contexts themselves and
// have no way to give back what they borrowed.
absl::Status CheckTenantSpec(const gpushare_spec& spec);
// That alone, of a change.
absl::Status CheckTenantKeys(const gpushare_spec& spec);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_TENANT_SPEC_H_
