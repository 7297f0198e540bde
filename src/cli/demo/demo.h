// SPDX-License-Identifier: Apache-2.0
// `gpushare demo`: four tenants share one GPU.
#ifndef GPUSHARE_CLI_DEMO_DEMO_H_
#define GPUSHARE_CLI_DEMO_DEMO_H_

#include "cli/demo/options.h"
#include "cli/exit_code.h"

namespace gpushare::cli {

// Prints the tables on stdout, everything else on stderr.
ExitCode RunDemo(const DemoOptions& options);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_DEMO_DEMO_H_
