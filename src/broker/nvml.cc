// SPDX-License-Identifier: Apache-2.0
#include "broker/nvml.h"

#include <unistd.h>

#include <optional>
#include <vector>

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

absl::StatusOr<Ran> Sample(const driver::Nvml& nvml, const std::map<std::string, uint64_t>& since) {
  Ran ran;
  for (const auto& [uuid, since_us] : since) {
    GPUSHARE_ASSIGN_OR_RETURN(const std::optional<driver::Nvml::Samples> samples,
                              nvml.Utilization(uuid, since_us));
    if (!samples.has_value()) continue;
    std::vector<RanSample>& of_gpu = ran[uuid];
    for (const driver::Nvml::Sample& one : *samples) {
      if (one.pid != getpid()) of_gpu.push_back({one.pid, one.until_us, one.percent});
    }
  }
  return ran;
}

}  // namespace gpushare::broker
