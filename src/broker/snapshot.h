// SPDX-License-Identifier: Apache-2.0
// Every figure of the broker at one instant: what `list`, `top` and the metrics show.
#ifndef GPUSHARE_BROKER_SNAPSHOT_H_
#define GPUSHARE_BROKER_SNAPSHOT_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/time.h"
#include "broker/wait_histogram.h"

namespace gpushare::broker {

// What the audit found of a process on a GPU (audit.h).
enum class AuditResult : uint32_t {
  kNone,              // nothing
  kUnderstates,       // it holds more than it says
  kOverGrant,         // it holds more than it was granted
  kStranger,          // it is no tenant's
  kUnderstatesTime,   // it runs longer than it says
  kRunsPastGpushare,  // it runs, and has launched nothing
};

// A process's part in a tenant's share of one GPU.
struct ProcessShare {
  uint64_t session = 0;
  int32_t pid = 0;  // as the broker's PID namespace has it; 0: it is not visible there
  uint32_t uid = 0, gid = 0;
  std::string program;
  uint64_t memory_used = 0, memory_granted = 0;
  Nanos time_used{0};
  bool gone = false;        // its session has ended, and its memory is not free yet
  bool evicted = false;     // gone because an operator ended its session; it may live on
  bool reclaiming = false;  // gone with its process; the driver may not have its memory back
  // By the driver's count, at the latest audit; UINT64_MAX: the driver does not say.
  uint64_t memory_by_driver = UINT64_MAX;
  // What contexts, modules and libraries of it take, as of then: what the driver counts beyond what is charged. Not of one
  // that was found to hold more than it says.
  uint64_t memory_overhead = UINT64_MAX;
  AuditResult audit = AuditResult::kNone;
};

// A process on a GPU that is no tenant's.
struct Stranger {
  int32_t pid = 0;
  std::string program;  // empty: it cannot be seen
  uint64_t memory_by_driver = 0;
};

// A tenant's share of one GPU.
struct Share {
  std::string gpu;  // UUID
  std::string tenant;
  std::string spec;  // in force
  std::map<std::string, std::string> labels;
  bool suspended = false, draining = false;
  uint64_t memory_limit = UINT64_MAX;  // UINT64_MAX: none
  uint64_t memory_used = 0, memory_granted = 0, memory_peak = 0;
  uint64_t memory_reclaiming = 0;  // of what is granted: of processes that have ended
  uint64_t allocations_denied = 0;
  std::string priority = "normal";  // in force, whichever of tenant, key and policy says it
  double guarantee = 0, weight = 1, cap = 1;  // of the GPU
  Nanos time_used{0};                         // device time since the broker started
  Nanos throttled{0};                         // host time that launches waited
  uint64_t launches = 0, waits = 0;
  // For the metrics alone: how long its processes were in line for device time, and how often they were stopped for
  // somebody of a higher priority.
  WaitHistogram in_line;
  uint64_t preempted = 0;
  std::vector<ProcessShare> processes;

  // Of all processes together, each once, however many sessions it has; UINT64_MAX: of none it is known.
  uint64_t memory_overhead() const {
    uint64_t sum = UINT64_MAX;
    std::set<int32_t> counted;
    for (const ProcessShare& process : processes) {
      if (process.memory_overhead == UINT64_MAX || !counted.insert(process.pid).second) continue;
      sum = process.memory_overhead + (sum == UINT64_MAX ? 0 : sum);
    }
    return sum;
  }
};

struct GpuState {
  std::string uuid;
  uint64_t memory = 0;           // that may be promised
  uint64_t memory_promised = 0;  // quotas
  double guaranteed = 0;         // sum of guarantees
  bool draining = false;         // no process may open it
  std::vector<Stranger> strangers = {};
};

struct Snapshot {
  Time at{};
  std::vector<GpuState> gpus;
  std::vector<Share> shares;  // by GPU, then by tenant's name
  uint64_t sessions = 0, sessions_ever = 0, refused = 0;
  uint64_t audits = 0;   // so far
  bool audited = false;  // whether the latest one came to anything: else nothing is known
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_SNAPSHOT_H_
