// SPDX-License-Identifier: Apache-2.0
// What `gpushare top` shows: the differences between two snapshots of a broker.
#ifndef GPUSHARE_CLI_BROKER_TOP_TABLE_H_
#define GPUSHARE_CLI_BROKER_TOP_TABLE_H_

#include <string>

#include "broker/snapshot.h"

namespace gpushare::cli {

// `before` is an earlier snapshot, or null. Rates are unknown without one, for shares and processes that are new, and if counters
// decreased because the broker was restarted.
std::string TopText(const broker::Snapshot* before, const broker::Snapshot& now);
// The same on one line of JSON.
std::string TopJson(const broker::Snapshot* before, const broker::Snapshot& now);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_TOP_TABLE_H_
