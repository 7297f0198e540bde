// SPDX-License-Identifier: Apache-2.0
// What a playing process is told, and what it answers: files of JSON between the harness and the programs of stage/.
#ifndef GPUSHARE_HARNESS_PLAN_H_
#define GPUSHARE_HARNESS_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "harness/allocations.h"
#include "harness/fault.h"
#include "player/player.h"

namespace gpushare::harness {

struct TenantPlan {
  std::string name;
  std::string trace;  // the path of its kernels, as CSV
  std::string spec;   // of its virtual device; of the native stage nothing
  bool plays = true;  // its kernels; else it asks for memory alone
  player::PlayMode mode = player::PlayMode::kBacklog;
  bool high_priority = false;        // its stream's; of the native stage alone
  std::vector<Nanos> arrivals = {};  // since the start
  std::vector<player::Absence> absences = {};
  std::vector<player::BatchPass> batches = {};
  Nanos batch_wait{0};
  Allocations allocations = {};
  Fault fault = {};
  // Of a green plan: what its partition is made of, which `spec` does not say.
  std::optional<double> share = std::nullopt, cap = std::nullopt;
};

struct Plan {
  std::string barrier;   // start.h
  uint32_t parties = 1;  // processes that begin together
  std::string driver;    // under a name that no preloaded library knows
  std::string outcome;   // where the answer goes
  Nanos length{0}, sample{0};
  Nanos fine{0};  // a part of `sample`; 0: nobody asks for more than that
  // A tenant that fails is an outcome of its own, and the others go on; at the end nobody is waited for.
  bool tolerant = false;
  bool calls = false;  // at the end, what calls cost the host
  bool green = false;  // each tenant has SMs of its own (partitions.h)
  // What a tenant had is the time of the SMs that it held, of all SMs; else its part of the device's time.
  bool sm_time = false;
  // The witness is what kernels say of when they ran (spans.h), in a file beside the outcome; else the simulated GPU's truth.
  bool stamps = false;
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
  // Its absences as they were: each begins when what it had launched has ended.
  std::vector<player::Absence> away = {};
  std::vector<MemoryRequest> memory = {};
  uint64_t most_bytes = 0;  // the most memory that it had, by the device's own account
  std::string error = {};   // of a tolerant plan
  std::optional<Nanos> broke_at = std::nullopt;  // since the start: when its fault came
  // What its kernels would have taken with the device to themselves, as far as they have come, at each sample as used_ns.
  std::vector<int64_t> work_ns = {};
};

// What a call costs the thread that makes it, in ns of processor time: medians of bursts of either in turns.
struct CallCost {
  std::string call;    // "launch"
  double ns = 0;       // as the tenant makes it
  double bare_ns = 0;  // of the driver's own, past whatever shares the GPU
  double ratio = 0;    // of bursts beside one another
};

struct Outcome {
  std::string error = {};  // empty: it went well
  std::vector<TenantOutcome> tenants = {};
  std::vector<CallCost> calls = {};
  // Processor time of the program (of all programs together): until its tenants were there, and while they played.
  int64_t setup_cpu_ns = 0, play_cpu_ns = 0;
  std::vector<int64_t> ready_ns = {};  // by program, on the machine's clock: its tenants were there
  std::string not_supported = {};      // empty: it is
  int sms = 0;                         // of the device, where kernels were the witness
  double sm_mhz = 0;  // the clock of its SMs while kernels held them; 0: nobody knows
};

std::string FormatPlan(const Plan& plan);
std::string FormatOutcome(const Outcome& outcome);
// InvalidArgument: what is wrong, by its place. A process may have been killed while it wrote.
absl::StatusOr<Plan> ParsePlan(std::string_view text);
absl::StatusOr<Outcome> ParseOutcome(std::string_view text);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_PLAN_H_
