// SPDX-License-Identifier: Apache-2.0
// The demonstration: who shares the GPU, what each runs, what each was promised.
#ifndef GPUSHARE_CLI_DEMO_SCENARIO_H_
#define GPUSHARE_CLI_DEMO_SCENARIO_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "cli/demo/options.h"
#include "gpushare/gpu.h"
#include "player/player.h"
#include "workload/trace.h"

namespace gpushare::cli {

// Memory that a tenant uses, as parts of its quota. With `resident` held throughout, a piece of another size
// is taken and given back every `rotate_every`, and `too_much` is asked for every `ask_every`: more than is
// left, so that it is denied.
struct MemoryPlan {
  double resident = 0.6;
  double workspace_least = 0.10, workspace_most = 0.30;
  Nanos rotate_every{0};  // 0: never
  double too_much = 0;
  Nanos ask_every{0};
};

struct TenantPlan {
  std::string name;
  std::string workload;  // what it runs, for people
  std::string asked;     // what it asked for, for people; empty: what its limits say
  std::string spec;      // of its virtual device, in text form
  workload::KernelTrace trace;
  player::PlayMode mode = player::PlayMode::kSyncPerIteration;
  std::vector<Nanos> arrivals = {};
  std::vector<player::Absence> absences = {};
  MemoryPlan memory = {};
};

struct Scenario {
  Nanos length{0};
  std::vector<TenantPlan> tenants;  // the service first
  size_t leaver = 1;                // which one stops half way and comes back
  Nanos leaves{0}, returns{0};
};

// Errors: those of ReadTraceFile() for a file of options.traces.
absl::StatusOr<Scenario> MakeScenario(const DemoOptions& options, const GpuProbe& gpu);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_DEMO_SCENARIO_H_
