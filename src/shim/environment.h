// SPDX-License-Identifier: Apache-2.0
// The share that the environment gives an unmodified program: GPUSHARE_SPEC, and for what that leaves open, the limits that
// other products' variables set (base/limit_variables.h).
#ifndef GPUSHARE_SHIM_ENVIRONMENT_H_
#define GPUSHARE_SHIM_ENVIRONMENT_H_

#include "absl/status/statusor.h"
#include "device/process/runtime.h"

namespace gpushare::shim {

// The share on GPU `ordinal` of those that the program sees. InvalidArgument: the environment asks for more than a GPU can
// give.
absl::StatusOr<device::Runtime::Share> ShareOfEnvironment(int ordinal);

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_ENVIRONMENT_H_
