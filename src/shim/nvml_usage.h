// SPDX-License-Identifier: Apache-2.0
// How much of a GPU's time the share of this process has used, for NVML's utilisation.
#ifndef GPUSHARE_SHIM_NVML_USAGE_H_
#define GPUSHARE_SHIM_NVML_USAGE_H_

#include "base/time.h"
#include "shim/nvml_device.h"

namespace gpushare::shim::nvml {

// Parts of the device's time, from 0 to 1.
struct Used {
  double of_device = 0;
  double of_share = 0;  // of what the share may use: its cap, without one the device
};

// Since the look before this one, or since the process became a tenant: nobody watches in between. Looks that follow
// each other within kPeriod are answered alike.
inline constexpr Nanos kPeriod = Millis(200);
Used LookAtUse(const Found& found);

}  // namespace gpushare::shim::nvml

#endif  // GPUSHARE_SHIM_NVML_USAGE_H_
