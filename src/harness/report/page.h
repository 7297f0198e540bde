// SPDX-License-Identifier: Apache-2.0
// A report as one HTML page, without scripts or external resources; plots are inline.
#ifndef GPUSHARE_HARNESS_REPORT_PAGE_H_
#define GPUSHARE_HARNESS_REPORT_PAGE_H_

#include <string>

#include "harness/report/model.h"

namespace gpushare::harness::report {

std::string PageOf(const Report& report);

// The page's CSS (page_style.cc).
extern const char kPageStyle[];

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_PAGE_H_
