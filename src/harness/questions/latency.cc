// SPDX-License-Identifier: Apache-2.0
// The question `latency`: requests alone and beside other tenants' work.
//   TENANT.p50 .p95 .p99 .p999   us, for each tenant that serves requests
//   TENANT.served                % of its requests that were served
//   TENANT.p99_ratio             its 99th percentile ÷ that of the tenant alone
//   TENANT.share                 % of the time, for each of the other tenants
//   busy                         % of the time; for the method native that of the same tenants ungated
//   work                         % of what the same tenants do ungated (work_done.h)
//   left_over harvest            %, if there are other tenants (left_over.h)
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "harness/questions/left_over.h"
#include "harness/questions/question.h"
#include "harness/questions/requests.h"
#include "harness/questions/work_done.h"
#include "harness/report/sentences.h"

namespace gpushare::harness {
namespace {

std::string CheckRequests(const Scenario&, const Case& one) {
  if (std::any_of(one.tenants.begin(), one.tenants.end(), ServesRequests)) return "";
  return "one tenant has the mode 'requests' for the question 'latency'";
}

void LatencyFigures(const Played& played, std::vector<Figure>* figures) {
  for (size_t i = 0; i < played.outcome.tenants.size(); ++i) {
    if (!ServesRequests(played.one.tenants[i])) {
      AddShareOfTime(played, i, figures);
      continue;
    }
    AddQuantiles(played, i, {{".p50", 0.5}, {".p95", 0.95}, {".p99", 0.99}, {".p999", 0.999}},
                 figures);
    AddServed(played, i, figures);
    AddRatioToAlone(played, i, figures);
  }
  const Span measured = played.windows.measured();
  figures->push_back({"busy", "%", 100 * UsedByAll(played.outcome, measured) / measured.ns(),
                      Figure::Better::kHigher});
  AddWorkDone(played, figures);
  if (HasLeftOver(played.one)) AddLeftOver(played, figures);
}

std::string TellLatencies(const report::ScenarioReport& scenario, size_t method) {
  const report::Worst worst = report::WorstOf(scenario, method, ".p99_ratio");
  if (worst.row == nullptr) return "";
  std::string text = TellWorstRatio(scenario, method);
  std::vector<std::string> beside;
  for (const report::Row& row : worst.one->rows) {
    const auto found = row.by_method.find(method);
    if (!absl::EndsWith(row.name, ".share") || found == row.by_method.end()) continue;
    beside.push_back(absl::StrCat(row.name.substr(0, row.name.rfind('.')), " had ",
                                  report::Number(found->second.value), " % of the time"));
    if (beside.size() == 3) break;
  }
  if (!beside.empty()) absl::StrAppend(&text, "Beside it ", absl::StrJoin(beside, ", "), ". ");
  return absl::StrCat(text, TellLeftOver(scenario, method));
}

}  // namespace

const Question& LatencyQuestion() {
  static const Question question = {
      .name = "latency",
      .asks = "How much longer do requests take beside others' work than alone?",
      .keys = {GraceKey()},
      .check = CheckRequests,
      .with_alone = true,
      .with_ungated = true,
      .fine = kLeftOverFine,
      .fine_of_others = true,
      .figures = LatencyFigures,
      .titles = {{".p50", "median of latencies"},
                 {".p95", "95th percentile of latencies"},
                 {".p99", "99th percentile of latencies"},
                 {".p999", "99.9th percentile of latencies"},
                 {".served", "requests served"},
                 {".p99_ratio", "99th percentile of latencies ÷ that alone"}},
      .told = TellLatencies};
  return question;
}

}  // namespace gpushare::harness
