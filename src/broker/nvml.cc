// SPDX-License-Identifier: Apache-2.0
#include "broker/nvml.h"

#include <unistd.h>

#include "base/status_macros.h"

namespace gpushare::broker {

absl::StatusOr<Counts> Count(const driver::Nvml& nvml, const std::vector<std::string>& uuids) {
  Counts counts;
  for (const std::string& uuid : uuids) {
    GPUSHARE_ASSIGN_OR_RETURN(const driver::Nvml::ByProcess processes, nvml.Processes(uuid));
    for (const auto& [pid, bytes] : processes) {
      if (pid != getpid()) counts[{uuid, pid}] = bytes;
    }
  }
  return counts;
}

}  // namespace gpushare::broker
