// SPDX-License-Identifier: Apache-2.0
// The question `share`: shares asked for against shares got, in every window.
//   TENANT.share  % of the time used by all tenants
//   worst_error   pp; the largest difference from the share asked for, in any window
//   busy          % of the time
//   work          % of what the same tenants do ungated (work_done.h)
#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "harness/questions/question.h"
#include "harness/questions/shares.h"
#include "harness/questions/work_done.h"
#include "harness/report/sentences.h"

namespace gpushare::harness {
namespace {

void ShareFigures(const Played& played, std::vector<Figure>* figures) {
  const Case& one = played.one;
  const Outcome& outcome = played.outcome;
  const Windows& windows = played.windows;
  const Span measured = windows.measured();
  const double all = UsedByAll(outcome, measured);
  std::optional<double> worst;
  for (size_t i = 0; i < outcome.tenants.size(); ++i) {
    const TenantOutcome& tenant = outcome.tenants[i];
    std::optional<double> share;
    if (all > 0) share = 100 * Used(tenant, measured) / all;
    figures->push_back({tenant.name + ".share", "%", share});
    const double asked = one.tenants[i].ask.share.value_or(0);
    windows.Each([&](Span window) {
      const double used = UsedByAll(outcome, window);
      if (used <= 0 || !windows.HadWork(i, window)) return;
      const double over = Used(tenant, window) / used - asked;
      const double error = windows.AllHadWork(window) ? std::fabs(over) : std::max(0.0, -over);
      worst = std::max(worst.value_or(0), error);
    });
  }
  figures->push_back({"worst_error", "pp", PercentOf(worst), Figure::Better::kLower});
  figures->push_back({"busy", "%", 100 * all / measured.ns(), Figure::Better::kHigher});
  AddWorkDone(played, figures);
}

std::string TellShares(const report::ScenarioReport& scenario, size_t method) {
  const report::Worst worst = report::WorstOf(scenario, method, "worst_error");
  if (worst.row == nullptr) return "";
  const std::string tenant = report::FarthestTenant(*worst.one, method);
  return absl::StrCat("In the worst window a tenant was ", report::Interval(worst.median),
                      " percentage points off what it asked for", report::InCase(scenario, worst),
                      ". ", tenant, tenant.empty() ? "" : ". ", TellWorkDone(scenario, method));
}

}  // namespace

const Question& ShareQuestion() {
  static const Question question = {
      .name = "share",
      .asks = "Does each tenant get the share that it asks for, in every window of %WINDOW%?",
      .check = [](const Scenario&, const Case& one) { return CheckShares(one, "share"); },
      .with_ungated = true,
      .of_used = true,
      .figures = ShareFigures,
      .titles = {{".share", "share of the device"},
                 {"worst_error", "worst window: distance from what was asked for"},
                 {"busy", "time in which the device is busy"},
                 WorkDoneTitle()},
      .told = TellShares};
  return question;
}

}  // namespace gpushare::harness
