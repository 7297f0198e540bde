// SPDX-License-Identifier: Apache-2.0
// `gpushare broker`: the daemon itself.
//
// SIGTERM and SIGINT end it, SIGHUP has it read its configuration again: one that is wrong is refused, said in the log, and
// the old one stays.
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

// Where the broker learns which GPUs there are.
enum class GpuSource {
  kAuto,  // from the driver, if there is one; else as kNone
  kReal,
  kSimulated,
  kNone,  // from the first process that opens one
};

struct DaemonOptions {
  std::string config;    // path; empty: no tenants are listed
  std::string socket;    // empty: the configuration's, else GPUSHARE_BROKER, else kDefaultSocket
  std::string metrics;   // address; empty: the configuration's
  unsigned mode = 0666;  // of the socket
  bool check = false;
  GpuSource gpus = GpuSource::kAuto;
  broker::LogLevel level = broker::LogLevel::kInfo;
  broker::LogFormat format = broker::LogFormat::kLogfmt;
};

// What a configuration says of its socket (empty: nothing), and the tenants that it lists, by name.
struct Configured {
  std::string socket;
  std::vector<std::string> tenants;
};
absl::StatusOr<Configured> ReadConfigured(const std::string& config);

void AddDaemon(CLI::App* app, std::function<ExitCode()>* chosen);
ExitCode RunDaemon(const DaemonOptions& options);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_DAEMON_H_
