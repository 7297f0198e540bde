// SPDX-License-Identifier: Apache-2.0
// Every figure of every run as CSV (RFC 4180), a line each, for spreadsheets and data frames. A run without figures has one
// line that says why, and no value. Text that a spreadsheet would take for a formula begins with an apostrophe.
#ifndef GPUSHARE_HARNESS_REPORT_CSV_H_
#define GPUSHARE_HARNESS_REPORT_CSV_H_

#include <string>

#include "harness/report/model.h"

namespace gpushare::harness::report {

std::string CsvOf(const Report& report);

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_CSV_H_
