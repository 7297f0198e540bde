// SPDX-License-Identifier: Apache-2.0
// `gpushare set`, `suspend`, `resume`, `evict`, `reload` and `drain`: an operator's changes to a running broker.
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

// Requests the change and shows what is then in force for the tenant.
ExitCode RunChange(const ChangeOptions& options);

struct DrainOptions {
  std::string socket;
  std::string tenant;   // empty: all
  std::string gpu;      // UUID; empty: all
  double timeout = 60;  // seconds; 0: do not wait
  bool undo = false;
  bool json = false;
};

// Admits no new processes and no new memory from now on, and waits until the present ones have left. kExitTimeout: the message names
// those left; the drain stays in force.
ExitCode RunDrain(const DrainOptions& options);

// One JSON object: whether the drain is in force, its holders, and whether it is complete.
std::string DrainJson(const DrainOptions& options, const broker::Snapshot& snapshot);

// The remaining holders of `tenant` (empty: any) on `gpu` (empty: any), such as "online: 4242 (serve), 2 GiB on GPU-...".
std::vector<std::string> Holders(const broker::Snapshot& snapshot, const std::string& tenant,
                                 const std::string& gpu = "");

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_CHANGE_H_
