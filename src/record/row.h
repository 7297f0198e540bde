// SPDX-License-Identifier: Apache-2.0
// Formats a kernel as a line of a trace (workload/trace.h).
#ifndef GPUSHARE_RECORD_ROW_H_
#define GPUSHARE_RECORD_ROW_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/time.h"

namespace gpushare::record {

inline constexpr char kHeader[] = "kernel,bound,sms,duration_ns\n";
inline constexpr Nanos kLongest = Seconds(60);

// `name` as the format allows it: other characters are replaced, and the end of a name that is too long becomes a hash, which
// keeps names with the same beginning apart.
std::string NameOf(std::string_view name);

// The line with its newline. The footprint and the duration are clamped to the format's ranges.
std::string RowOf(std::string_view name, uint64_t sms, Nanos duration);

}  // namespace gpushare::record

#endif  // GPUSHARE_RECORD_ROW_H_
