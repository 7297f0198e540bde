// SPDX-License-Identifier: Apache-2.0
#include "broker/audit.h"

#include <algorithm>
#include <utility>

namespace gpushare::broker {
namespace {

bool Exceeds(uint64_t counted, uint64_t claimed, uint64_t allowance) {
  return counted > claimed && counted - claimed > allowance;
}

}  // namespace

void Audit::Add(const Claims& before, const Counts& counted, const Claims& after) {
  ++looks_;
  for (const auto& [process, bytes] : counted) {
    if (bytes == uint64_t{0}) continue;
    Seen& seen = seen_[process];
    ++seen.looks;
    if (!bytes.has_value()) continue;
    seen.least = std::min(seen.least, *bytes);
    seen.latest = *bytes;
  }
  // The process's context existed in every look, so the look with the smallest excess is nearest to its size. A look during
  // which the process allocated is left out: it is unknown which allocations the driver had counted.
  for (const auto& [process, bytes] : counted) {
    const auto first = before.find(process), second = after.find(process);
    if (!bytes.has_value() || *bytes == 0 || first == before.end() || second == after.end() ||
        first->second.says != second->second.says) {
      continue;
    }
    Seen& seen = seen_[process];
    seen.overhead = std::min(seen.overhead, *bytes - std::min(*bytes, first->second.says));
  }
  for (const Claims* claims : {&before, &after}) {
    for (const auto& [process, claim] : *claims) {
      const auto at = seen_.find(process);
      if (at == seen_.end()) continue;
      Seen& seen = at->second;
      seen.claimed = true;
      seen.most.says = std::max(seen.most.says, claim.says);
      seen.most.granted = std::max(seen.most.granted, claim.granted);
    }
  }
}

AuditResult Audit::Judge(const Seen& seen) const {
  if (seen.looks < looks_) return AuditResult::kNone;        // not present in all looks
  if (seen.latest == UINT64_MAX) return AuditResult::kNone;  // its memory is not known
  if (!seen.claimed) return AuditResult::kStranger;
  if (Exceeds(seen.least, seen.most.granted, allowance_)) return AuditResult::kOverGrant;
  if (Exceeds(seen.least, seen.most.says, allowance_)) return AuditResult::kUnderstates;
  return AuditResult::kNone;
}

bool Audit::Suspects() const {
  return std::any_of(seen_.begin(), seen_.end(), [this](const auto& entry) {
    return entry.second.claimed && Judge(entry.second) != AuditResult::kNone;
  });
}

Findings Audit::Result() const {
  Findings findings;
  for (const auto& [process, seen] : seen_) {
    const AuditResult what = Judge(seen);
    findings[process] = {
        .what = what,
        .counted = seen.latest,
        .overhead = what == AuditResult::kNone && seen.claimed ? seen.overhead : UINT64_MAX,
        .claim = seen.most,
        .program = {}};
  }
  return findings;
}

const AuditReport& AuditLog::Take(Findings found) {
  const Findings reported = std::exchange(report_.processes, {});
  report_.news.clear();
  report_.known = true;
  ++report_.audits;
  std::map<OnGpu, AuditResult> now;
  for (auto& [process, finding] : found) {
    const auto known = reported.find(process);
    if (finding.counted == UINT64_MAX && known != reported.end() && !IsOfTime(finding.what) &&
        !IsOfTime(known->second.what)) {
      // Without a figure it is also not known whether the earlier finding is over, so that is kept.
      now[process] = before_.at(process);
      if (known->second.what != AuditResult::kNone) finding = known->second;
      continue;
    }
    now[process] = finding.what;
    const auto before = before_.find(process);
    if (!IsOfTime(finding.what) &&
        (before == before_.end() || before->second == AuditResult::kNone)) {
      finding.what = AuditResult::kNone;
    }
    const AuditResult was = known == reported.end() ? AuditResult::kNone : known->second.what;
    const bool holds = finding.what != AuditResult::kNone;
    if (holds != (was != AuditResult::kNone)) report_.news[process] = finding;
  }
  for (const auto& [process, finding] : reported) {
    if (finding.what == AuditResult::kNone || now.count(process) > 0) continue;
    report_.news[process] = {};
  }
  before_ = std::move(now);
  report_.processes = std::move(found);
  return report_;
}

void AuditLog::Forget() {
  before_.clear();
  report_ = {.audits = report_.audits, .known = false, .processes = {}, .news = {}};
}

void AuditReport::AddTo(Snapshot* snapshot) const {
  snapshot->audits = audits;
  snapshot->audited = known;
  for (Share& share : snapshot->shares) {
    for (ProcessShare& process : share.processes) {
      const auto at = processes.find({share.gpu, process.pid});
      if (at == processes.end() || process.gone || process.pid == 0) continue;
      process.memory_by_driver = at->second.counted;
      process.memory_overhead = at->second.overhead;
      if (at->second.what != AuditResult::kStranger) process.audit = at->second.what;
    }
  }
  for (GpuState& gpu : snapshot->gpus) {
    for (auto at = processes.lower_bound({gpu.uuid, INT32_MIN});
         at != processes.end() && at->first.gpu == gpu.uuid; ++at) {
      if (at->second.what != AuditResult::kStranger) continue;
      gpu.strangers.push_back({.pid = at->first.pid,
                               .program = at->second.program,
                               .memory_by_driver = at->second.counted});
    }
  }
}

}  // namespace gpushare::broker
