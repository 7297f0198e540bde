// SPDX-License-Identifier: Apache-2.0
// The demonstration's tenants: what each runs and what it was promised.
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

// A tenant's memory, as parts of its quota. `resident` is held throughout. Every `rotate_every` a block of
// another size is allocated and freed. Every `ask_every` the tenant asks for `too_much`, which exceeds what is
// left, so it is denied.
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
  std::string asked;     // what it asked for, for people; empty: derived from its limits
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
  size_t leaver = 1;                // index of the tenant that leaves for a while
  Nanos leaves{0}, returns{0};
};

// Errors are those of ReadTraceFile() for a file of options.traces.
absl::StatusOr<Scenario> MakeScenario(const DemoOptions& options, const GpuProbe& gpu);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_DEMO_SCENARIO_H_
