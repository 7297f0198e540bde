// SPDX-License-Identifier: Apache-2.0
// `gpushare top`: live figures of a broker's tenants and processes.
#ifndef GPUSHARE_CLI_BROKER_TOP_H_
#define GPUSHARE_CLI_BROKER_TOP_H_

#include <string>

#include "cli/exit_code.h"

namespace gpushare::cli {

struct TopOptions {
  std::string socket;
  double interval = 1;  // seconds
  bool once = false;    // end after one interval
  bool json = false;
};

// Redraws a terminal; otherwise writes one table (or one line of JSON) per interval. Ends with Ctrl-C, when its output is closed, or
// when the broker ends.
ExitCode RunTop(const TopOptions& options);

// The lines of `text`, cut to a terminal of this size.
std::string CutForTerminal(const std::string& text, size_t columns, size_t rows);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_TOP_H_
