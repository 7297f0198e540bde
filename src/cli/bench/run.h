// SPDX-License-Identifier: Apache-2.0
// `gpushare bench run`.
#ifndef GPUSHARE_CLI_BENCH_RUN_H_
#define GPUSHARE_CLI_BENCH_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/exit_code.h"

namespace gpushare::cli {

struct BenchOptions {
  std::vector<std::string> scenarios;  // files, or names (scenarios.h)
  std::vector<std::string> methods;    // none: native and gpushare
  std::vector<std::string> servers;    // NAME=COMMAND, of methods that are libraries
  std::vector<std::string> cases;      // none: all
  bool as_short = false;               // as their `short:` has them
  std::string gpu = "sim";             // or an ordinal, a UUID, a PCI id
  std::string profile;                 // of a device, that the simulated GPU is like; empty: none
  int repetitions = 3;
  uint64_t seed = 1;
  int limit_s = 120;
  std::string out;     // empty: nowhere
  bool force = false;  // `out` may be there already, and is written anew
  bool quiet = false;
  std::string html;        // a report, empty: none
  bool sentences = false;  // what came of it, in place of the tables
};

// kExitFailed: a run failed, the others went on. Does not return when it is interrupted: what it started has ended by then,
// and what was measured is written.
ExitCode RunBench(const BenchOptions& options);

// `gpushare bench all`: every scenario that comes with gpushare, by all of its methods, or those that are named alone, as `bench run`.
ExitCode RunAllBenches(BenchOptions options);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_RUN_H_
