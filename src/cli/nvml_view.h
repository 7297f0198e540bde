// SPDX-License-Identifier: Apache-2.0
// What NVML would tell an unmodified program here about each GPU.
#ifndef GPUSHARE_CLI_NVML_VIEW_H_
#define GPUSHARE_CLI_NVML_VIEW_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpushare/units.h"

namespace gpushare::cli {

struct NvmlView {
  std::string library;  // path of the real NVML
  struct Gpu {
    std::string uuid;
    Bytes memory;
  };
  std::vector<Gpu> gpus;
};

// Asks `object`, gpushare's replacement for NVML, as a program with this process's environment would. Unavailable: there is no
// NVML. Internal: a call failed, with its code.
absl::StatusOr<NvmlView> LookThroughNvml(const std::string& object);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_NVML_VIEW_H_
