// SPDX-License-Identifier: Apache-2.0
// When the requests of a real service came, from a file: a line for each request, in order.
//
//   GPUSHARE_ASSIGN_OR_RETURN(std::vector<Nanos> at, ReadArrivalTrace("azure.txt", ArrivalsAs::kTimes));
//
// A line is a number of seconds, 0 to 1000000 with up to nine decimals: since the begin of the trace (kTimes; none less than
// the one before) or since the request before (kGaps; of the first since the begin). What follows a '#', and lines without
// anything else, are for people.
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

// Since the begin, ascending. `label` names the text in errors. InvalidArgument: LABEL:LINE: what was found and what is
// allowed; there is no request, or there are more than kMostTraceArrivals.
absl::StatusOr<std::vector<Nanos>> ParseArrivalTrace(std::string_view text,
                                                     const std::string& label, ArrivalsAs as);
// The same of a file. NotFound or PermissionDenied where it cannot be opened.
absl::StatusOr<std::vector<Nanos>> ReadArrivalTrace(const std::string& path, ArrivalsAs as);

}  // namespace gpushare::workload

#endif  // GPUSHARE_WORKLOAD_ARRIVAL_TRACE_H_
