// SPDX-License-Identifier: Apache-2.0
// Metrics in Prometheus' text format as JSON.
#ifndef GPUSHARE_CLI_BROKER_METRICS_JSON_H_
#define GPUSHARE_CLI_BROKER_METRICS_JSON_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace gpushare::cli {

// A list of families with `name`, `type`, `help` and `samples`; each sample has `name`, `labels` and `value` (null for NaN and
// infinities). Internal: the text is malformed; the message names the line.
absl::StatusOr<std::string> MetricsJson(std::string_view text);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_METRICS_JSON_H_
