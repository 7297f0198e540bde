// SPDX-License-Identifier: Apache-2.0
// `gpushare broker --check`: says whether the broker would start with a configuration, and what may not be meant in it.
#ifndef GPUSHARE_CLI_BROKER_CHECK_H_
#define GPUSHARE_CLI_BROKER_CHECK_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "broker/config.h"
#include "cli/broker/daemon.h"
#include "cli/exit_code.h"

namespace gpushare::cli {

// `valid`: whether the configuration can be read and goes with the other options.
ExitCode Check(const DaemonOptions& options, const absl::StatusOr<broker::Config>& config,
               const absl::Status& valid);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_CHECK_H_
