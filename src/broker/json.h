// SPDX-License-Identifier: Apache-2.0
// A snapshot as JSON: what the broker answers `list`, and what the command reads of it. docs/broker.md has the form.
#ifndef GPUSHARE_BROKER_JSON_H_
#define GPUSHARE_BROKER_JSON_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "broker/snapshot.h"

namespace gpushare::broker {

std::string ToJson(const Snapshot& snapshot);

// Keys that are not known are passed over, since the broker may be newer. InvalidArgument: it is none.
absl::StatusOr<Snapshot> SnapshotFromJson(std::string_view json);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_JSON_H_
