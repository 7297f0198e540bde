// SPDX-License-Identifier: Apache-2.0
// A kernel as a line of a trace, as workload/trace.h has it.
#ifndef GPUSHARE_RECORD_ROW_H_
#define GPUSHARE_RECORD_ROW_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/time.h"

namespace gpushare::record {

inline constexpr char kHeader[] = "kernel,bound,sms,duration_ns\n";
inline constexpr Nanos kLongest = Seconds(60);

// A name that the format takes: what it does not is replaced, and of one that is too long the end by a number that tells it
// from others which begin alike.
std::string NameOf(std::string_view name);

// With its end of line. The footprint and the duration are brought into the ranges of the format.
std::string RowOf(std::string_view name, uint64_t sms, Nanos duration);

}  // namespace gpushare::record

#endif  // GPUSHARE_RECORD_ROW_H_
