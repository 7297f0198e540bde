// SPDX-License-Identifier: Apache-2.0
// What the sentences about a scenario (headline.h) are made of, whatever its question is.
#ifndef GPUSHARE_HARNESS_REPORT_SENTENCES_H_
#define GPUSHARE_HARNESS_REPORT_SENTENCES_H_

#include <cstddef>
#include <string>

#include "harness/report/model.h"
#include "harness/report/words.h"

namespace gpushare::harness::report {

// Where a figure is the worst: of all cases, its greatest median. Without one `row` is null.
struct Worst {
  const CaseReport* one = nullptr;
  const Row* row = nullptr;
  Median median = {};
};
// `ends`: the figure's name, or its end where it is a tenant's.
Worst WorstOf(const ScenarioReport& scenario, size_t method, const std::string& ends);
// The same of a figure that is better where it is higher: its least median.
Worst LeastOf(const ScenarioReport& scenario, size_t method, const std::string& ends);
// " (worst in CASE)"; of a scenario with one case nothing.
std::string InCase(const ScenarioReport& scenario, const Worst& worst);

// "short asked for 75 % and got 74.9 %, in the worst window 73.8 %": of the tenant that a window of this case was
// furthest from what it asked for.
std::string FarthestTenant(const CaseReport& one, size_t method);

const Part* PartOf(const CaseReport& one, size_t method);

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_SENTENCES_H_
