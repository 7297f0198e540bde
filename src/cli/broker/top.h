// SPDX-License-Identifier: Apache-2.0
// `gpushare top`: what every tenant and process of a broker does now.
#ifndef GPUSHARE_CLI_BROKER_TOP_H_
#define GPUSHARE_CLI_BROKER_TOP_H_

#include <string>

#include "cli/exit_code.h"

namespace gpushare::cli {

struct TopOptions {
  std::string socket;
  double interval = 1;  // seconds
  bool once = false;    // one interval, and an end
  bool json = false;
};

// A terminal is redrawn; elsewhere one table (or, as JSON, one line) an interval follows the other. Ends with Ctrl-C, when
// its output goes nowhere any more, or with the broker.
ExitCode RunTop(const TopOptions& options);

// The same lines, cut for a terminal of that many columns and rows.
std::string CutForTerminal(const std::string& text, size_t columns, size_t rows);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_TOP_H_
