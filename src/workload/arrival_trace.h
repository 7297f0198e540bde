// SPDX-License-Identifier: Apache-2.0
// The times at which the requests of a real service arrived, from a file with one line per request, in order.
//
//   GPUSHARE_ASSIGN_OR_RETURN(std::vector<Nanos> at, ReadArrivalTrace("azure.txt", ArrivalsAs::kTimes));
//
// A line is a number of seconds, 0 to 1000000 with up to nine decimals: since the beginning of the trace (kTimes; never less
// than the line before) or since the previous request (kGaps; for the first request, since the beginning). Text after a '#' is
// a comment. Lines with only a comment, and blank lines, are ignored.
#ifndef GPUSHARE_WORKLOAD_ARRIVAL_TRACE_H_
#define GPUSHARE_WORKLOAD_ARRIVAL_TRACE_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"

namespace gpushare::workload {

enum class ArrivalsAs { kTimes, kGaps };

inline constexpr size_t kMostTraceArrivals = 1'000'000;

// Times since the beginning, ascending. `label` names the text in errors. InvalidArgument: LABEL:LINE: what was found and what
// is allowed; or there is no request, or there are more than kMostTraceArrivals.
absl::StatusOr<std::vector<Nanos>> ParseArrivalTrace(std::string_view text,
                                                     const std::string& label, ArrivalsAs as);
// The same for a file. NotFound or PermissionDenied when it cannot be opened.
absl::StatusOr<std::vector<Nanos>> ReadArrivalTrace(const std::string& path, ArrivalsAs as);

}  // namespace gpushare::workload

#endif  // GPUSHARE_WORKLOAD_ARRIVAL_TRACE_H_
