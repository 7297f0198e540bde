// SPDX-License-Identifier: Apache-2.0
#include "broker/auditor.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gpushare::broker {
namespace {

constexpr Nanos kSettingsEvery = Seconds(1);  // a configuration may be read again

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string ProgramOf(int32_t pid) { return FirstLine(absl::StrCat("/proc/", pid, "/comm")); }

// By a signal or a debugger: what it says is as old as that.
bool IsStopped(int32_t pid) {
  const std::string stat = FirstLine(absl::StrCat("/proc/", pid, "/stat"));
  const size_t at = stat.rfind(") ");  // a name may have parentheses of its own
  return at != std::string::npos && at + 2 < stat.size() &&
         (stat[at + 2] == 'T' || stat[at + 2] == 't');
}

}  // namespace

Auditor::Auditor(Service& service, CountProcesses count, base::Clock& clock)
    : service_(service), count_(std::move(count)), clock_(clock) {
  thread_ = clock_.StartService("audit", [this] { Run(); });
}

void Auditor::End() {
  if (thread_ == nullptr) return;
  ended_.store(1, std::memory_order_release);
  clock_.Wake(ended_, 1);
  thread_->Join();
  thread_.reset();
}

bool Auditor::Wait(Time until) {
  while (ended_.load(std::memory_order_acquire) == 0) {
    if (clock_.Now() >= until) return true;
    clock_.Wait(ended_, 0, until, Nanos(0));
  }
  return false;
}

void Auditor::Run() {
  Time latest = clock_.Now();
  for (;;) {
    const Service::AuditSettings settings = service_.audit_settings();
    const Time due = settings.interval > Nanos(0) ? After(latest, settings.interval) : kNever;
    const Time now = clock_.Now();
    if (now < due) {
      if (!Wait(std::min(due, After(now, kSettingsEvery)))) return;
      continue;
    }
    latest = now;
    const bool done = Once(settings.allowance);
    if (ended_.load(std::memory_order_acquire) != 0) return;
    fails_ = !done;
  }
}

bool Auditor::Once(uint64_t allowance) {
  Audit audit(allowance);
  for (int look = 0; look < kLooks; ++look) {
    if (look > 0 && (!audit.Suspects() || !Wait(After(clock_.Now(), kBetweenLooks)))) break;
    const Service::AuditSubjects before = service_.TakeAuditSubjects();
    if (before.gpus.empty()) return true;
    const absl::StatusOr<Counts> counts = count_(before.gpus);
    if (!counts.ok()) {
      if (!fails_) service_.SayAuditFailed(counts.status());
      return false;
    }
    audit.Add(before.claims, *counts, service_.TakeAuditSubjects().claims);
  }
  if (ended_.load(std::memory_order_acquire) != 0) return false;
  Findings found = audit.Result();
  for (auto& [process, finding] : found) {
    if (finding.what == AuditResult::kStranger) finding.program = ProgramOf(process.pid);
    if (finding.what == AuditResult::kUnderstates && IsStopped(process.pid)) {
      finding.what = AuditResult::kNone;
    }
  }
  service_.TakeAudit(std::move(found));
  return true;
}

}  // namespace gpushare::broker
