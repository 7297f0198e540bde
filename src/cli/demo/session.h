// SPDX-License-Identifier: Apache-2.0
// Runs tenants side by side on one GPU through the public API, and samples their figures.
#ifndef GPUSHARE_CLI_DEMO_SESSION_H_
#define GPUSHARE_CLI_DEMO_SESSION_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "cli/demo/device_truth.h"
#include "cli/demo/scenario.h"
#include "cli/open_gpu.h"
#include "gpushare/snapshot.h"
#include "player/player.h"

namespace gpushare::cli {

struct TenantOutcome {
  player::PlayResult play;
  VirtualDeviceStats stats;     // at the end
  std::vector<double> used_ns;  // device time by the device's own books, at each sample; 0: unknown
  std::vector<double> metered_ns;  // device time by the engine's meter, at each sample
};

struct Outcome {
  Nanos step{0};  // between samples; sample 0 is at the start
  std::vector<TenantOutcome> tenants;
  std::vector<DeviceTruth::Busy> busy;  // at each sample
};

struct SessionOptions {
  Nanos length{0};
  Nanos step = Millis(100);
  std::function<void(double fraction)> progress = nullptr;
};

// Each tenant runs on a thread of the runtime's clock; another thread samples. The first error of any tenant ends the run.
absl::StatusOr<Outcome> RunTenants(const OpenedGpu& opened,
                                   const std::vector<const TenantPlan*>& plans,
                                   const SessionOptions& options);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_DEMO_SESSION_H_
