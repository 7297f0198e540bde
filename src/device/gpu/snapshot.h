// SPDX-License-Identifier: Apache-2.0
// All counters of all virtual devices of a runtime, behind gpushare_snapshot.
#ifndef GPUSHARE_DEVICE_GPU_SNAPSHOT_H_
#define GPUSHARE_DEVICE_GPU_SNAPSHOT_H_

#include <memory>
#include <vector>

#include "device/gpu/gpu.h"
#include "device/process/runtime.h"
#include "device/share/virtual_device.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

class Snapshot {
 public:
  static std::shared_ptr<Snapshot> Take(const Runtime& runtime) {
    std::vector<std::shared_ptr<VirtualDevice>> devices;
    for (const std::shared_ptr<Gpu>& gpu : runtime.OpenGpus()) {
      for (std::shared_ptr<VirtualDevice>& device : gpu->Devices())
        devices.push_back(std::move(device));
    }
    auto snapshot = std::make_shared<Snapshot>();
    snapshot->stats.reserve(devices.size());
    const Time now = runtime.clock().Now();
    for (const std::shared_ptr<VirtualDevice>& device : devices) {
      snapshot->stats.push_back(device->Stats(now));
    }
    return snapshot;
  }

  std::vector<gpushare_vdev_stats> stats;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_GPU_SNAPSHOT_H_
