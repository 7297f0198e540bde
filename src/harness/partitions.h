// SPDX-License-Identifier: Apache-2.0
// Divides the SMs among tenants for methods that give each tenant SMs of its own: requests, rounded to the driver's steps.
//
//   GPUSHARE_ASSIGN_OR_RETURN(const std::vector<size_t> steps, StepsOf(asks, {.sms = 132, .step = 8, .steps = 16}));
//   spec = GreenSpec(asks[0], steps[0], device);
#ifndef GPUSHARE_HARNESS_PARTITIONS_H_
#define GPUSHARE_HARNESS_PARTITIONS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gpushare::harness {

struct PartitionAsk {
  std::string name;  // of the tenant
  std::optional<double> share = std::nullopt, cap = std::nullopt;
};

struct PartitionedDevice {
  int sms = 1;
  int step = 1;      // SMs in a step, which the driver hands out together
  size_t steps = 1;  // number of steps; some SMs may be in none
};

// The number of steps for each tenant. Shares are apportioned by largest remainders with at least one step each, so their sum
// never exceeds the device. A cap alone is rounded up. Tenants that ask for neither divide the rest evenly. Unimplemented: the
// requests do not fit, and why.
absl::StatusOr<std::vector<size_t>> StepsOf(const std::vector<PartitionAsk>& asks,
                                            const PartitionedDevice& device);

// The part of a virtual device's spec that asks for this number of steps; append it to the rest of the spec.
std::string GreenSpec(const PartitionAsk& ask, size_t steps, const PartitionedDevice& device);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_PARTITIONS_H_
