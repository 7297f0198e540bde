// SPDX-License-Identifier: Apache-2.0
// Figures of tenants that serve requests and of those beside them, for the questions that have such.
#ifndef GPUSHARE_HARNESS_QUESTIONS_REQUESTS_H_
#define GPUSHARE_HARNESS_QUESTIONS_REQUESTS_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "harness/questions/question.h"

namespace gpushare::harness {

// TENANT and the name: us, the quantile of its latencies.
using NamedQuantile = std::pair<const char*, double>;
void AddQuantiles(const Played& played, size_t tenant, const std::vector<NamedQuantile>& quantiles,
                  std::vector<Figure>* figures);
// TENANT.served: % of the requests that came.
void AddServed(const Played& played, size_t tenant, std::vector<Figure>* figures);
// TENANT.p99_ratio: its 99th percentile ÷ that alone; nothing where it was not played alone. Or of another quantile.
void AddRatioToAlone(const Played& played, size_t tenant, std::vector<Figure>* figures,
                     const NamedQuantile& quantile = {".p99_ratio", 0.99});

// TENANT.share: % of the time, of one that does not serve requests.
void AddShareOfTime(const Played& played, size_t tenant, std::vector<Figure>* figures);

// "The 99th percentile of online's requests was 1.1 times what it is alone. ": the worst of all cases; empty without one.
std::string TellWorstRatio(const report::ScenarioReport& scenario, size_t method);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_QUESTIONS_REQUESTS_H_
