// SPDX-License-Identifier: Apache-2.0
#include "spec/text.h"

#include <array>
#include <charconv>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace gpushare::spec {
namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};

constexpr uint64_t kKilo = 1000;
constexpr std::array<Unit, 10> kSizes = {{
    {"", 1},
    {"B", 1},
    {"KiB", uint64_t{1} << 10},
    {"MiB", uint64_t{1} << 20},
    {"GiB", uint64_t{1} << 30},
    {"TiB", uint64_t{1} << 40},
    {"KB", kKilo},
    {"MB", kKilo* kKilo},
    {"GB", kKilo* kKilo* kKilo},
    {"TB", kKilo* kKilo* kKilo* kKilo},
}};
constexpr std::array<Unit, 4> kTimes = {
    {{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}}};

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Digits with at most one point, then a unit; no sign, no exponent.
struct Amount {
  std::string_view whole, fraction, unit;
};

absl::StatusOr<Amount> Split(std::string_view text) {
  text = Trim(text);
  if (text.empty()) return absl::InvalidArgumentError("it is empty");
  if (text.front() == '-') return absl::InvalidArgumentError("it is negative");
  size_t i = 0;
  Amount amount;
  while (i < text.size() && IsDigit(text[i])) ++i;
  amount.whole = text.substr(0, i);
  if (i < text.size() && text[i] == '.') {
    const size_t start = ++i;
    while (i < text.size() && IsDigit(text[i])) ++i;
    amount.fraction = text.substr(start, i - start);
  }
  if (amount.whole.empty() && amount.fraction.empty()) {
    return absl::InvalidArgumentError("it is not a number");
  }
  amount.unit = Trim(text.substr(i));
  return amount;
}

// whole.fraction * factor, rounded down: nobody who writes 7.9GiB means the part of a byte.
absl::StatusOr<uint64_t> Multiply(const Amount& amount, uint64_t factor) {
  const absl::Status overflow = absl::InvalidArgumentError("it is too large");
  unsigned __int128 value = 0;
  for (char c : amount.whole) {
    value = value * 10 + static_cast<unsigned>(c - '0');
    if (value > UINT64_MAX) return overflow;
  }
  value *= factor;
  if (value > UINT64_MAX) return overflow;
  std::string_view fraction = amount.fraction;
  while (!fraction.empty() && fraction.back() == '0') fraction.remove_suffix(1);
  if (!fraction.empty()) {
    if (fraction.size() > 18) return absl::InvalidArgumentError("it has too many digits");
    unsigned __int128 part = 0;
    uint64_t scale = 1;
    for (char c : fraction) {
      part = part * 10 + static_cast<unsigned>(c - '0');
      scale *= 10;
    }
    part *= factor;
    if (factor == 1 && part % scale != 0)
      return absl::InvalidArgumentError("it is not a whole number");
    value += part / scale;
    if (value > UINT64_MAX) return overflow;
  }
  return static_cast<uint64_t>(value);
}

template <size_t n>
absl::StatusOr<uint64_t> ParseWithUnit(std::string_view text, const std::array<Unit, n>& units,
                                       const char* names) {
  GPUSHARE_ASSIGN_OR_RETURN(const Amount amount, Split(text));
  for (const Unit& unit : units) {
    if (unit.name == amount.unit) return Multiply(amount, unit.factor);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      amount.unit.empty() ? "it has no unit" : absl::StrCat("its unit is ", Quoted(amount.unit)),
      "; units are ", names));
}

// The shortest decimal digits that give `value` back, and where their point is: 0.d1d2... *
// 10^point.
struct Decimal {
  std::string digits;
  int point = 0;
};

Decimal Shortest(double value) {
  std::array<char, 64> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<size_t>(end.ptr - buffer.data()));
  const size_t e = text.find('e');
  Decimal decimal;
  for (char c : text.substr(0, e)) {
    if (IsDigit(c)) decimal.digits += c;
  }
  while (decimal.digits.size() > 1 && decimal.digits.back() == '0') decimal.digits.pop_back();
  std::string_view exponent = text.substr(e + 1);
  if (exponent.front() == '+') exponent.remove_prefix(1);
  std::from_chars(exponent.data(), exponent.data() + exponent.size(), decimal.point);
  decimal.point += 1;
  return decimal;
}

// Formats a decimal without an exponent.
std::string Written(const Decimal& decimal) {
  const int size = static_cast<int>(decimal.digits.size());
  if (decimal.point <= 0) {
    return "0." + std::string(static_cast<size_t>(-decimal.point), '0') + decimal.digits;
  }
  if (decimal.point >= size) {
    return decimal.digits + std::string(static_cast<size_t>(decimal.point - size), '0');
  }
  const auto point = static_cast<size_t>(decimal.point);
  return decimal.digits.substr(0, point) + "." + decimal.digits.substr(point);
}

