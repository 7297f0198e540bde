// SPDX-License-Identifier: Apache-2.0
// How much of a GPU's time this process's share has used, for NVML's utilisation.
#ifndef GPUSHARE_SHIM_NVML_USAGE_H_
#define GPUSHARE_SHIM_NVML_USAGE_H_

#include "base/time.h"
#include "shim/nvml_device.h"

namespace gpushare::shim::nvml {

// Fractions of time used, from 0 to 1.
struct Used {
  double of_device = 0;
  double of_share = 0;  // of what the share may use: its cap, or the whole device if it has none
};

// The time used since the previous look, or since the process became a tenant: nothing samples it in between. Looks less
// than kPeriod apart get the same answer.
inline constexpr Nanos kPeriod = Millis(200);
Used LookAtUse(const Found& found);

}  // namespace gpushare::shim::nvml

#endif  // GPUSHARE_SHIM_NVML_USAGE_H_
