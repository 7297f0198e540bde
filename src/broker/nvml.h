// SPDX-License-Identifier: Apache-2.0
// The processes on GPUs according to NVML, in the form that the audit takes.
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

// What each process except this one holds of these GPUs. Fails if NVML does not answer for any of them.
absl::StatusOr<Counts> Count(const driver::Nvml& nvml, const std::vector<std::string>& uuids);

// How busy each process except this one kept the GPUs since the given times of the driver's clock.
absl::StatusOr<Ran> Sample(const driver::Nvml& nvml, const std::map<std::string, uint64_t>& since);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_NVML_H_
