// SPDX-License-Identifier: Apache-2.0
// The question `harvest`: how much best effort gets of the time that a service leaves over, and what that costs the service.
//   busy               % of the time; for the method native that of the same tenants ungated
//   work               % of what the same tenants do ungated (work_done.h)
//   left_over harvest taken   % (left_over.h)
//   TENANT.share       % of the time, for each tenant without requests
//   TENANT.p99         us, for each tenant that serves requests
//   TENANT.served      % of its requests that were served
//   TENANT.p99_ratio   its 99th percentile ÷ that of the tenant alone
#include <vector>

#include "absl/strings/str_cat.h"
#include "harness/questions/left_over.h"
#include "harness/questions/question.h"
#include "harness/questions/requests.h"
#include "harness/questions/work_done.h"

namespace gpushare::harness {
namespace {

std::string CheckHarvest(const Scenario&, const Case& one) {
  if (HasLeftOver(one)) return "";
  return "one tenant has the mode 'requests' and another one has not for the question 'harvest'";
}

void HarvestFigures(const Played& played, std::vector<Figure>* figures) {
  const size_t tenants = played.outcome.tenants.size();
  for (size_t i = 0; i < tenants; ++i) {
    if (!ServesRequests(played.one.tenants[i])) AddShareOfTime(played, i, figures);
  }
  const Span measured = played.windows.measured();
  figures->push_back({"busy", "%", 100 * UsedByAll(played.outcome, measured) / measured.ns(),
                      Figure::Better::kHigher});
  AddWorkDone(played, figures);
  AddLeftOver(played, figures);
  AddTaken(played, figures);
  for (size_t i = 0; i < tenants; ++i) {
    if (!ServesRequests(played.one.tenants[i])) continue;
    AddQuantiles(played, i, {{".p99", 0.99}}, figures);
    AddServed(played, i, figures);
    AddRatioToAlone(played, i, figures);
  }
}

std::string TellHarvest(const report::ScenarioReport& scenario, size_t method) {
  return absl::StrCat(TellLeftOver(scenario, method), TellWorstRatio(scenario, method));
}

std::vector<FigureTitle> HarvestTitles() {
  std::vector<FigureTitle> titles = LeftOverTitles();
  titles.push_back({".p99", "99th percentile of latencies"});
  titles.push_back({".served", "requests served"});
  titles.push_back({".p99_ratio", "99th percentile of latencies ÷ that alone"});
  return titles;
}

}  // namespace

const Question& HarvestQuestion() {
  static const Question question = {
      .name = "harvest",
      .asks =
          "How much of the time that requests leave over do the others get, and how much longer "
          "do requests take for it?",
      .keys = {GraceKey()},
      .check = CheckHarvest,
      .with_alone = true,
      .with_ungated = true,
      .fine = kLeftOverFine,
      .fine_of_others = true,
      .figures = HarvestFigures,
      .titles = HarvestTitles(),
      .told = TellHarvest};
  return question;
}

}  // namespace gpushare::harness
