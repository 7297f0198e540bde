// SPDX-License-Identifier: Apache-2.0
// Which of the devices a process sees, by CUDA_VISIBLE_DEVICES: the driver's own variable.
//
//   VisibleDevices("2,0", /*count=*/4) == {2, 0}     // in the order in which the process counts them
#ifndef GPUSHARE_SIM_CONFIG_VISIBLE_DEVICES_H_
#define GPUSHARE_SIM_CONFIG_VISIBLE_DEVICES_H_

#include <string_view>
#include <vector>

namespace gpushare::sim {

// `list` has numbers, or UUIDs of which the beginning is enough; it ends, as the driver documents, before the first entry
// that names none of the `count` devices. Here also before one that is named twice.
std::vector<int> VisibleDevices(std::string_view list, int count);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_CONFIG_VISIBLE_DEVICES_H_
