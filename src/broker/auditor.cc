// SPDX-License-Identifier: Apache-2.0
#include "broker/auditor.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gpushare::broker {
namespace {

constexpr Nanos kSettingsEvery = Seconds(1);  // how often to look for a changed configuration

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string ProgramOf(int32_t pid) { return FirstLine(absl::StrCat("/proc/", pid, "/comm")); }

}  // namespace

bool IsStopped(const std::string& process) {
  bool any = false;
  std::error_code none;
  for (std::filesystem::directory_iterator at(process + "/task", none), end; !none && at != end;
       at.increment(none)) {
    const std::string stat = FirstLine((at->path() / "stat").string());
    const size_t name = stat.rfind(") ");  // the name itself may contain parentheses
    const char state = name == std::string::npos || name + 2 >= stat.size() ? '?' : stat[name + 2];
    if (state == 'Z' || state == 'X') continue;  // the thread has ended
    if (state != 'T' && state != 't') return false;
    any = true;
  }
  return any && !none;
}

Auditor::Auditor(Service& service, CountProcesses count, base::Clock& clock, SampleProcesses sample)
    : service_(service), count_(std::move(count)), clock_(clock), sample_(std::move(sample)) {
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
    const bool audits = settings.interval > Nanos(0);
    if (!audits) {
      service_.ForgetAudit();
      time_.Forget();
    }
    const Time sample_at = audits ? SampleTime() : kNever;
    const Time due = audits ? After(latest, settings.interval) : kNever;
    const Time now = clock_.Now();
    if (now < due) {
      if (!Wait(std::min({due, sample_at, After(now, kSettingsEvery)}))) return;
      continue;
    }
    latest = now;
    const bool done = Once(settings.allowance);
    if (ended_.load(std::memory_order_acquire) != 0) return;
    fails_ = !done;
  }
}

Time Auditor::SampleTime() {
  if (sample_ == nullptr) return kNever;
  const Service::AuditSubjects subjects = service_.TakeAuditSubjects();
  if (subjects.claims.empty()) {
    time_.Forget();
    return kNever;
  }
  const absl::StatusOr<Ran> ran = sample_(time_.Since(subjects.gpus));
  if (!ran.ok()) {
    time_.Forget();
    return kNever;  // the count of memory reports that NVML does not answer
  }
  // The claims are taken after the samples, so that they include everything that the samples saw.
  time_.Add(service_.TakeAuditSubjects().claims, *ran, clock_.Now());
  return After(clock_.Now(), kBetweenSamples);
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
      service_.ForgetAudit();
      time_.Forget();
      return false;
    }
    audit.Add(before.claims, *counts, service_.TakeAuditSubjects().claims);
  }
  if (ended_.load(std::memory_order_acquire) != 0) return false;
  Findings found = audit.Result();
  for (auto& [process, finding] : found) {
    if (finding.what == AuditResult::kStranger) finding.program = ProgramOf(process.pid);
    if (finding.what == AuditResult::kUnderstates &&
        IsStopped(absl::StrCat("/proc/", process.pid))) {
      finding.what = AuditResult::kNone;
    }
  }
  for (const auto& [process, of_time] : time_.Judge(clock_.Now())) {
    const auto at = found.find(process);
    if (at == found.end()) {
      found[process] = of_time;
    } else if (at->second.what == AuditResult::kNone) {
      at->second.what = of_time.what;
      at->second.ran_ns = of_time.ran_ns;
      at->second.says_ran_ns = of_time.says_ran_ns;
    }
  }
  service_.TakeAudit(std::move(found));
  return true;
}

}  // namespace gpushare::broker
