// SPDX-License-Identifier: Apache-2.0
// `gpushare set`, `suspend`, `resume`, `evict`, `reload` and `drain`: what an operator changes of a broker that runs.
#ifndef GPUSHARE_CLI_BROKER_CHANGE_H_
#define GPUSHARE_CLI_BROKER_CHANGE_H_

#include <string>
#include <vector>

#include "broker/snapshot.h"
#include "cli/exit_code.h"
#include "ipc/message.h"

namespace gpushare::cli {

struct ChangeOptions {
  std::string socket;
  ipc::Change change;  // `what` is the command's name
  bool json = false;
};

// Asks for it, and shows what is then in force for the tenant.
ExitCode RunChange(const ChangeOptions& options);

struct DrainOptions {
  std::string socket;
  std::string tenant;   // empty: all
  std::string gpu;      // by its UUID; empty: all
  double timeout = 60;  // seconds; 0: it is asked for, and nothing is waited for
  bool undo = false;
  bool json = false;
};

// No new process and no new memory from now on; waits until those that are there have left. kExitTimeout: they are
// named, and it stays in force.
ExitCode RunDrain(const DrainOptions& options);

// As one object: whether it is being drained, who is there, and whether nobody is.
std::string DrainJson(const DrainOptions& options, const broker::Snapshot& snapshot);

// Who still holds something of `tenant` (empty: of any) on `gpu` (empty: any), as in "online: 4242 (serve), 2 GiB on
// GPU-...".
std::vector<std::string> Holders(const broker::Snapshot& snapshot, const std::string& tenant,
                                 const std::string& gpu = "");

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_CHANGE_H_
