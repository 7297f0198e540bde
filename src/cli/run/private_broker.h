// SPDX-License-Identifier: Apache-2.0
// A broker for one program and what it starts: several processes of it have one share in common.
#ifndef GPUSHARE_CLI_RUN_PRIVATE_BROKER_H_
#define GPUSHARE_CLI_RUN_PRIVATE_BROKER_H_

#include <string>

#include "absl/status/statusor.h"

namespace gpushare::cli {

// Starts one in a process of its own, which is nobody's child and ends when this process, the last process that has
// registered with it, and the last that has begun with its socket in GPUSHARE_BROKER, have ended. Answers its socket's path, where it listens already.
absl::StatusOr<std::string> StartPrivateBroker();

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_RUN_PRIVATE_BROKER_H_
