// SPDX-License-Identifier: Apache-2.0
// `gpushare broker`: the daemon itself.
//
// SIGTERM and SIGINT end it. SIGHUP makes it read its configuration again; an invalid one is logged, and the old one stays in force.
#ifndef GPUSHARE_CLI_BROKER_DAEMON_H_
#define GPUSHARE_CLI_BROKER_DAEMON_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "broker/event_log.h"
#include "cli/exit_code.h"

namespace CLI {
class App;
}

namespace gpushare::cli {

// How the broker learns which GPUs there are.
enum class GpuSource {
  kAuto,  // from the driver, if there is one; else like kNone
  kReal,
  kSimulated,
  kNone,  // from the first process that opens one
};

struct DaemonOptions {
  std::string config;    // path; empty: no configuration, so no listed tenants
  std::string socket;    // empty: from the configuration, else GPUSHARE_BROKER, else kDefaultSocket
  std::string metrics;   // address; empty: from the configuration
  unsigned mode = 0666;  // of the socket
  bool check = false, json = false;
  GpuSource gpus = GpuSource::kAuto;
  broker::LogLevel level = broker::LogLevel::kInfo;
  broker::LogFormat format = broker::LogFormat::kLogfmt;
};

// The socket that a configuration sets (empty: none), and the names of the tenants that it lists.
struct Configured {
  std::string socket;
  std::vector<std::string> tenants;
};
absl::StatusOr<Configured> ReadConfigured(const std::string& config);

void AddDaemon(CLI::App* app, std::function<ExitCode()>* chosen);
ExitCode RunDaemon(const DaemonOptions& options);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_DAEMON_H_
