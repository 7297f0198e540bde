// SPDX-License-Identifier: Apache-2.0
// Of requests, alone and beside others' work:
//   TENANT.p50 .p95 .p99 .p999   us, of each tenant that serves requests
//   TENANT.served                % of the requests that came
//   TENANT.p99_ratio             the same ÷ that alone
//   TENANT.share                 % of the time, of the others
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "harness/latencies.h"
#include "harness/questions/question.h"
#include "harness/report/sentences.h"
#include "harness/statistics.h"

namespace gpushare::harness {
namespace {

std::string CheckRequests(const Scenario&, const Case& one) {
  for (const Tenant& tenant : one.tenants) {
    if (tenant.mode == player::PlayMode::kOpenLoop) return "";
  }
  return "one tenant has the mode 'requests' for the question 'latency'";
}

void LatencyFigures(const Played& played, std::vector<Figure>* figures) {
  const Scenario& scenario = played.scenario;
  const Case& one = played.one;
  const Outcome& outcome = played.outcome;
  const Outcome& alone = played.alone;
  const Span measured = played.windows.measured();
  const auto add = [&](std::string name, const char* unit, std::optional<double> value,
                       Figure::Better better) {
    figures->push_back({std::move(name), unit, value, better});
  };
  for (size_t i = 0; i < outcome.tenants.size(); ++i) {
    const TenantOutcome& tenant = outcome.tenants[i];
    if (one.tenants[i].mode != player::PlayMode::kOpenLoop) {
      add(tenant.name + ".share", "%", 100 * Used(tenant, measured) / measured.ns(),
          Figure::Better::kHigher);
      continue;
    }
    const auto [latencies, served] = LatenciesOf(scenario, tenant);
    constexpr std::pair<const char*, double> kQuantiles[] = {
        {".p50", 0.5}, {".p95", 0.95}, {".p99", 0.99}, {".p999", 0.999}};
    for (const auto& [name, q] : kQuantiles) {
      add(tenant.name + name, "us", Quantile(latencies, q), Figure::Better::kLower);
    }
    std::optional<double> part;
    if (!latencies.empty()) {
      part = 100 * static_cast<double>(served) / static_cast<double>(latencies.size());
    }
    add(tenant.name + ".served", "%", part, Figure::Better::kHigher);
    for (const TenantOutcome& by_itself : alone.tenants) {
      if (by_itself.name != tenant.name) continue;
      const std::optional<double> p99 = Quantile(LatenciesOf(scenario, by_itself).us, 0.99);
      std::optional<double> ratio;
      if (p99.value_or(0) > 0 && !latencies.empty()) ratio = *Quantile(latencies, 0.99) / *p99;
      add(tenant.name + ".p99_ratio", "x", ratio, Figure::Better::kLower);
    }
  }
}

std::string TellLatencies(const report::ScenarioReport& scenario, size_t method) {
  const report::Worst worst = report::WorstOf(scenario, method, ".p99_ratio");
  if (worst.row == nullptr) return "";
  const std::string tenant = worst.row->name.substr(0, worst.row->name.rfind('.'));
  std::string text = absl::StrCat("The 99th percentile of ", tenant, "'s requests was ",
                                  report::Interval(worst.median), " times what it is alone",
                                  report::InCase(scenario, worst), ". ");
  std::vector<std::string> beside;
  for (const report::Row& row : worst.one->rows) {
    const auto found = row.by_method.find(method);
    if (!absl::EndsWith(row.name, ".share") || found == row.by_method.end()) continue;
    beside.push_back(absl::StrCat(row.name.substr(0, row.name.rfind('.')), " had ",
                                  report::Number(found->second.value), " % of the time"));
    if (beside.size() == 3) break;
  }
  if (!beside.empty()) absl::StrAppend(&text, "Beside it ", absl::StrJoin(beside, ", "), ". ");
  return text;
}

}  // namespace

const Question& LatencyQuestion() {
  static const Question question = {
      .name = "latency",
      .asks = "How much longer do requests take beside others' work than alone?",
      .check = CheckRequests,
      .with_alone = true,
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
