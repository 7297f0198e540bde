// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/context_wait.h"

#include <climits>
#include <utility>

#include "base/clock_lock.h"
#include "base/status_macros.h"
#include "device/process/detached.h"
#include "driver/relaxed_capture.h"

namespace gpushare::device {
// Shared with the thread, which may outlive everything else but the driver and its clock.
struct ContextWait::Call {
  Call(std::shared_ptr<const driver::Driver> d, const Site& of)
      : driver(std::move(d)), site{.driver = *driver, .context = of.context, .id = of.id} {}

  void Run() {
    {
      const ContextScope current(site);
      const driver::RelaxedCapture relaxed(*driver);
      result = current.ok() ? driver->SynchronizeContext() : driver::Result::kInvalidContext;
    }
    over.store(1);
    driver->clock().Wake(over, INT_MAX);
  }

  const std::shared_ptr<const driver::Driver> driver;
  const Site site;
  driver::Result result = driver::Result::kSuccess;
  std::atomic<uint32_t> over{0};
};

absl::StatusOr<bool> ContextWait::Await(const std::shared_ptr<const driver::Driver>& driver,
                                        const Site& site, Time deadline) {
  base::Clock& clock = driver->clock();
  const base::ClockLock turn(clock, turn_, deadline);
  if (!turn) return false;
  driver::Result result;
  // It does not know what has come since.
  if (call_ != nullptr && !IsOverBy(deadline, &result)) return false;
  auto call = std::make_shared<Call>(driver, site);
  RunDetached(driver, "gpushare-wait", [call] { call->Run(); });
  call_ = std::move(call);
  if (!IsOverBy(deadline, &result)) return false;
  GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(result, "cuCtxSynchronize"));
  return true;
}

bool ContextWait::IsOverBy(Time deadline, driver::Result* result) {
  base::Clock& clock = call_->driver->clock();
  while (call_->over.load() == 0) {
    if (clock.Now() >= deadline) return false;
    clock.Wait(call_->over, 0, deadline, Nanos(0));
  }
  *result = call_->result;
  call_ = nullptr;
  return true;
}

bool ContextWait::Runs(base::Clock& clock) {
  const base::ClockLock turn(clock, turn_, clock.Now());
  driver::Result result;
  return !turn || (call_ != nullptr && !IsOverBy(clock.Now(), &result));
}

}  // namespace gpushare::device
