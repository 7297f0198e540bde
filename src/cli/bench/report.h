// SPDX-License-Identifier: Apache-2.0
// `gpushare bench report`.
#ifndef GPUSHARE_CLI_BENCH_REPORT_H_
#define GPUSHARE_CLI_BENCH_REPORT_H_

#include <string>
#include <vector>

#include "cli/exit_code.h"

namespace gpushare::cli {

struct ReportOptions {
  std::vector<std::string> results;
  std::string html, markdown,
      csv;  // empty: not written; if all three are empty, Markdown goes to standard output
};

ExitCode WriteReport(const ReportOptions& options);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_REPORT_H_
