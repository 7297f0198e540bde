// SPDX-License-Identifier: Apache-2.0
// The broker's configuration, read from a YAML file (docs/broker.md lists every key).
//
//   GPUSHARE_ASSIGN_OR_RETURN(const Config config, LoadConfig("/etc/gpushare/broker.yaml"));
//
// A configuration is accepted as a whole or not at all. Errors are InvalidArgument; they name the file, line and key, the
// value given, and what is allowed.
#ifndef GPUSHARE_BROKER_CONFIG_H_
#define GPUSHARE_BROKER_CONFIG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::broker {

struct TenantConfig {
  std::string name;
  std::string spec;                       // its share of each GPU
  std::map<std::string, std::string> on;  // by UUID: keys that are added to `spec` or override it
  std::string parent;                     // the tenant whose share its own is within; empty: none
  std::vector<uint32_t> uids, gids;       // who may register; both empty: everybody who may connect
  std::map<std::string, std::string> labels;
  bool operator==(const TenantConfig&) const = default;
};

struct Config {
  std::string socket;   // path; empty: the command line's, or the default
  std::string metrics;  // address to listen at, such as 127.0.0.1:9410; empty: none
  // Users that may list and change what the broker does, also from containers. nullopt: root and the broker's own user,
  // outside containers only.
  std::optional<std::vector<uint32_t>> operators;
  std::vector<TenantConfig> tenants;
  // Whether processes may register as tenants that are not listed, with the share that they ask for if there is room.
  bool unlisted = false;
  std::map<std::string, std::string>
      reserve;  // by UUID, or "*": memory that is never promised, such as 512MiB
  // How often the claims of processes are compared with the driver's figures; 0: never. And how many bytes the driver may
  // count beyond a process's claim, for its context and libraries.
  Nanos audit_interval = Seconds(10);
  uint64_t audit_allowance = uint64_t{1} << 30;
  // After a process has ended, its memory counts as free when `reclaim_after` has passed (nullopt: the default,
  // ServiceOptions::teardown) and NVML, if available, no longer names the process; at the latest after `reclaim_most`.
  std::optional<Nanos> reclaim_after;
  Nanos reclaim_most = Seconds(10);
  // How much device time a process is granted at once, and the part of the device's time that tenants below high priority
  // keep beside it.
  Nanos slice = Millis(4);
  double floor = 0;
  bool operator==(const Config&) const = default;
};

// The keys that take effect only when the broker starts and that differ between `begun`, with which it started, and
// `read`, such as "socket, metrics".
inline std::string WaitForRestart(const Config& begun, const Config& read) {
  std::string keys = begun.socket != read.socket ? "socket" : "";
  if (begun.metrics != read.metrics) keys += keys.empty() ? "metrics" : ", metrics";
  return keys;
}

// `file` is used in messages only.
absl::StatusOr<Config> ParseConfig(std::string_view yaml, std::string_view file);
// NotFound, PermissionDenied: the file cannot be read.
absl::StatusOr<Config> LoadConfig(const std::string& path);

// Warnings about a valid configuration, a sentence each: guarantees that will not hold beside tenants of high priority.
std::vector<std::string> DoubtsOf(const Config& config);

// For both the configuration and the command line. The messages say what is allowed.
absl::Status CheckSocketPath(std::string_view path);
// Takes "127.0.0.1:9410", "[::1]:9410", or a port alone, which means 127.0.0.1. Returns the address to listen at.
absl::StatusOr<std::string> ParseAddress(std::string_view text);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_CONFIG_H_
