// SPDX-License-Identifier: Apache-2.0
// Predicts which GPUs the driver will show this process, and with which ordinals, for code that must not call the driver.
//
//   PlaceAmong("GPU-5f,0", /*index=*/0, /*count=*/2, "GPU-aaaa...") == 1
#ifndef GPUSHARE_SHIM_VISIBLE_DEVICES_H_
#define GPUSHARE_SHIM_VISIBLE_DEVICES_H_

#include <optional>
#include <string_view>

namespace gpushare::shim {

// The ordinal of a device when CUDA_VISIBLE_DEVICES is `list`; nothing if the device will be hidden. A number in the list is
// compared with `index`, NVML's index, which follows the PCI bus. The driver's default order is "fastest first", so with
// unequal GPUs only UUIDs (or CUDA_DEVICE_ORDER=PCI_BUS_ID) are reliable. As with the driver, the list ends at the first entry
// that names no device: -1, or a number or UUID that none of the `count` devices has.
std::optional<int> PlaceAmong(std::string_view list, unsigned index, unsigned count,
                              std::string_view uuid);

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_VISIBLE_DEVICES_H_
