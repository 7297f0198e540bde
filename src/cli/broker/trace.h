// SPDX-License-Identifier: Apache-2.0
// `gpushare trace`: what a broker grants and who waits for it, recorded for a while and written for Perfetto.
#ifndef GPUSHARE_CLI_BROKER_TRACE_H_
#define GPUSHARE_CLI_BROKER_TRACE_H_

#include <optional>
#include <string>
#include <vector>

#include "cli/exit_code.h"

namespace gpushare::cli {

struct TraceOptions {
  std::string socket;
  std::string file;                  // "-": standard output
  std::optional<double> seconds;     // none: until Ctrl-C
  std::vector<std::string> tenants;  // none: all
  bool json = false;
};

// The file is also written when the broker ends: kExitNoBroker then.
ExitCode RunTrace(const TraceOptions& options);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_TRACE_H_
