// SPDX-License-Identifier: Apache-2.0
// Waits until a context has done all that it was given, until a deadline, which the driver's own call does not know.
//
//   ContextWait wait;   // one for each context
//   GPUSHARE_ASSIGN_OR_RETURN(const bool over, wait.Await(driver, site, deadline));   // false: something still runs
//
// A thread of its own makes the driver's call. Where the work does not end in time, the thread stays in the driver, and
// the next Await() begins with it.
//
// Threading: thread-safe. One waits at a time, the others for their turn, through the clock.
#ifndef GPUSHARE_DEVICE_GPU_CONTEXT_WAIT_H_
#define GPUSHARE_DEVICE_GPU_CONTEXT_WAIT_H_

#include <atomic>
#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "device/gpu/context_scope.h"
#include "driver/driver.h"

namespace gpushare::device {

class ContextWait {
 public:
  ContextWait() = default;
  ContextWait(const ContextWait&) = delete;
  ContextWait& operator=(const ContextWait&) = delete;

  // An error: the driver's. May throw if there is no memory or no thread left.
  absl::StatusOr<bool> Await(const std::shared_ptr<const driver::Driver>& driver, const Site& site,
                             Time deadline);
  // Whether a thread of an Await() that was late is in the driver still.
  bool Runs(base::Clock& clock);

 private:
  struct Call;

  // With turn_, of call_. When it is over it is gone.
  bool IsOverBy(Time deadline, driver::Result* result);

  std::atomic<uint32_t> turn_{0};  // a base::ClockLock
  std::shared_ptr<Call> call_;     // null: none
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_GPU_CONTEXT_WAIT_H_
