// SPDX-License-Identifier: Apache-2.0
// `gpushare list`: GPUs, tenants and processes of a broker. `gpushare metrics`: its metrics.
#ifndef GPUSHARE_CLI_BROKER_LIST_H_
#define GPUSHARE_CLI_BROKER_LIST_H_

#include <string>

#include "broker/snapshot.h"
#include "cli/exit_code.h"

namespace gpushare::cli {

// One table for each GPU, of one tenant or, if `tenant` is empty, of all.
std::string ListText(const broker::Snapshot& snapshot, const std::string& tenant = "");

ExitCode RunList(const std::string& socket, bool json);
ExitCode RunMetrics(const std::string& socket, bool json);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_LIST_H_
