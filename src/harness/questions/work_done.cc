// SPDX-License-Identifier: Apache-2.0
#include "harness/questions/work_done.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "harness/report/sentences.h"

namespace gpushare::harness {
namespace {

// nullopt if some tenant's work is not known up to the end of the span.
std::optional<double> WorkOfAll(const Outcome& outcome, Span span) {
  std::optional<double> sum;
  for (const TenantOutcome& tenant : outcome.tenants) {
    if (tenant.work_ns.size() <= span.last) return std::nullopt;
    sum = sum.value_or(0) +
          static_cast<double>(tenant.work_ns[span.last] - tenant.work_ns[span.first]);
  }
  return sum;
}

}  // namespace

void AddWorkDone(const Played& played, std::vector<Figure>* figures) {
  const std::optional<double> done = WorkOfAll(played.outcome, played.windows.measured());
  const std::optional<double> ungated = WorkOfAll(played.ungated, played.windows.measured());
  std::optional<double> percent;
  if (done.has_value() && ungated.value_or(0) > 0) percent = 100 * *done / *ungated;
  figures->push_back({"work", "%", percent, Figure::Better::kHigher});
}

FigureTitle WorkDoneTitle() { return {"work", "work done, of what the same tenants do ungated"}; }

std::string TellWorkDone(const report::ScenarioReport& scenario, size_t method) {
  const report::Worst least = report::LeastOf(scenario, method, "work");
  // The method native is compared with itself.
  if (least.row == nullptr || (least.median.low == 100 && least.median.high == 100)) return "";
  return absl::StrCat("Together the tenants did ", report::Interval(least.median),
                      " % of the work that they do ungated", report::InCase(scenario, least), ". ");
}

}  // namespace gpushare::harness
