// SPDX-License-Identifier: Apache-2.0
// The question `overhead`: a tenant that has the device to itself.
//   throughput       % of the device time that it has natively in the same time
//   busy             % of the time
//   CALL.host_ratio  processor time of a call ÷ that of the driver's own call beside it (stage/calls.h)
//   CALL.host_ns     processor time of the call itself, in ns
// CALL is launch, graph_launch or alloc_free (a pair). The last two figures are by the machine's clock.
#include <optional>

#include "absl/strings/str_cat.h"
#include "harness/questions/question.h"
#include "harness/report/sentences.h"

namespace gpushare::harness {
namespace {

std::string CheckOverhead(const Scenario&, const Case& one) {
  if (one.tenants.size() != 1) return "one tenant is wanted for the question 'overhead'";
  if (ServesRequests(one.tenants.front())) {
    return "the mode 'backlog' or 'sync' is wanted for the question 'overhead'";
  }
  return "";
}

void OverheadFigures(const Played& played, std::vector<Figure>* figures) {
  const TenantOutcome& tenant = played.outcome.tenants.front();
  const Span measured = played.windows.measured();
  std::optional<double> throughput;
  if (!played.alone.tenants.empty()) {
    const TenantOutcome& natively = played.alone.tenants.front();
    const bool as_long = natively.used_ns.size() > measured.last;
    if (as_long && Used(natively, measured) > 0) {
      throughput = 100 * Used(tenant, measured) / Used(natively, measured);
    }
  }
  figures->push_back({"throughput", "%", throughput, Figure::Better::kHigher});
  figures->push_back(
      {"busy", "%", 100 * Used(tenant, measured) / measured.ns(), Figure::Better::kHigher});
  for (const CallCost& cost : played.outcome.calls) {
    figures->push_back({cost.call + ".host_ratio", "x", cost.ratio, Figure::Better::kLower, true});
    figures->push_back({cost.call + ".host_ns", "ns", cost.ns, Figure::Better::kNeither, true});
  }
}

std::string TellOverhead(const report::ScenarioReport& scenario, size_t method) {
  const report::Row* least = nullptr;
  Median throughput;
  for (const report::CaseReport& one : scenario.cases) {
    const report::Row* const row = report::FindRow(one, "throughput");
    if (row == nullptr) continue;
    const auto found = row->by_method.find(method);
    if (found == row->by_method.end()) continue;
    if (least != nullptr && found->second.value >= throughput.value) continue;
    least = row;
    throughput = found->second;
  }
  if (least == nullptr) return "";
  std::string text = absl::StrCat("By itself a tenant gets at least ", report::Interval(throughput),
                                  " % of the work done that it does natively. ");
  const report::Worst launch = report::WorstOf(scenario, method, "launch.host_ratio");
  const report::Worst memory = report::WorstOf(scenario, method, "alloc_free.host_ratio");
  if (launch.row != nullptr && memory.row != nullptr) {
    absl::StrAppend(&text, "A launch takes the host ", report::Interval(launch.median),
                    " times as long as the driver's own, an allocation with its free ",
                    report::Interval(memory.median), " times. ");
  }
  return text;
}

}  // namespace

const Question& OverheadQuestion() {
  static const Question question = {
      .name = "overhead",
      .asks = "What does it cost a tenant that has the device for itself?",
      .check = CheckOverhead,
      .each_alone = true,
      .calls = true,
      .figures = OverheadFigures,
      .titles = {{"throughput", "work done, of what it does natively"},
                 {".host_ratio", "host time of a call ÷ that of the driver's own"},
                 {".host_ns", "host time of a call"}},
      .told = TellOverhead};
  return question;
}

}  // namespace gpushare::harness
