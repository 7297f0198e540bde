// SPDX-License-Identifier: Apache-2.0
#include "broker/host.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace gpushare::broker {

void AllowAllDescriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

absl::StatusOr<Host> OpenHost(const std::string& driver) {
  driver::OpenOptions options;
  options.path = driver;
  Host host;
  GPUSHARE_ASSIGN_OR_RETURN(host.driver, driver::Driver::Open(options));
  GPUSHARE_ASSIGN_OR_RETURN(const int count, host.driver->DeviceCount());
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    GPUSHARE_ASSIGN_OR_RETURN(const driver::Driver::DeviceInfo info,
                              host.driver->Describe(ordinal));
    // The driver's own memory and contexts; the same default as in the engine.
    const uint64_t reserve = std::min<uint64_t>(
        std::max<uint64_t>(256ull << 20, info.total_memory / 100), info.total_memory / 2);
    host.gpus.push_back({.uuid = info.uuid,
                         .memory = info.total_memory,
                         .reserve = reserve,
                         .sm_count = info.sm_count});
  }
  return host;
}

}  // namespace gpushare::broker
