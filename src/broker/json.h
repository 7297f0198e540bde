// SPDX-License-Identifier: Apache-2.0
// Snapshots as JSON: the broker's answer to `list`, read by the command. docs/broker.md describes the format.
#ifndef GPUSHARE_BROKER_JSON_H_
#define GPUSHARE_BROKER_JSON_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "broker/snapshot.h"

namespace gpushare::broker {

std::string ToJson(const Snapshot& snapshot);

// Ignores unknown keys, since the broker may be newer. InvalidArgument: the text is not a snapshot.
absl::StatusOr<Snapshot> SnapshotFromJson(std::string_view json);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_JSON_H_
