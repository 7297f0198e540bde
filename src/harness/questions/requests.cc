// SPDX-License-Identifier: Apache-2.0
#include "harness/questions/requests.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "harness/latencies.h"
#include "harness/report/sentences.h"
#include "harness/statistics.h"

namespace gpushare::harness {

void AddQuantiles(const Played& played, size_t tenant, const std::vector<NamedQuantile>& quantiles,
                  std::vector<Figure>* figures) {
  const TenantOutcome& outcome = played.outcome.tenants[tenant];
  const Latencies latencies = LatenciesOf(played.scenario, outcome);
  for (const auto& [name, q] : quantiles) {
    figures->push_back(
        {outcome.name + name, "us", Quantile(latencies.us, q), Figure::Better::kLower});
  }
}

void AddServed(const Played& played, size_t tenant, std::vector<Figure>* figures) {
  const TenantOutcome& outcome = played.outcome.tenants[tenant];
  const Latencies latencies = LatenciesOf(played.scenario, outcome);
  std::optional<double> part;
  if (!latencies.us.empty()) {
    part = 100 * static_cast<double>(latencies.served) / static_cast<double>(latencies.us.size());
  }
  figures->push_back({outcome.name + ".served", "%", part, Figure::Better::kHigher});
}

void AddRatioToAlone(const Played& played, size_t tenant, std::vector<Figure>* figures,
                     const NamedQuantile& quantile) {
  const TenantOutcome& outcome = played.outcome.tenants[tenant];
  for (const TenantOutcome& by_itself : played.alone.tenants) {
    if (by_itself.name != outcome.name) continue;
    const std::optional<double> alone =
        Quantile(LatenciesOf(played.scenario, by_itself).us, quantile.second);
    const std::optional<double> here =
        Quantile(LatenciesOf(played.scenario, outcome).us, quantile.second);
    std::optional<double> ratio;
    if (alone.value_or(0) > 0 && here.has_value()) ratio = *here / *alone;
    figures->push_back({outcome.name + quantile.first, "x", ratio, Figure::Better::kLower});
  }
}

void AddShareOfTime(const Played& played, size_t i, std::vector<Figure>* figures) {
  const TenantOutcome& tenant = played.outcome.tenants[i];
  const Span measured = played.windows.measured();
  figures->push_back({tenant.name + ".share", "%", 100 * Used(tenant, measured) / measured.ns(),
                      Figure::Better::kHigher});
}

std::string TellWorstRatio(const report::ScenarioReport& scenario, size_t method) {
  const report::Worst worst = report::WorstOf(scenario, method, ".p99_ratio");
  if (worst.row == nullptr) return "";
  const std::string tenant = worst.row->name.substr(0, worst.row->name.rfind('.'));
  return absl::StrCat("The 99th percentile of ", tenant, "'s requests was ",
                      report::Interval(worst.median), " times what it is alone",
                      report::InCase(scenario, worst), ". ");
}

}  // namespace gpushare::harness
