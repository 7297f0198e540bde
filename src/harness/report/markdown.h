// SPDX-License-Identifier: Apache-2.0
// A report as Markdown with GitHub's tables.
#ifndef GPUSHARE_HARNESS_REPORT_MARKDOWN_H_
#define GPUSHARE_HARNESS_REPORT_MARKDOWN_H_

#include <string>

#include "harness/report/model.h"

namespace gpushare::harness::report {

std::string MarkdownOf(const Report& report);

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_MARKDOWN_H_
