// SPDX-License-Identifier: Apache-2.0
// Which GPUs the driver will show this process, and as which, for who must not ask the driver.
//
//   PlaceAmong("GPU-5f,0", /*index=*/0, /*count=*/2, "GPU-aaaa...") == 1
#ifndef GPUSHARE_SHIM_VISIBLE_DEVICES_H_
#define GPUSHARE_SHIM_VISIBLE_DEVICES_H_

#include <optional>
#include <string_view>

namespace gpushare::shim {

// The ordinal of a device by CUDA_VISIBLE_DEVICES' value `list`; nothing: it will not be seen. A number in it counts
// in the order of `index`, NVML's, which is that of the PCI bus: the driver's own default is "the fastest first", so
// that among unequal GPUs only UUIDs (and CUDA_DEVICE_ORDER=PCI_BUS_ID) say for sure. As with the driver, the list ends
// with the first entry that names none: -1, or one of which no device is (`count` devices).
std::optional<int> PlaceAmong(std::string_view list, unsigned index, unsigned count,
                              std::string_view uuid);

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_VISIBLE_DEVICES_H_
