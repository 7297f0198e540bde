// SPDX-License-Identifier: Apache-2.0
// What happens to an unmodified program's allocation that its quota has no room for: GPUSHARE_OVER_QUOTA (docs/shim.md).
#ifndef GPUSHARE_BASE_OVER_QUOTA_H_
#define GPUSHARE_BASE_OVER_QUOTA_H_

#include "absl/status/statusor.h"
#include "base/time.h"

namespace gpushare::base {

// How long it waits for room before it is refused. 0: it does not wait. InvalidArgument: the variable says neither.
absl::StatusOr<Nanos> OverQuotaWait();

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_OVER_QUOTA_H_
