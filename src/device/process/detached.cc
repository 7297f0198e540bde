// SPDX-License-Identifier: Apache-2.0
#include "device/process/detached.h"

#include <utility>

#include "base/clock.h"
#include "base/service_threads.h"

namespace gpushare::device {

void RunDetached(std::shared_ptr<const driver::Driver> driver, std::string name,
                 std::function<void()> body) {
  base::Clock& clock = driver->clock();
  clock
      .StartThread(std::move(name),
                   base::Service([driver = std::move(driver), body = std::move(body)] { body(); }))
      ->Detach();
}

}  // namespace gpushare::device
