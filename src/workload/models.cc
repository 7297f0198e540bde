// SPDX-License-Identifier: Apache-2.0
#include "workload/models.h"

namespace gpushare::workload::workload_internal {

absl::Status CheckRange(const char* model, const char* field, int64_t value, int64_t least,
                        int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(std::string(model) + ": " + field + " is " +
                                    std::to_string(value) + ": allowed are integers from " +
                                    std::to_string(least) + " to " + std::to_string(most));
}

}  // namespace gpushare::workload::workload_internal
