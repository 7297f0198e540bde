// SPDX-License-Identifier: Apache-2.0
// The service's side of the audit.
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "broker/service.h"
#include "broker/service_connection.h"

namespace gpushare::broker {
namespace {

const char* NameOf(AuditResult what) {
  switch (what) {
    case AuditResult::kUnderstates:
      return "holds more than it says";
    case AuditResult::kOverGrant:
      return "holds more than it was granted";
    case AuditResult::kUnderstatesTime:
      return "runs longer than it says";
    case AuditResult::kRunsPastGpushare:
      return "runs past gpushare";
    case AuditResult::kStranger:
    case AuditResult::kNone:
      break;
  }
  return "";
}

}  // namespace

Service::AuditSettings Service::audit_settings() {
  base::MutexLock lock(&mutex_);
  const Config& config = registry_.config();
  return {config.audit_interval, config.audit_allowance};
}

Service::AuditSubjects Service::TakeAuditSubjects() {
  base::MutexLock lock(&mutex_);
  return {registry_.gpus(), registry_.TakeClaims()};
}

void Service::ForgetAudit() {
  base::MutexLock lock(&mutex_);
  audit_.Forget();
}

void Service::EndThoseWithNothing(const Findings& found) {
  // The first audit may have counted before the process was seen to run another program.
  constexpr int kEnough = 2;
  std::set<int32_t> holders;
  for (const auto& [process, finding] : found) holders.insert(process.pid);
  for (const auto& [id, connection] : connections_) {
    if (connection->session == nullptr || connection->process_ended) continue;
    const bool holds = holders.count(connection->peer.pid) > 0;
    names_ |= holds;
    if (!connection->ended) {
      // For a process that the driver has never named, it means nothing that the driver does not name it now.
      connection->counted = connection->counted || holds;
    } else if (connection->another && connection->counted) {
      connection->counted_nothing = holds ? 0 : connection->counted_nothing + 1;
      connection->process_ended = connection->reclaimed = connection->counted_nothing >= kEnough;
    }
  }
}

void Service::TakeAudit(Findings found) {
  base::MutexLock lock(&mutex_);
  EndThoseWithNothing(found);
  std::map<int32_t, const Registry::Session*> sessions;
  for (const Registry::Session& session : registry_.sessions()) {
    if (!session.ended) sessions[session.who.pid] = &session;
  }
  for (const auto& [process, finding] : audit_.Take(std::move(found)).news) {
    std::vector<std::pair<std::string, std::string>> fields = {{"pid", absl::StrCat(process.pid)},
                                                               {"gpu", process.gpu}};
    const auto at = sessions.find(process.pid);
    const bool known = at != sessions.end();
    if (known) {
      fields.emplace_back("session", absl::StrCat(at->second->id));
      fields.emplace_back("tenant", at->second->tenant->name);
    }
    const std::string& program = known ? at->second->program : finding.program;
    if (!program.empty()) fields.emplace_back("program", program);
    const bool over = finding.what == AuditResult::kNone;
    if (IsOfTime(finding.what)) {
      fields.emplace_back("ran_ns", absl::StrCat(finding.ran_ns));
      fields.emplace_back("says_ran_ns", absl::StrCat(finding.says_ran_ns));
      fields.emplace_back("why", NameOf(finding.what));
    } else if (!over) {
      fields.emplace_back("by_driver", absl::StrCat(finding.counted));
    }
    if (!over && !IsOfTime(finding.what) && finding.what != AuditResult::kStranger) {
      fields.emplace_back("says", absl::StrCat(finding.claim.says));
      fields.emplace_back("granted", absl::StrCat(finding.claim.granted));
      fields.emplace_back("why", NameOf(finding.what));
    }
    Say(over                                     ? "audit_cleared"
        : finding.what == AuditResult::kStranger ? "stranger"
                                                 : "audit_finding",
        fields);
  }
}

}  // namespace gpushare::broker
