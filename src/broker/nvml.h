// SPDX-License-Identifier: Apache-2.0
// The processes on GPUs, by NVML, as the audit wants them.
#ifndef GPUSHARE_BROKER_NVML_H_
#define GPUSHARE_BROKER_NVML_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "broker/audit.h"
#include "broker/time_audit.h"
#include "driver/nvml.h"

namespace gpushare::broker {

// What each process but this one holds of these GPUs. An error, when any GPU is not answered for.
absl::StatusOr<Counts> Count(const driver::Nvml& nvml, const std::vector<std::string>& uuids);

// How busy each process but this one kept them after that, by the driver's clock.
absl::StatusOr<Ran> Sample(const driver::Nvml& nvml, const std::map<std::string, uint64_t>& since);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_NVML_H_
