// SPDX-License-Identifier: Apache-2.0
// A watchdog of one GPU, behind gpushare_watchdog.
#ifndef GPUSHARE_DEVICE_WATCH_WATCH_H_
#define GPUSHARE_DEVICE_WATCH_WATCH_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "device/gpu/gpu.h"
#include "gate/watchdog.h"

namespace gpushare::device {

class Watch {
 public:
  static constexpr Nanos kLeast = Millis(100);
  static constexpr Nanos kDefault = Seconds(10);

  // AlreadyExists: the GPU has one.
  static absl::StatusOr<std::shared_ptr<Watch>> Start(const std::shared_ptr<Gpu>& gpu, Nanos limit,
                                                      gate::Watchdog::Callback callback);
  ~Watch();

  bool OnItsThread() const { return watchdog_->OnItsThread(); }

 private:
  Watch(std::shared_ptr<Gpu> gpu, Nanos limit, gate::Watchdog::Callback callback)
      : gpu_(std::move(gpu)),
        watchdog_(std::make_shared<gate::Watchdog>(gpu_->clock(), limit, std::move(callback))) {}

  const std::shared_ptr<Gpu> gpu_;
  const std::shared_ptr<gate::Watchdog> watchdog_;
  bool known_ = false;  // to the GPU
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_WATCH_WATCH_H_
