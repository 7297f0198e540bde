// SPDX-License-Identifier: Apache-2.0
// The question `faults`: what a tenant's fault does to the other tenants.
//   TENANT.before    % of the time from the warm-up's end to the fault
//   TENANT.after     % of the time since
//   TENANT.recovery  ms from the fault until the tenant has its own share in every later window; else until the end. Its own
//                    share is what it had before, or what it asked for if that is less
//   TENANT.denied    memory requests since the fault that fitted into its quota and were refused
//   failed           number of other tenants that ended with an error
//   lost             number of other tenants that did not have their own again until the end
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "harness/questions/question.h"
#include "harness/report/sentences.h"

namespace gpushare::harness {
namespace {

// A tenant has its own share if it gets this part of it; the rest allows for differences between windows.
constexpr double kEnough = 0.8;

bool Breaks(const Tenant& tenant) { return tenant.fault.kind != Fault::Kind::kNone; }

std::string CheckFaults(const Scenario& scenario, const Case& one) {
  const auto breaking = std::count_if(one.tenants.begin(), one.tenants.end(), Breaks);
  if (breaking != 1 || one.tenants.size() < 2) {
    return "one tenant has 'fault' for the question 'faults', and there are others";
  }
  for (const Tenant& tenant : one.tenants) {
    if (tenant.work.empty()) return "each tenant needs 'work' for the question 'faults'";
    if (!tenant.allocations.empty() && !tenant.ask.memory.has_value()) {
      return "who has 'allocate' needs 'memory'";
    }
    if (!Breaks(tenant)) continue;
    if (ServesRequests(tenant)) {
      return "who has 'fault' needs the mode 'backlog' or 'sync'";
    }
    if (tenant.fault.at < scenario.warm_up + scenario.window ||
        tenant.fault.at + scenario.window > scenario.length) {
      return "a window is wanted between the warm-up and the fault, and one after it";
    }
  }
  return "";
}

struct Recovery {
  double ms = 0;
  bool lost = false;  // it never came; `ms` is until the end
};

// The fault came in the sample before `fault`.
Recovery RecoveryOf(const Played& played, const TenantOutcome& tenant, size_t fault, double own) {
  const Span measured = played.windows.measured();
  // The fault comes a little after it is due, so a run that ends one window later has less than a window left: use that.
  const auto length =
      std::min(static_cast<size_t>(played.scenario.window / kSample), measured.last - fault);
  size_t recovered = fault;
  for (size_t first = fault; length > 0 && first + length <= measured.last; ++first) {
    const Span window = {first, first + length};
    if (Used(tenant, window) / window.ns() < kEnough * own) recovered = first + 1;
  }
  const bool lost = recovered > fault && recovered + length > measured.last;
  if (lost) recovered = measured.last;
  return {static_cast<double>((recovered - fault) * kSample.count()) / 1e6, lost};
}

// Returns whether the tenant lost its own.
bool FiguresOfOther(const Played& played, size_t i, Nanos broke_at, std::vector<Figure>* figures) {
  const TenantOutcome& tenant = played.outcome.tenants[i];
  const Span measured = played.windows.measured();
  const auto fault = std::clamp(static_cast<size_t>((broke_at + kSample - Nanos(1)) / kSample),
                                measured.first, measured.last);
  const Span until = {measured.first, fault == measured.first ? fault : fault - 1};
  const Span since = {fault, measured.last};
  const auto part = [&](Span span) {
    return span.first == span.last ? 0 : Used(tenant, span) / span.ns();
  };
  const double before = part(until);
  figures->push_back({tenant.name + ".before", "%", 100 * before});
  figures->push_back({tenant.name + ".after", "%", 100 * part(since), Figure::Better::kHigher});
  const double own = std::min(before, played.one.tenants[i].ask.share.value_or(1));
  const Recovery recovery = RecoveryOf(played, tenant, fault, own);
  figures->push_back({tenant.name + ".recovery", "ms", recovery.ms, Figure::Better::kLower});
  if (played.one.tenants[i].allocations.empty()) return recovery.lost;
  const auto denied =
      std::count_if(tenant.memory.begin(), tenant.memory.end(), [&](const MemoryRequest& request) {
        return request.at >= broke_at && !request.granted &&
               FitsInto(played.one.tenants[i].ask.memory.value_or(0), request);
      });
  figures->push_back(
      {tenant.name + ".denied", "", static_cast<double>(denied), Figure::Better::kLower});
  return recovery.lost;
}

void FaultFigures(const Played& played, std::vector<Figure>* figures) {
  std::optional<Nanos> broke_at;
  for (const TenantOutcome& tenant : played.outcome.tenants) {
    if (tenant.broke_at.has_value()) broke_at = tenant.broke_at;
  }
  size_t failed = 0, lost = 0;
  for (size_t i = 0; i < played.outcome.tenants.size(); ++i) {
    if (Breaks(played.one.tenants[i])) continue;
    failed += played.outcome.tenants[i].error.empty() ? 0u : 1u;
    if (broke_at.has_value()) lost += FiguresOfOther(played, i, *broke_at, figures) ? 1u : 0u;
  }
  // If the fault never came, the run tells nothing about the others.
  const auto number = [&](size_t of) {
    return broke_at.has_value() ? std::optional<double>(static_cast<double>(of)) : std::nullopt;
  };
  figures->push_back({"failed", "", number(failed), Figure::Better::kLower});
  figures->push_back({"lost", "", number(lost), Figure::Better::kLower});
}

std::string TellFaults(const report::ScenarioReport& scenario, size_t method) {
  const report::Worst failed = report::WorstOf(scenario, method, "failed");
  const report::Worst lost = report::WorstOf(scenario, method, "lost");
  const report::Worst slowest = report::WorstOf(scenario, method, ".recovery");
  const report::Worst denied = report::WorstOf(scenario, method, ".denied");
  if (failed.row == nullptr || slowest.row == nullptr) return "";
  std::string told = failed.median.value <= 0
                         ? "No other tenant failed"
                         : absl::StrCat(report::Counted(failed.median, "other tenant"), " failed",
                                        report::InCase(scenario, failed));
  const bool is_lost = lost.row != nullptr && lost.median.value > 0;
  const bool is_denied = denied.row != nullptr && denied.median.value > 0;
  if (is_lost) {
    absl::StrAppend(&told, "; ", report::Counted(lost.median, "other"),
                    " did not have what is theirs again until the end",
                    report::InCase(scenario, lost));
  } else if (slowest.median.value > 0) {
    absl::StrAppend(&told, "; who waited longest had its own again after ",
                    report::Interval(slowest.median), " ms", report::InCase(scenario, slowest));
  }
  if (is_denied) {
    absl::StrAppend(&told, "; a tenant had ", report::Counted(denied.median, "request"),
                    " of memory within its quota refused", report::InCase(scenario, denied));
  }
  if (!is_lost && !is_denied && slowest.median.value <= 0) told += ", and all kept what is theirs";
  return told + ". ";
}

}  // namespace

const Question& FaultsQuestion() {
  static const Question question = {
      .name = "faults",
      .asks = "What do the others have of a tenant that breaks, in windows of %WINDOW%?",
      .tenant_keys = {"memory", "allocate", "fault", "isolation"},
      .check = CheckFaults,
      .tolerant = true,
      .figures = FaultFigures,
      .titles = {{".before", "share of the time before the fault"},
                 {".after", "share of the time after the fault"},
                 {".recovery", "from the fault until it had its own again"},
                 {".denied", "requests within its quota that were refused since the fault"},
                 {"failed", "others that ended with an error"},
                 {"lost", "others that did not have their own again until the end"}},
      .told = TellFaults};
  return question;
}

}  // namespace gpushare::harness
