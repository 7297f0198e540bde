// SPDX-License-Identifier: Apache-2.0
// `gpushare cdi generate`: tenants as devices of the Container Device Interface, for container engines.
//
//   gpushare cdi generate --config /etc/gpushare/broker.yaml --output /etc/cdi/gpushare.json
//   podman run --device nvidia.com/gpu=0 --device gpushare.dev/vgpu=online ...
#ifndef GPUSHARE_CLI_CDI_CDI_H_
#define GPUSHARE_CLI_CDI_CDI_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/exit_code.h"

namespace gpushare::cli {

struct CdiOptions {
  std::string config;                // of the broker: its tenants
  std::vector<std::string> tenants;  // these too
  int fractions = 0;                 // and so many equal parts of a GPU
  std::string socket;  // empty: the configuration's, else GPUSHARE_BROKER, else kDefaultSocket
  std::string dev = "/dev";
  std::string output;  // empty: standard output
  bool json = false;   // what was written, where there is an output
};

struct CdiDevice {
  std::string name;
  std::vector<std::pair<std::string, std::string>> environment;
};
// Of the host, and where a container has it.
struct CdiPath {
  std::string host, container;
};
struct CdiSpec {
  std::vector<CdiDevice> devices;
  std::vector<std::pair<std::string, std::string>> environment;  // of each
  std::vector<CdiPath> nodes, mounts;
};

// One device of each tenant and each part. InvalidArgument: a name that CDI does not allow, or none at all.
absl::StatusOr<std::vector<CdiDevice>> CdiDevices(const std::vector<std::string>& tenants,
                                                  int fractions);
std::string CdiJson(const CdiSpec& spec);

ExitCode RunCdiGenerate(const CdiOptions& options);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_CDI_CDI_H_
