// SPDX-License-Identifier: Apache-2.0
// Figures of tenants that serve requests and of the tenants beside them, shared by several questions.
#ifndef GPUSHARE_HARNESS_QUESTIONS_REQUESTS_H_
#define GPUSHARE_HARNESS_QUESTIONS_REQUESTS_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "harness/questions/question.h"

namespace gpushare::harness {

// A figure TENANT<name> in us for each quantile of the tenant's latencies.
using NamedQuantile = std::pair<const char*, double>;
void AddQuantiles(const Played& played, size_t tenant, const std::vector<NamedQuantile>& quantiles,
                  std::vector<Figure>* figures);
// TENANT.served: % of its requests that were served.
void AddServed(const Played& played, size_t tenant, std::vector<Figure>* figures);
// TENANT.p99_ratio: the 99th percentile (or another quantile) divided by that of the tenant alone. No figure if it was not played
// alone.
void AddRatioToAlone(const Played& played, size_t tenant, std::vector<Figure>* figures,
                     const NamedQuantile& quantile = {".p99_ratio", 0.99});

// TENANT.share: % of the time. For tenants that do not serve requests.
void AddShareOfTime(const Played& played, size_t tenant, std::vector<Figure>* figures);

// "The 99th percentile of online's requests was 1.1 times what it is alone. ", for the worst case; empty without such figures.
std::string TellWorstRatio(const report::ScenarioReport& scenario, size_t method);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_QUESTIONS_REQUESTS_H_
