// SPDX-License-Identifier: Apache-2.0
// `gpushare trace`: records what a broker grants and who waits for it, and writes it for Perfetto.
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
  std::optional<double> seconds;     // nullopt: until Ctrl-C
  std::vector<std::string> tenants;  // empty: all
  bool json = false;
};

// If the broker ends meanwhile, the file is still written, and the result is kExitNoBroker.
ExitCode RunTrace(const TraceOptions& options);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_TRACE_H_
