// SPDX-License-Identifier: Apache-2.0
// What the broker is to do, as its YAML file says it (docs/broker.md has every key).
//
//   GPUSHARE_ASSIGN_OR_RETURN(const Config config, LoadConfig("/etc/gpushare/broker.yaml"));
//
// A configuration is valid as a whole or not at all. Errors are InvalidArgument and name file, line and key, what was
// given and what is allowed.
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
  std::map<std::string, std::string> on;  // by UUID: other keys than `spec` has, or other values
  std::vector<uint32_t> uids, gids;       // who may register; both empty: whoever may connect
  std::map<std::string, std::string> labels;
  bool operator==(const TenantConfig&) const = default;
};

// What a tenant's share is of the GPU with that UUID: its spec, changed by what it says of this one; checked as a whole.
absl::StatusOr<gpushare_spec> SpecOn(const TenantConfig& tenant, const std::string& uuid);

struct Config {
  std::string socket;   // path; empty: the command line's, or the default
  std::string metrics;  // address to listen at, as in 127.0.0.1:9410; empty: none
  // Users that list and change what the broker does, wherever they are; nothing: root and the broker's own, where they
  // are not in a container.
  std::optional<std::vector<uint32_t>> operators;
  std::vector<TenantConfig> tenants;
  // Whether processes may register as tenants that are not listed, with the share that they ask for as far as there is
  // room for it.
  bool unlisted = false;
  std::map<std::string, std::string>
      reserve;  // by UUID, or "*": memory that is never promised, as in 512MiB
  // How often what processes say is held against what the driver says; 0: never. And how many bytes a process may have
  // by the driver's count beyond that: its context and libraries.
  Nanos audit_interval = Seconds(10);
  uint64_t audit_allowance = uint64_t{1} << 30;
  // After a process's end its memory counts as free when this has passed (nothing: the command's own,
  // ServiceOptions::teardown) and NVML, where it says, does not name it any more, or after `most`.
  std::optional<Nanos> reclaim_after;
  Nanos reclaim_most = Seconds(10);
  // How much device time a process is granted at once, and which part of it those below a high priority keep beside it.
  Nanos slice = Millis(4);
  double floor = 0;
  bool operator==(const Config&) const = default;
};

// Keys that count when the broker begins, and of which `read` says something else than `begun`, with which it did:
// "socket, metrics".
inline std::string WaitForRestart(const Config& begun, const Config& read) {
  std::string keys = begun.socket != read.socket ? "socket" : "";
  if (begun.metrics != read.metrics) keys += keys.empty() ? "metrics" : ", metrics";
  return keys;
}

// `file` is for messages.
absl::StatusOr<Config> ParseConfig(std::string_view yaml, std::string_view file);
// NotFound, PermissionDenied: the file cannot be read.
absl::StatusOr<Config> LoadConfig(const std::string& path);

// What a valid configuration says that its author can hardly want: guarantees that will not hold beside tenants of high
// priority. A sentence each.
std::vector<std::string> DoubtsOf(const Config& config);

// Of the configuration and of the command line alike. Their messages say what is allowed.
absl::Status CheckSocketPath(std::string_view path);
// "127.0.0.1:9410", "[::1]:9410", or a port alone, which is of 127.0.0.1. As it is to be listened at.
absl::StatusOr<std::string> ParseAddress(std::string_view text);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_CONFIG_H_
