// SPDX-License-Identifier: Apache-2.0
// The payer of a call.
#ifndef GPUSHARE_WORK_PAYER_H_
#define GPUSHARE_WORK_PAYER_H_

#include <cuda.h>

#include <atomic>
#include <functional>

#include "gate/engine.h"

namespace gpushare::work {

// The gates of one identity, by the driver's number of the device. There is one object per identity, with a stable address. A
// gate may be added while the identity's streams are in use. To remove one, take it out of `on`, then call Calls::Forget().
struct Gates {
  static constexpr int kDevices = 64;

  struct Found {
    gate::Gate* gate = nullptr;  // null: work on the device is not held
    bool refused = false;        // work is refused, since there is no share to be had
  };
  // The gate of a device, for a stream that is seen for the first time.
  Found Of(CUdevice device) const {
    if (device < 0 || device >= kDevices) return {.refused = open != nullptr};
    gate::Gate* const gate = on[device].load(std::memory_order_acquire);
    if (gate == nullptr && open) return open(device);
    return {.gate = gate};
  }

  std::atomic<gate::Gate*> on[kDevices] = {};
  // Returns the gate for a device that has none yet; any thread may call it. If null, work on such a device is not held.
  std::function<Found(CUdevice)> open;
};

// The result of refused work.
inline constexpr CUresult kRefused = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;

struct Payer {
  const Gates* gates;
  // The longest hold, since others may be waiting for this work. After that it passes, and is charged.
  Nanos longest_hold = gate::kNoBound;
};

}  // namespace gpushare::work

#endif  // GPUSHARE_WORK_PAYER_H_
