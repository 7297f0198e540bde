// SPDX-License-Identifier: Apache-2.0
#include "device/watch/watch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace gpushare::device {

absl::StatusOr<std::shared_ptr<Watch>> Watch::Start(const std::shared_ptr<Gpu>& gpu, Nanos limit,
                                                    gate::Watchdog::Callback callback) {
  GPUSHARE_RETURN_IF_ERROR(gpu->health());  // nothing would ever be told of
  // Made first: once the GPU knows it, nothing fails any more.
  std::shared_ptr<Watch> watch(new Watch(gpu, limit, std::move(callback)));
  if (!gpu->Watch(watch->watchdog_)) {
    return absl::AlreadyExistsError(
        absl::StrCat("watchdog: GPU ", gpu->ordinal(), " has one already; stop that one first"));
  }
  watch->known_ = true;
  return watch;
}

Watch::~Watch() {
  if (known_) static_cast<void>(gpu_->Watch(nullptr));
  watchdog_->Stop();
}

}  // namespace gpushare::device