absl::StatusOr<double> ToDouble(const Amount& amount, const char* exponent) {
  const std::string text =
      absl::StrCat(amount.whole.empty() ? "0" : std::string(amount.whole), ".",
                   amount.fraction.empty() ? "0" : std::string(amount.fraction), exponent);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) {
    if (amount.whole.find_first_not_of('0') == std::string_view::npos) return 0.0;
    return absl::InvalidArgumentError("it is too large");
  }
  if (error != std::errc() || end != text.data() + text.size()) {
    return absl::InvalidArgumentError("it is not a number");
  }
  return value;
}

}  // namespace

std::string_view Trim(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  return ParseWithUnit(text, kSizes, "B, KB, MB, GB, TB, KiB, MiB, GiB, TiB");
}

absl::StatusOr<uint64_t> ParseMemory(std::string_view text) {
  constexpr uint64_t kLeast = uint64_t{1} << 20;
  GPUSHARE_ASSIGN_OR_RETURN(const uint64_t bytes, ParseBytes(text));
  GPUSHARE_ASSIGN_OR_RETURN(const Amount amount, Split(text));
  if (bytes == 0 || bytes >= kLeast || !amount.unit.empty()) return bytes;
  return absl::InvalidArgumentError(absl::StrCat("it has no unit, and ", bytes,
                                                 " bytes are hardly meant: write ", bytes, "GiB, ",
                                                 bytes, "MiB or, if they are, ", bytes, "B"));
}

std::string FormatBytes(uint64_t bytes) {
  const Unit* best = &kSizes[1];
  for (size_t i = 2; i <= 5; ++i) {
    if (bytes != 0 && bytes % kSizes[i].factor == 0) best = &kSizes[i];
  }
  return absl::StrCat(bytes / best->factor, std::string(best->name));
}

std::string ReadableBytes(uint64_t bytes) {
  size_t unit = 1;
  while (unit < 5 && bytes >= kSizes[unit + 1].factor) ++unit;
  if (bytes % kSizes[unit].factor == 0) {
    return absl::StrCat(bytes / kSizes[unit].factor, " ", std::string(kSizes[unit].name));
  }
  // Rounded down, so that a message never shows more bytes left than there are. With a point whatever the program's locale.
  const uint64_t factor = kSizes[unit].factor;
  return absl::StrCat(bytes / factor, ".", bytes % factor * 10 / factor, " ",
                      std::string(kSizes[unit].name));
}

absl::StatusOr<uint64_t> ParseBandwidth(std::string_view text) {
  text = Trim(text);
  if (text.size() < 2 || text.substr(text.size() - 2) != "/s") {
    return absl::InvalidArgumentError("it does not end in /s, as in 4GB/s");
  }
  return ParseBytes(text.substr(0, text.size() - 2));
}

std::string FormatBandwidth(uint64_t bytes_per_second) {
  const Unit* best = &kSizes[1];
  for (size_t i = 6; i < kSizes.size(); ++i) {
    if (bytes_per_second != 0 && bytes_per_second % kSizes[i].factor == 0) best = &kSizes[i];
  }
  return absl::StrCat(bytes_per_second / best->factor, std::string(best->name), "/s");
}

absl::StatusOr<double> ParseShare(std::string_view text) {
  GPUSHARE_ASSIGN_OR_RETURN(const Amount amount, Split(text));
  if (amount.unit != "%") return absl::InvalidArgumentError("it is not a percentage such as 30%");
  return ToDouble(amount, "e-2");
}

std::string FormatShare(double share) {
  if (share == 0) return "0%";
  if (!std::isfinite(share) || share < 0) return absl::StrCat(share * 100, "%");
  Decimal decimal = Shortest(share);
  decimal.point += 2;
  return Written(decimal) + "%";
}

absl::StatusOr<double> ParseNumber(std::string_view text) {
  GPUSHARE_ASSIGN_OR_RETURN(const Amount amount, Split(text));
  if (!amount.unit.empty()) {
    return absl::InvalidArgumentError("it is not a number such as 2.5 (an exponent is not taken)");
  }
  return ToDouble(amount, "");
}

std::string FormatNumber(double number) {
  if (number == 0) return "0";
  if (!std::isfinite(number) || number < 0) return absl::StrCat(number);
  return Written(Shortest(number));
}

absl::StatusOr<Nanos> ParseDuration(std::string_view text) {
  GPUSHARE_ASSIGN_OR_RETURN(const uint64_t ns, ParseWithUnit(text, kTimes, "ns, us, ms, s"));
  if (ns > static_cast<uint64_t>(INT64_MAX)) return absl::InvalidArgumentError("it is too large");
  return Nanos(static_cast<int64_t>(ns));
}

std::string FormatDuration(Nanos duration) {
  const int64_t ns = duration.count();
  const Unit* best = &kTimes[0];
  for (const Unit& unit : kTimes) {
    if (ns % static_cast<int64_t>(unit.factor) == 0) best = &unit;
  }
  return absl::StrCat(ns / static_cast<int64_t>(best->factor), std::string(best->name));
}

}  // namespace gpushare::spec
