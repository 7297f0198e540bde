// SPDX-License-Identifier: Apache-2.0
// Where the management library gets the devices from: the simulated libcuda.so.1 of this process or, while that is not loaded,
// the configuration in the environment. Programs that use NVML need not load the driver.
#ifndef GPUSHARE_SIM_NVML_SOURCE_H_
#define GPUSHARE_SIM_NVML_SOURCE_H_

#include <optional>
#include <vector>

#include "gpushare/testing/sim.h"

namespace gpushare::sim::nvml {

// Negative: the configuration cannot be read.
int DeviceCount();
std::optional<gpushare_sim_device_info> DeviceInfo(int ordinal);
// The processes with a context on the device.
std::vector<gpushare_sim_process> Processes(int ordinal);
// What these processes used of the device lately.
std::vector<gpushare_sim_process_sample> Samples(int ordinal);

}  // namespace gpushare::sim::nvml

#endif  // GPUSHARE_SIM_NVML_SOURCE_H_
