// SPDX-License-Identifier: Apache-2.0
// What a playing process is told, and what it answers: files of JSON between the harness and the programs of stage/.
#ifndef GPUSHARE_HARNESS_PLAN_H_
#define GPUSHARE_HARNESS_PLAN_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "player/player.h"

namespace gpushare::harness {

struct TenantPlan {
  std::string name;
  std::string trace;  // the path of its kernels, as CSV
  std::string spec;   // of its virtual device; of the native stage nothing
  player::PlayMode mode = player::PlayMode::kBacklog;
  bool high_priority = false;        // its stream's; of the native stage alone
  std::vector<Nanos> arrivals = {};  // since the start
};

struct Plan {
  std::string barrier;    // start.h
  uint32_t parties = 1;   // processes that begin together
  std::string simulated;  // the simulated driver under a name that no preloaded library knows
  std::string outcome;    // where the answer goes
  Nanos length{0}, sample{0};
  Nanos fine{0};  // a part of `sample`; 0: nobody asks for more than that
  std::vector<TenantPlan> tenants;
};

struct TenantOutcome {
  std::string name;
  std::vector<int64_t>
      used_ns;  // device time since the start by the witness, at each sample from 0 on
  std::vector<player::Request> requests;
  std::vector<Nanos> unserved = {};  // arrivals; the harness knows them, a stage does not tell
  uint64_t launches = 0;
  std::vector<int64_t> fine_ns =
      {};  // as used_ns, at each `fine` of the plan; empty where that is 0
};

struct Outcome {
  std::string error;  // empty: it went well
  std::vector<TenantOutcome> tenants;
};

std::string FormatPlan(const Plan& plan);
std::string FormatOutcome(const Outcome& outcome);
// InvalidArgument: what is wrong, by its place. A process may have been killed while it wrote.
absl::StatusOr<Plan> ParsePlan(std::string_view text);
absl::StatusOr<Outcome> ParseOutcome(std::string_view text);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_PLAN_H_
