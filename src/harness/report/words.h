// SPDX-License-Identifier: Apache-2.0
// Text and numbers of a report. Names come from files: each is made harmless here, at the last moment.
#ifndef GPUSHARE_HARNESS_REPORT_WORDS_H_
#define GPUSHARE_HARNESS_REPORT_WORDS_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "harness/results.h"
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
// Of a figure in `unit`: what has none and is whole is a count, "2 [1, 3]".
std::string IntervalIn(std::string_view unit, const Median& median);
// "1 tenant", "2 [1, 3] tenants".
std::string Counted(const Median& median, const std::string& what);
// What a figure and its brackets are, for people.
inline constexpr char kHowToRead[] =
    "A figure of several runs is their median, with the interval in which it lies in brackets (of "
    "fewer than six runs their least and their greatest); pp are percentage points.";
// Results of the simulated GPU need not name one.
std::string DriverOf(const Circumstances& circumstances);
// "1 run", "3 runs".
std::string Count(size_t number, const std::string& what);
// As people write it: µs for us.
std::string UnitName(const std::string& unit);
// 640 µs, 12 ms, 1.5 s: of a number of microseconds.
std::string Latency(double us);

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_WORDS_H_
