// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/overhead.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "driver/nvml.h"

namespace gpushare::device {
namespace {

constexpr int kLooks = 4;

}  // namespace

absl::StatusOr<gpushare_overhead> Overhead(const Gpu& gpu) {
  GPUSHARE_ASSIGN_OR_RETURN(const std::unique_ptr<driver::Nvml> nvml,
                            driver::Nvml::Open(gpu.driver().path()));
  if (nvml->stands_in()) {
    return absl::UnavailableError(
        "in this process NVML answers for its share, since it was started with gpushare run: "
        "gpushare list shows the overhead of each process");
  }
  gpushare_overhead found = {};
  found.reserve = gpu.reserve();
  found.overhead = UINT64_MAX;
  // The two figures are not taken at the same instant, and an allocation in between must not count as overhead. If there is
  // an allocation during each look, the smallest overhead is returned.
  for (int look = 0; look < kLooks; ++look) {
    const uint64_t before = gpu.HeldByAll();
    GPUSHARE_ASSIGN_OR_RETURN(const driver::Nvml::ByProcess processes,
                              nvml->Processes(gpu.info().uuid));
    const uint64_t after = gpu.HeldByAll();
    const auto own = processes.find(getpid());
    if (own == processes.end() || !own->second.has_value()) {
      return absl::UnavailableError(absl::StrCat(
          "NVML tells nothing of process ", getpid(), " on ", gpu.info().uuid,
          own == processes.end()
              ? ": its PIDs are the machine's, so in a PID namespace of its own a process cannot "
                "find itself; gpushare list shows the overhead of a broker's processes"
              : " but that it is there: this driver counts no memory by process"));
    }
    const uint64_t charged = std::max(before, after);
    const uint64_t overhead = *own->second - std::min(*own->second, charged);
    if (before == after || overhead < found.overhead) {
      found.by_driver = *own->second;
      found.charged = charged;
      found.overhead = overhead;
    }
    if (before == after) break;
  }
  return found;
}

}  // namespace gpushare::device
