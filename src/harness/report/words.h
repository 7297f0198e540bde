// SPDX-License-Identifier: Apache-2.0
// Formats the text and numbers of a report. Names come from files and are escaped here, just before they are written.
#ifndef GPUSHARE_HARNESS_REPORT_WORDS_H_
#define GPUSHARE_HARNESS_REPORT_WORDS_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "harness/results.h"
#include "harness/statistics.h"

namespace gpushare::harness::report {

// `text` for HTML and SVG, as text or as an attribute value in double quotes. Markup is escaped; what would garble the text
// (control characters, changes of writing direction, invalid UTF-8) is shown as \xNN; overlong text is cut.
std::string Markup(std::string_view text);

// The name's beginning and end around an ellipsis, if the whole would be wider than `ems` in the widest font of the page.
std::string Elided(std::string_view text, double ems);

// Three significant digits, or all digits before the point. "-" for NaN and infinities.
std::string Number(double value);
// "12.3 [11.9, 12.8]", or one number if both ends would look the same.
std::string Interval(const Median& median);
// Interval() of a figure in `unit`. A whole number without a unit is a count: "2 [1, 3]".
std::string IntervalIn(std::string_view unit, const Median& median);
// "1 tenant", "2 [1, 3] tenants".
std::string Counted(const Median& median, const std::string& what);
// Explains to readers what a figure and its brackets mean.
inline constexpr char kHowToRead[] =
    "A figure of several runs is their median, with the interval in which it lies in brackets (of "
    "fewer than six runs their least and their greatest); pp are percentage points.";
// The driver, or empty: results of the simulated GPU need not name one.
std::string DriverOf(const Circumstances& circumstances);
// "1 run", "3 runs".
std::string Count(size_t number, const std::string& what);
// The unit as people write it: "µs" for "us".
std::string UnitName(const std::string& unit);
// "640 µs", "12 ms", "1.5 s", from a number of microseconds.
std::string Latency(double us);

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_WORDS_H_
