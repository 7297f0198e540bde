// SPDX-License-Identifier: Apache-2.0
// What the broker is to do, as its YAML file says it (docs/broker.md has every key).
#ifndef GPUSHARE_BROKER_CONFIG_H_
#define GPUSHARE_BROKER_CONFIG_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gpushare::broker {

struct TenantConfig {
  std::string name;
  std::string spec;                       // its share of each GPU
  std::map<std::string, std::string> on;  // by UUID: other keys than `spec` has, or other values
  std::vector<uint32_t> uids, gids;       // who may register; both empty: whoever may connect
  std::map<std::string, std::string> labels;
  bool operator==(const TenantConfig&) const = default;
};

struct Config {
  std::string socket;   // path; empty: the command line's, or the default
  std::string metrics;  // address to listen at, as in 127.0.0.1:9410; empty: none
  std::vector<TenantConfig> tenants;
  // Whether processes may register as tenants that are not listed, with the share that they ask for as far as there is
  // room for it.
  bool unlisted = false;
  std::map<std::string, std::string>
      reserve;  // by UUID, or "*": memory that is never promised, as in 512MiB
  bool operator==(const Config&) const = default;
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_CONFIG_H_
