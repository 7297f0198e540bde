// SPDX-License-Identifier: Apache-2.0
// All figures of the broker at one instant, as shown by `list`, `top` and the metrics.
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

// The audit's finding about a process on a GPU (audit.h).
enum class AuditResult : uint32_t {
  kNone,              // nothing
  kUnderstates,       // it holds more than it says
  kOverGrant,         // it holds more than it was granted
  kStranger,          // it belongs to no tenant
  kUnderstatesTime,   // it runs longer than it says
  kRunsPastGpushare,  // it runs although it has launched nothing through gpushare
};

// A process's part in a tenant's share of one GPU.
struct ProcessShare {
  uint64_t session = 0;
  int32_t pid = 0;  // in the broker's PID namespace; 0: not visible there
  uint32_t uid = 0, gid = 0;
  std::string program;
  uint64_t memory_used = 0, memory_granted = 0;
  Nanos time_used{0};
  bool gone = false;        // its session has ended, and its memory is not free yet
  bool evicted = false;     // gone because an operator ended its session; the process may still run
  bool reclaiming = false;  // its process has ended too; the driver may not have freed its memory
  // By the driver's count at the latest audit; UINT64_MAX: the driver does not tell.
  uint64_t memory_by_driver = UINT64_MAX;
  // The memory of its contexts, modules and libraries at that time: what the driver counts beyond the process's claim.
  // UINT64_MAX if unknown, and for a process that was found to hold more than it says.
  uint64_t memory_overhead = UINT64_MAX;
  AuditResult audit = AuditResult::kNone;
};

// A process on a GPU that belongs to no tenant.
struct Stranger {
  int32_t pid = 0;
  std::string program;  // empty: not visible
  uint64_t memory_by_driver = 0;
};

// A tenant's share of one GPU.
struct Share {
  std::string gpu;  // UUID
  std::string tenant;
  std::string parent;  // the tenant whose share it is within; empty: none
  std::string spec;    // in force
  std::map<std::string, std::string> labels;
  bool suspended = false, draining = false;
  uint64_t memory_limit = UINT64_MAX;  // UINT64_MAX: none
  // Of a parent with what its children hold.
  uint64_t memory_used = 0, memory_granted = 0, memory_peak = 0;
  uint64_t memory_reclaiming = 0;  // the part of memory_granted that ended processes hold
  uint64_t allocations_denied = 0;
  std::string priority = "normal";  // in force, whether set by the tenant, a key or a policy
  double guarantee = 0, weight = 1, cap = 1;  // shares of the GPU
  Nanos time_used{0};                         // device time since the broker started
  Nanos throttled{0};                         // host time that launches waited
  uint64_t launches = 0, waits = 0;
  // Only for the metrics: how long its processes waited in line for device time, and how often they were stopped for a
  // higher priority.
  WaitHistogram in_line;
  uint64_t preempted = 0;
  std::vector<ProcessShare> processes;

  // The sum over processes, each counted once however many sessions it has; UINT64_MAX: known for none.
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
  uint64_t memory = 0;           // memory that may be promised
  uint64_t memory_promised = 0;  // sum of quotas
  double guaranteed = 0;         // sum of guarantees
  bool draining = false;         // no process may open it
  std::vector<Stranger> strangers = {};
};

struct Snapshot {
  Time at{};
  std::vector<GpuState> gpus;
  std::vector<Share> shares;  // by GPU, then by tenant's name
  uint64_t sessions = 0, sessions_ever = 0, refused = 0;
  uint64_t audits = 0;   // audits so far
  bool audited = false;  // whether the latest audit succeeded; otherwise its figures are unknown
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_SNAPSHOT_H_
