// SPDX-License-Identifier: Apache-2.0
// The JSON files between the harness and the programs of stage/: the plan that a program plays, and the outcome it reports.
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
  std::string trace;  // path of the CSV file with its kernels
  std::string spec;   // of its virtual device; empty in the native stage
  bool plays = true;  // whether it launches its kernels; otherwise it only allocates memory
  player::PlayMode mode = player::PlayMode::kBacklog;
  bool high_priority = false;        // of its stream, in the native stage
  std::vector<Nanos> arrivals = {};  // since the start
  std::vector<player::Absence> absences = {};
  std::vector<player::BatchPass> batches = {};
  Nanos batch_wait{0};
  Allocations allocations = {};
  Fault fault = {};
  // In a green plan: the request from which its partition is computed.
  std::optional<double> share = std::nullopt, cap = std::nullopt;
};

struct Plan {
  std::string barrier;   // path of the page of start.h
  uint32_t parties = 1;  // number of processes that begin together
  std::string driver;    // path of the driver, under a name that no preloaded library recognises
  std::string outcome;   // path for the outcome
  Nanos length{0}, sample{0};
  Nanos fine{0};  // interval of TenantOutcome::fine_ns, a divisor of `sample`; 0: not needed
  // If a tenant fails, its outcome says so and the others go on; the end does not wait for the device.
  bool tolerant = false;
  bool calls = false;  // at the end, measure what calls cost the host
  bool green = false;  // each tenant has SMs of its own (partitions.h)
  // Report SM time as a part of all SMs; otherwise each tenant's part of the device's time.
  bool sm_time = false;
  // The witness of device time is the stamps that kernels write (spans.h), in a file beside the outcome; otherwise it is the
  // simulated GPU's ground truth.
  bool stamps = false;
  std::vector<TenantPlan> tenants;
};

struct TenantOutcome {
  std::string name;
  std::vector<int64_t>
      used_ns;  // device time since the start, by the witness, at each sample from time 0 on
  std::vector<player::Request> requests;
  std::vector<Nanos> unserved = {};  // arrivals without a served request; filled in by the harness
  uint64_t launches = 0;
  std::vector<int64_t> fine_ns =
      {};  // like used_ns, at intervals of Plan::fine; empty if that is 0
  // The absences as they took place: each begins when the work launched before has ended.
  std::vector<player::Absence> away = {};
  std::vector<MemoryRequest> memory = {};
  uint64_t most_bytes = 0;                       // peak memory, by the device's own account
  std::string error = {};                        // in a tolerant plan: why the tenant failed
  std::optional<Nanos> broke_at = std::nullopt;  // time of its fault since the start
  // The work done: what the completed parts of its kernels take on an otherwise idle device, at the samples of used_ns.
  std::vector<int64_t> work_ns = {};
};

// What a driver call costs its thread in processor time: medians over alternating bursts of the tenant's and the bare call.
struct CallCost {
  std::string call;    // "launch"
  double ns = 0;       // of the tenant's call
  double bare_ns = 0;  // of the driver's call, bypassing the method under test
  double ratio = 0;    // median ratio of adjacent bursts
};

struct Outcome {
  std::string error = {};  // empty on success
  std::vector<TenantOutcome> tenants = {};
  std::vector<CallCost> calls = {};
  // Processor time of all programs together: until their tenants existed, and while they played.
  int64_t setup_cpu_ns = 0, play_cpu_ns = 0;
  std::vector<int64_t> ready_ns =
      {};                          // by program: when its tenants existed, on the machine's clock
  std::string not_supported = {};  // why the method cannot do it; empty if it can
  int sms = 0;                     // of the device, if kernels were the witness
  double sm_mhz = 0;               // clock of the SMs while kernels held them; 0: unknown
};

std::string FormatPlan(const Plan& plan);
std::string FormatOutcome(const Outcome& outcome);
// InvalidArgument: what is wrong, and where. An outcome may be incomplete, since its writer may have been killed.
absl::StatusOr<Plan> ParsePlan(std::string_view text);
absl::StatusOr<Outcome> ParseOutcome(std::string_view text);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_PLAN_H_
