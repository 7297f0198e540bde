// SPDX-License-Identifier: Apache-2.0
// Compares what processes say they hold of a GPU with what the driver says.
//
// A process can write anything to its pages, and memory that it takes past gpushare is not in them at all. The driver
// also counts memory by process, so the audit finds both:
//
//   Audit audit(allowance);
//   audit.Add(before, counted, after);           // once; and again for as long as there are Suspects()
//   const AuditReport& report = log.Take(audit.Findings(), now);
//
// The driver's figure includes what gpushare does not charge, above all the process's context; `allowance` covers that.
// The two figures are not taken at the same instant. So a finding compares the largest claim with the smallest count of
// several looks, and has to hold again at the next audit: a process that allocates and frees does not lie.
//
// Pure: figures and time are arguments.
#ifndef GPUSHARE_BROKER_AUDIT_H_
#define GPUSHARE_BROKER_AUDIT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/time.h"
#include "broker/snapshot.h"

namespace gpushare::broker {

// A process on a GPU.
struct OnGpu {
  std::string gpu;  // UUID
  int32_t pid = 0;
  bool operator<(const OnGpu& other) const {
    return std::tie(gpu, pid) < std::tie(other.gpu, other.pid);
  }
};

// What a process says on its pages, summed over its sessions.
struct Claim {
  uint64_t says = 0, granted = 0;
  // Device time and launches so far (time_audit.h), and whether the process has unfinished commands.
  int64_t time_used_ns = 0;
  uint64_t launches = 0;
  bool in_flight = false;
};
using Claims = std::map<OnGpu, Claim>;
// Bytes by the driver's count. nullopt: the driver lists the process without a figure, so what it holds is unknown.
using Counts = std::map<OnGpu, std::optional<uint64_t>>;

struct Finding {
  AuditResult what = AuditResult::kNone;
  uint64_t counted = 0;  // UINT64_MAX: the driver gave no figure
  // What the process holds beyond its claim: its contexts, modules and libraries. UINT64_MAX: not known.
  uint64_t overhead = UINT64_MAX;
  Claim claim;
  // For a finding of time: the least device time by the driver, and the process's claim, over the same stretch.
  int64_t ran_ns = 0, says_ran_ns = 0;
  std::string program;  // of a process that is no tenant's, if it can be seen
};
using Findings = std::map<OnGpu, Finding>;

inline bool IsOfTime(AuditResult what) {
  return what == AuditResult::kUnderstatesTime || what == AuditResult::kRunsPastGpushare;
}

// One audit.
class Audit {
 public:
  explicit Audit(uint64_t allowance) : allowance_(allowance) {}

  // Adds one look: the claims taken before and after the driver counted.
  void Add(const Claims& before, const Counts& counted, const Claims& after);
  // Whether the looks so far contradict the claim of any process. More looks may clear it.
  bool Suspects() const;
  // A finding for every process that the driver counted or listed without a figure.
  Findings Result() const;

 private:
  struct Seen {
    uint64_t least = UINT64_MAX, latest = UINT64_MAX, overhead = UINT64_MAX;
    int looks = 0;
    Claim most;
    bool claimed = false;
  };
  AuditResult Judge(const Seen& seen) const;

  const uint64_t allowance_;
  int looks_ = 0;
  std::map<OnGpu, Seen> seen_;
};

// The state after the latest audit.
struct AuditReport {
  uint64_t audits = 0;
  bool known = false;  // whether the latest audit succeeded
  // A finding of memory that the audit before did not have is still kNone. Findings of time hold at once.
  Findings processes;
  std::map<OnGpu, Finding>
      news;  // processes that had no finding before; kNone: a finding that is over

  // Adds the findings to the figures of their processes and GPUs.
  void AddTo(Snapshot* snapshot) const;
};

// Follows audits over time.
class AuditLog {
 public:
  const AuditReport& Take(Findings found);
  // Call when the audit is off or has failed: the findings are out of date.
  void Forget();
  const AuditReport& report() const { return report_; }

 private:
  std::map<OnGpu, AuditResult> before_;  // what the latest audit found
  AuditReport report_;
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_AUDIT_H_
