// SPDX-License-Identifier: Apache-2.0
// Amounts as text: reading and writing them exactly.
//
//   GPUSHARE_ASSIGN_OR_RETURN(uint64_t bytes, ParseBytes("8GiB"));
//   FormatBytes(bytes);   // "8GiB"
//
// Reading what a Format function wrote gives the same value to the bit. Errors are InvalidArgument
// and say what was wrong with the text, not which field it was. Pure functions.
#ifndef GPUSHARE_SPEC_TEXT_H_
#define GPUSHARE_SPEC_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/text.h"
#include "base/time.h"

namespace gpushare::spec {

std::string_view Trim(std::string_view text);

// "8GiB", "7.9 GB", "1073741824". Rounded down to bytes, of which themselves no fraction is taken.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);
// ParseBytes() for device memory: refuses a small number without a unit, since a unit or '%' was probably forgotten.
absl::StatusOr<uint64_t> ParseMemory(std::string_view text);
// In the largest binary unit that divides `bytes`: "8GiB", "1073741825B".
std::string FormatBytes(uint64_t bytes);
// Rounded down, for people: "7.9 GiB".
std::string ReadableBytes(uint64_t bytes);

// "4GB/s" -> 4000000000.
absl::StatusOr<uint64_t> ParseBandwidth(std::string_view text);
std::string FormatBandwidth(uint64_t bytes_per_second);

// "30%" -> 0.3: the double nearest to the decimal number.
absl::StatusOr<double> ParseShare(std::string_view text);
std::string FormatShare(double share);

absl::StatusOr<double> ParseNumber(std::string_view text);
std::string FormatNumber(double number);

// "20ms", "500us", "1.5s".
absl::StatusOr<Nanos> ParseDuration(std::string_view text);
std::string FormatDuration(Nanos duration);

}  // namespace gpushare::spec

#endif  // GPUSHARE_SPEC_TEXT_H_
