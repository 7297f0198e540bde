// SPDX-License-Identifier: Apache-2.0
// A thread that nobody waits for: for calls that may not come back, and for ends that would wait for the calling thread.
#ifndef GPUSHARE_DEVICE_PROCESS_DETACHED_H_
#define GPUSHARE_DEVICE_PROCESS_DETACHED_H_

#include <functional>
#include <memory>
#include <string>

#include "driver/driver.h"

namespace gpushare::device {

// Runs `body` on a new thread of the driver's clock. The thread keeps the driver and its clock until it has ended. Throws if
// there is no memory or no thread left; then `body` does not run.
void RunDetached(std::shared_ptr<const driver::Driver> driver, std::string name,
                 std::function<void()> body);

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_PROCESS_DETACHED_H_
