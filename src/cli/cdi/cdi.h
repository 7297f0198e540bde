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
  std::string config;                // the broker's configuration, for its tenants
  std::vector<std::string> tenants;  // more tenants
  int fractions = 0;                 // also a device for each of this many equal parts of a GPU
  std::string socket;  // empty: from the configuration, else GPUSHARE_BROKER, else kDefaultSocket
  std::string dev = "/dev";
  std::string output;  // empty: standard output
  bool json = false;   // print what was written to `output`
};

struct CdiDevice {
  std::string name;
  std::vector<std::pair<std::string, std::string>> environment;
};
// A path on the host and in the container.
struct CdiPath {
  std::string host, container;
};
struct CdiSpec {
  std::vector<CdiDevice> devices;
  std::vector<std::pair<std::string, std::string>> environment;  // of every device
  std::vector<CdiPath> nodes, mounts;
};

// One device for each tenant and each fraction. InvalidArgument: CDI does not allow a name, or there are no devices.
absl::StatusOr<std::vector<CdiDevice>> CdiDevices(const std::vector<std::string>& tenants,
                                                  int fractions);
std::string CdiJson(const CdiSpec& spec);

ExitCode RunCdiGenerate(const CdiOptions& options);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_CDI_CDI_H_
