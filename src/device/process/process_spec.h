// SPDX-License-Identifier: Apache-2.0
// A process's share according to the environment: GPUSHARE_SPEC, and for keys that it leaves open the limits in other
// systems' variables (base/limit_variables.h).
#ifndef GPUSHARE_DEVICE_PROCESS_PROCESS_SPEC_H_
#define GPUSHARE_DEVICE_PROCESS_PROCESS_SPEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

// The text of the spec on GPU `ordinal`, counted among the GPUs that the program sees.
std::string TextOfEnvironment(int ordinal);
// Parses the spec of a process's share. InvalidArgument: it has keys that a process's share cannot have.
absl::StatusOr<gpushare_spec> ParseProcessSpec(const std::string& text);

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_PROCESS_PROCESS_SPEC_H_
