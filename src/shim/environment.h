// SPDX-License-Identifier: Apache-2.0
// The share that the environment gives a program which knows nothing of gpushare: GPUSHARE_SPEC, and where that leaves
// something open the limits by others' names (base/limit_variables.h).
#ifndef GPUSHARE_SHIM_ENVIRONMENT_H_
#define GPUSHARE_SHIM_ENVIRONMENT_H_

#include <string>

#include "absl/status/statusor.h"
#include "device/runtime.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::shim {

// On GPU `ordinal`, of those that the program sees. InvalidArgument: it asks for what no GPU here can give.
absl::StatusOr<device::Runtime::Share> ShareOfEnvironment(int ordinal);
// What it says there, as a spec's text.
std::string TextOfEnvironment(int ordinal);
// A program's share from its text. InvalidArgument: it says what does not go there.
absl::StatusOr<gpushare_spec> ParseProcessSpec(const std::string& text);

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_ENVIRONMENT_H_
