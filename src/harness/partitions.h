// SPDX-License-Identifier: Apache-2.0
// Which SMs tenants have whose method gives each some of its own: what they ask for, rounded to what the driver gives out.
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
  std::string name;  // the tenant's
  std::optional<double> share = std::nullopt, cap = std::nullopt;
};

struct PartitionedDevice {
  int sms = 1;
  int step = 1;      // SMs that are given out together
  size_t steps = 1;  // how many of these; some SMs may be in none
};

// How many steps each tenant has. Shares are of all steps, by largest remainders, at least one each, so that together they
// are never more than there are; a cap alone is rounded up, and who asks for neither has an even part of what is left.
// Unimplemented: they do not fit, and why.
absl::StatusOr<std::vector<size_t>> StepsOf(const std::vector<PartitionAsk>& asks,
                                            const PartitionedDevice& device);

// What of a virtual device's spec asks for so many steps, behind what else is asked for.
std::string GreenSpec(const PartitionAsk& ask, size_t steps, const PartitionedDevice& device);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_PARTITIONS_H_
