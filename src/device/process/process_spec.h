// SPDX-License-Identifier: Apache-2.0
// What the environment says of a process's share: GPUSHARE_SPEC, and where that leaves something open the limits by
// others' names (base/limit_variables.h).
#ifndef GPUSHARE_DEVICE_PROCESS_PROCESS_SPEC_H_
#define GPUSHARE_DEVICE_PROCESS_PROCESS_SPEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

// On GPU `ordinal`, of those that the program sees, as a spec's text.
std::string TextOfEnvironment(int ordinal);
// A process's share from its text. InvalidArgument: it says what does not go there.
absl::StatusOr<gpushare_spec> ParseProcessSpec(const std::string& text);

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_PROCESS_PROCESS_SPEC_H_
