// SPDX-License-Identifier: Apache-2.0
// All figures of all runs as CSV (RFC 4180), one line per figure, for spreadsheets and data frames. A run without figures has one
// line with the reason and no value. Text that a spreadsheet would take for a formula gets a leading apostrophe.
#ifndef GPUSHARE_HARNESS_REPORT_CSV_H_
#define GPUSHARE_HARNESS_REPORT_CSV_H_

#include <string>

#include "harness/report/model.h"

namespace gpushare::harness::report {

std::string CsvOf(const Report& report);

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_CSV_H_
