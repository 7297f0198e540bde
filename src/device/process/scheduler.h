// SPDX-License-Identifier: Apache-2.0
// Converts the scheduler options of the C ABI to and from those of the engine.
#ifndef GPUSHARE_DEVICE_PROCESS_SCHEDULER_H_
#define GPUSHARE_DEVICE_PROCESS_SCHEDULER_H_

#include "absl/status/status.h"
#include "gate/engine.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

// Fields that are 0 keep the value in `engine`. InvalidArgument names the option and its range.
absl::Status ApplyScheduler(const gpushare_scheduler_options& options, gate::EngineOptions* engine);
gpushare_scheduler_options SchedulerInForce(const gate::EngineOptions& engine);
bool SameScheduler(const gpushare_scheduler_options& a, const gpushare_scheduler_options& b);

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_PROCESS_SCHEDULER_H_
