// SPDX-License-Identifier: Apache-2.0
// A broker for one program and the processes that it starts, which share one quota.
#ifndef GPUSHARE_CLI_RUN_PRIVATE_BROKER_H_
#define GPUSHARE_CLI_RUN_PRIVATE_BROKER_H_

#include <string>

#include "absl/status/statusor.h"

namespace gpushare::cli {

// Starts the broker in a detached process, which ends after this process, all processes that registered with it, and all that were
// started with its socket in GPUSHARE_BROKER have ended. Returns the path of its socket, on which it already listens.
absl::StatusOr<std::string> StartPrivateBroker();

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_RUN_PRIVATE_BROKER_H_
