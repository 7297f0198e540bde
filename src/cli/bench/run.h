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
  std::vector<std::string> methods;    // empty: native and gpushare
  std::vector<std::string> servers;    // NAME=COMMAND, for library methods
  std::vector<std::string> cases;      // empty: all
  bool as_short = false;               // apply the scenarios' `short:` sections
  std::string gpu = "sim";             // or an ordinal, a UUID, a PCI id
  std::string profile;                 // device profile for the simulated GPU; empty: none
  int repetitions = 3;
  uint64_t seed = 1;
  int limit_s = 120;
  std::string out;     // file for the results; empty: none
  bool force = false;  // overwrite `out`
  bool quiet = false;
  std::string html;        // file for a report; empty: none
  bool sentences = false;  // print sentences instead of the tables
};

// kExitFailed: a run failed; the others went on. Does not return when interrupted: it ends what it started and writes what was
// measured.
ExitCode RunBench(const BenchOptions& options);

// `gpushare bench all`: runs every scenario that comes with gpushare, by all of gpushare's methods or those in `options`.
ExitCode RunAllBenches(BenchOptions options);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_RUN_H_
