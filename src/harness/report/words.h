// SPDX-License-Identifier: Apache-2.0
// Text and numbers of a report. Names come from files: each is made harmless here, at the last moment.
#ifndef GPUSHARE_HARNESS_REPORT_WORDS_H_
#define GPUSHARE_HARNESS_REPORT_WORDS_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "harness/statistics.h"

namespace gpushare::harness::report {

// For HTML and SVG, as text and as the value of an attribute in double quotes: what would be markup is escaped, what
// would garble the text (control characters, turns of the direction of writing, what is no UTF-8) comes as \xNN, and
// what is longer than any name is cut.
std::string Markup(std::string_view text);

// A name's beginning and end, an ellipsis between them, where all of it would be wider than `ems` in the wider of the fonts
// that a page may have.
std::string Elided(std::string_view text, double ems);

// Three digits, or all before the point. "-" of what is no number.
std::string Number(double value);
// 12.3 [11.9, 12.8], or one number where the interval has no width that would show.
std::string Interval(const Median& median);
// "1 run", "3 runs".
std::string Count(size_t number, const std::string& what);
// As people write it: µs for us.
std::string UnitName(const std::string& unit);
// 640 µs, 12 ms, 1.5 s: of a number of microseconds.
std::string Latency(double us);

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_WORDS_H_
