// SPDX-License-Identifier: Apache-2.0
#include "harness/report/words.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace gpushare::harness::report {
namespace {

constexpr size_t kLongestText = 1000;

std::string WithDigits(double value, int digits) {
  char text[400];  // the greatest double has 309 digits
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

// The width of a character in DejaVu Sans, which is wider than most fonts; for non-ASCII characters an upper bound.
double EmsOf(std::string_view character) {
  if (character.size() > 2) return 1;
  if (character.size() == 2) return 0.7;
  const char c = character.front();
  if (absl::StrContains("iljI.,:;'|! ", c)) return 0.4;
  if (absl::StrContains("mwMW@%", c)) return 1;
  if (absl::StrContains("rtf-", c)) return 0.42;
  if (absl::StrContains("scz", c)) return 0.55;
  return c >= 'A' && c <= 'Z' ? 0.79 : 0.64;
}

}  // namespace

std::string Markup(std::string_view text) {
  std::string safe;
  for (const char c : Printable(text, kLongestText)) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string Elided(std::string_view text, double ems) {
  const std::string printable = Printable(text, kLongestText);
  std::vector<std::string_view> characters;
  double width = 0;
  for (std::string_view rest = printable; !rest.empty();) {
    characters.push_back(rest.substr(0, std::max<size_t>(Utf8Length(rest), 1)));
    width += EmsOf(characters.back());
    rest.remove_prefix(characters.back().size());
  }
  if (width <= ems) return printable;
  // Takes characters from both ends alternately while there is room beside the ellipsis.
  size_t head = 0, tail = 0;
  for (double left = ems - 1; head + tail < characters.size();) {
    const bool from_head = head <= tail;
    left -= EmsOf(from_head ? characters[head] : characters[characters.size() - 1 - tail]);
    if (left < 0) break;
    ++(from_head ? head : tail);
  }
  std::string elided;
  for (size_t i = 0; i < head; ++i) elided += characters[i];
  elided += "\u2026";
  for (size_t i = characters.size() - tail; i < characters.size(); ++i) elided += characters[i];
  return elided;
}

std::string Number(double value) {
  if (!std::isfinite(value)) return "-";
  const double size = std::fabs(value);
  if (size >= 1e9) return absl::StrCat(value);
  return WithDigits(value, size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

std::string Interval(const Median& median) {
  const std::string value = Number(median.value), low = Number(median.low),
                    high = Number(median.high);
  if (low == value && high == value) return value;
  return absl::StrCat(value, " [", low, ", ", high, "]");
}

std::string IntervalIn(std::string_view unit, const Median& median) {
  const auto whole = [](double value) {
    return std::fabs(value) < 1e9 && value == std::floor(value);
  };
  if (!unit.empty() || !whole(median.value) || !whole(median.low) || !whole(median.high)) {
    return Interval(median);
  }
  const std::string value = WithDigits(median.value, 0);
  if (median.low == median.high) return value;
  return absl::StrCat(value, " [", WithDigits(median.low, 0), ", ", WithDigits(median.high, 0),
                      "]");
}

std::string Counted(const Median& median, const std::string& what) {
  const std::string number = IntervalIn("", median);
  return absl::StrCat(number, " ", what, number == "1" ? "" : "s");
}

std::string DriverOf(const Circumstances& circumstances) {
  const bool simulated = absl::StartsWith(circumstances.gpu, "simulated");
  return circumstances.driver.empty() && simulated ? "the simulated GPU's" : circumstances.driver;
}

std::string Count(size_t number, const std::string& what) {
  return absl::StrCat(number, " ", what, number == 1 ? "" : "s");
}

std::string UnitName(const std::string& unit) { return unit == "us" ? "µs" : unit; }

std::string Latency(double us) {
  if (!std::isfinite(us)) return "-";
  if (us >= 1e6) return absl::StrCat(us / 1e6, " s");
  if (us >= 1e3) return absl::StrCat(us / 1e3, " ms");
  return absl::StrCat(us, " µs");
}

}  // namespace gpushare::harness::report
