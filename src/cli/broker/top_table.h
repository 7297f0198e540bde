// SPDX-License-Identifier: Apache-2.0
// What happened between two snapshots of a broker: what `gpushare top` shows.
#ifndef GPUSHARE_CLI_BROKER_TOP_TABLE_H_
#define GPUSHARE_CLI_BROKER_TOP_TABLE_H_

#include <string>

#include "broker/snapshot.h"

namespace gpushare::cli {

// `before`: an earlier one, or null; without one, and for shares and processes that were not there, or whose figures
// fell because the broker is another one since, rates are unknown.
std::string TopText(const broker::Snapshot* before, const broker::Snapshot& now);
// One line.
std::string TopJson(const broker::Snapshot* before, const broker::Snapshot& now);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_TOP_TABLE_H_
