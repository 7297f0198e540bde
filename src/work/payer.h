// SPDX-License-Identifier: Apache-2.0
// For whom a call is made.
#ifndef GPUSHARE_WORK_PAYER_H_
#define GPUSHARE_WORK_PAYER_H_

#include <cuda.h>

#include <atomic>
#include <functional>

#include "gate/engine.h"

namespace gpushare::work {

// The gates of one identity, by the driver's number of the device. One object per identity: it stays where it
// is. A gate may come while its streams are in use; Calls::Forget() is called before it goes, when `on` has it no
// more.
struct Gates {
  static constexpr int kDevices = 64;

  struct Found {
    gate::Gate* gate = nullptr;  // null: what comes there is not held
    bool refused = false;        // nor let in: there is no share to be had
  };
  // Of a stream that is seen first.
  Found Of(CUdevice device) const {
    if (device < 0 || device >= kDevices) return {.refused = open != nullptr};
    gate::Gate* const gate = on[device].load(std::memory_order_acquire);
    if (gate == nullptr && open) return open(device);
    return {.gate = gate};
  }

  std::atomic<gate::Gate*> on[kDevices] = {};
  // Asked for the gate of a device that has none, by any thread; null: such a device's work is not held.
  std::function<Found(CUdevice)> open;
};

// What refused work is answered with.
inline constexpr CUresult kRefused = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;

struct Payer {
  const Gates* gates;
  // Others may be waiting for this work: held so long it passes, and is charged.
  Nanos longest_hold = gate::kNoBound;
};

}  // namespace gpushare::work

#endif  // GPUSHARE_WORK_PAYER_H_
