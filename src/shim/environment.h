// SPDX-License-Identifier: Apache-2.0
// The share that the environment gives a program which knows nothing of gpushare: GPUSHARE_SPEC, and where that leaves
// something open the limits by others' names (base/limit_variables.h).
#ifndef GPUSHARE_SHIM_ENVIRONMENT_H_
#define GPUSHARE_SHIM_ENVIRONMENT_H_

#include "absl/status/statusor.h"
#include "base/time.h"
#include "device/process/runtime.h"

namespace gpushare::shim {

// On GPU `ordinal`, of those that the program sees. InvalidArgument: it asks for what no GPU here can give.
absl::StatusOr<device::Runtime::Share> ShareOfEnvironment(int ordinal);

// How long an allocation over the quota waits for room before it is refused: GPUSHARE_OVER_QUOTA; 0: not at all.
absl::StatusOr<Nanos> OverQuotaWait();

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_ENVIRONMENT_H_
