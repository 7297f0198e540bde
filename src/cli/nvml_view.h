// SPDX-License-Identifier: Apache-2.0
// What an unmodified program would be told by NVML here, of each GPU.
#ifndef GPUSHARE_CLI_NVML_VIEW_H_
#define GPUSHARE_CLI_NVML_VIEW_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpushare/units.h"

namespace gpushare::cli {

struct NvmlView {
  std::string library;  // the real one
  struct Gpu {
    std::string uuid;
    Bytes memory;
  };
  std::vector<Gpu> gpus;
};

// Asks `object`, which stands in for NVML, as a program would that has this process's environment. Unavailable: there
// is no NVML. Internal: it refuses, with its code.
absl::StatusOr<NvmlView> LookThroughNvml(const std::string& object);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_NVML_VIEW_H_
