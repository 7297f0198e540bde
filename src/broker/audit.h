// SPDX-License-Identifier: Apache-2.0
// What processes say they hold of a GPU, against what the driver says.
//
// A process's pages can say anything, and one that calls the driver past gpushare says nothing of it. The driver counts
// by process as well, so that both are found:
//
//   Audit audit(allowance);
//   audit.Add(before, counted, after);           // once; and again for as long as there are Suspects()
//   const AuditReport& report = log.Take(audit.Findings(), now);
//
// The driver's figure has what gpushare does not charge, above all the process's context: `allowance` is for that. The
// two figures are not of one instant. So a finding has to hold between the most that was said and the least that was
// counted in a number of looks, and again at the next audit: a process that allocates and frees is not one that lies.
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

// By its pages. Of several sessions of one process the sum.
struct Claim {
  uint64_t says = 0, granted = 0;
  // Device time and launches so far (time_audit.h), and whether it has commands that are not done.
  int64_t time_used_ns = 0;
  uint64_t launches = 0;
  bool in_flight = false;
};
using Claims = std::map<OnGpu, Claim>;
// By the driver, bytes; nothing: it lists the process without a figure, and what that holds is not known.
using Counts = std::map<OnGpu, std::optional<uint64_t>>;

struct Finding {
  AuditResult what = AuditResult::kNone;
  uint64_t counted = 0;  // UINT64_MAX: the driver has said no figure
  // What it holds beside that which it says: its contexts, modules and libraries. UINT64_MAX: not known.
  uint64_t overhead = UINT64_MAX;
  Claim claim;
  // Of a finding of time: device time by the driver, at least, and as the process says, over the same stretch.
  int64_t ran_ns = 0, says_ran_ns = 0;
  std::string program;  // of one that is no tenant's, where it can be seen
};
using Findings = std::map<OnGpu, Finding>;

inline bool IsOfTime(AuditResult what) {
  return what == AuditResult::kUnderstatesTime || what == AuditResult::kRunsPastGpushare;
}

// One audit.
class Audit {
 public:
  explicit Audit(uint64_t allowance) : allowance_(allowance) {}

  // `before` and `after` the driver counted.
  void Add(const Claims& before, const Counts& counted, const Claims& after);
  // Processes that have a claim which what was added does not bear out. More looks may clear them.
  bool Suspects() const;
  // Everything that was counted or listed without a figure, with what came of it.
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

// What is known after the latest audit.
struct AuditReport {
  uint64_t audits = 0;
  bool known = false;  // whether the latest one came to anything
  // What is found at one audit, and at the one before nothing, is kNone. Findings of time hold as they come.
  Findings processes;
  std::map<OnGpu, Finding>
      news;  // who of them was not found before, whatever for; kNone: what is over

  // Into the figures that it belongs to.
  void AddTo(Snapshot* snapshot) const;
};

// Audits one after another.
class AuditLog {
 public:
  const AuditReport& Take(Findings found);
  // There is no audit, or it failed: what was found is old.
  void Forget();
  const AuditReport& report() const { return report_; }

 private:
  std::map<OnGpu, AuditResult> before_;  // what the latest audit found
  AuditReport report_;
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_AUDIT_H_
