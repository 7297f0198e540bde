// SPDX-License-Identifier: Apache-2.0
// The question `cap`: tenants with a cap, against what they got.
//   TENANT.share  % of the time
//   worst_over    pp; the most that a tenant got above its cap in any window
//   worst_under   pp; the most that a tenant got below its cap in a window in which only the cap held it
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "harness/questions/question.h"
#include "harness/report/sentences.h"

namespace gpushare::harness {
namespace {

std::string CheckCaps(const Scenario&, const Case& one) {
  for (const Tenant& tenant : one.tenants) {
    if (!tenant.ask.cap.has_value()) return "each tenant needs 'cap' for the question 'cap'";
  }
  return "";
}

void CapFigures(const Played& played, std::vector<Figure>* figures) {
  const Case& one = played.one;
  const Outcome& outcome = played.outcome;
  const Windows& windows = played.windows;
  const Span measured = windows.measured();
  std::optional<double> over, under;
  for (size_t i = 0; i < outcome.tenants.size(); ++i) {
    const TenantOutcome& tenant = outcome.tenants[i];
    figures->push_back({tenant.name + ".share", "%", 100 * Used(tenant, measured) / measured.ns()});
    const double cap = one.tenants[i].ask.cap.value_or(1);
    windows.Each([&](Span window) {
      const double had = Used(tenant, window) / window.ns();
      over = std::max(over.value_or(0), had - cap);
      if (windows.HadWork(i, window)) under = std::max(under.value_or(0), cap - had);
    });
  }
  figures->push_back({"worst_over", "pp", PercentOf(over), Figure::Better::kLower});
  figures->push_back({"worst_under", "pp", PercentOf(under), Figure::Better::kLower});
}

// Whether a figure of percentage points is 0 as it would be written.
bool IsNone(const report::Worst& worst) { return worst.median.value < 0.005; }

std::string TellCaps(const report::ScenarioReport& scenario, size_t method) {
  const report::Worst over = report::WorstOf(scenario, method, "worst_over");
  const report::Worst under = report::WorstOf(scenario, method, "worst_under");
  if (over.row == nullptr || under.row == nullptr) return "";
  const std::string above =
      IsNone(over)
          ? "No window was above a cap"
          : absl::StrCat("In the worst window a tenant was ", report::Interval(over.median),
                         " percentage points above its cap", report::InCase(scenario, over));
  const std::string below =
      IsNone(under) ? "none below it"
                    : absl::StrCat(report::Interval(under.median), " below it in another",
                                   report::InCase(scenario, under));
  const std::string tenant = report::FarthestTenant(
      over.median.value >= under.median.value ? *over.one : *under.one, method);
  return absl::StrCat(above, ", ", below, ". ", tenant, tenant.empty() ? "" : ". ");
}

}  // namespace

const Question& CapQuestion() {
  static const Question question = {
      .name = "cap",
      .asks =
          "Does each tenant stay at its cap, though the device is free, in every window of "
          "%WINDOW%?",
      .check = CheckCaps,
      .asked = &Ask::cap,
      .figures = CapFigures,
      .titles = {{"worst_over", "worst window: above a cap"},
                 {"worst_under", "worst window: below a cap"}},
      .told = TellCaps};
  return question;
}

}  // namespace gpushare::harness
