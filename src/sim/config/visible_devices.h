// SPDX-License-Identifier: Apache-2.0
// The devices that a process sees, according to CUDA_VISIBLE_DEVICES, the driver's own variable.
//
//   VisibleDevices("2,0", /*count=*/4) == {2, 0}     // in the order in which the process numbers them
#ifndef GPUSHARE_SIM_CONFIG_VISIBLE_DEVICES_H_
#define GPUSHARE_SIM_CONFIG_VISIBLE_DEVICES_H_

#include <string_view>
#include <vector>

namespace gpushare::sim {

// `list` contains numbers, or UUIDs, which may be cut to a unique prefix. As the driver documents, it ends before the first
// entry that names none of the `count` devices. Here it also ends before an entry that repeats a device.
std::vector<int> VisibleDevices(std::string_view list, int count);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_CONFIG_VISIBLE_DEVICES_H_
