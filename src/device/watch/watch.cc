// SPDX-License-Identifier: Apache-2.0
#include "device/watch/watch.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace gpushare::device {

absl::StatusOr<std::shared_ptr<Watch>> Watch::Start(std::shared_ptr<Gpu> gpu, Nanos limit,
                                                    gate::Watchdog::Callback callback) {
  GPUSHARE_RETURN_IF_ERROR(gpu->health());  // nothing would ever be told of
  auto watchdog = std::make_shared<gate::Watchdog>(gpu->clock(), limit, std::move(callback));
  if (!gpu->Watch(watchdog)) {
    return absl::AlreadyExistsError(
        absl::StrCat("watchdog: GPU ", gpu->ordinal(), " has one already; stop that one first"));
  }
  return std::shared_ptr<Watch>(new Watch(std::move(gpu), std::move(watchdog)));
}

Watch::~Watch() {
  static_cast<void>(gpu_->Watch(nullptr));
  watchdog_->Stop();
}

}  // namespace gpushare::device
