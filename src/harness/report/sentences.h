// SPDX-License-Identifier: Apache-2.0
// Building blocks of the sentences about a scenario (headline.h), for all questions.
#ifndef GPUSHARE_HARNESS_REPORT_SENTENCES_H_
#define GPUSHARE_HARNESS_REPORT_SENTENCES_H_

#include <cstddef>
#include <string>

#include "harness/report/model.h"
#include "harness/report/words.h"

namespace gpushare::harness::report {

// The case in which a figure has its worst median. `row` is null if no case has the figure.
struct Worst {
  const CaseReport* one = nullptr;
  const Row* row = nullptr;
  Median median = {};
};
// The greatest median. `figure` is its name, or for a figure of tenants the end of its name: ".p99".
Worst WorstOf(const ScenarioReport& scenario, size_t method, const std::string& figure);
// The least median, for figures that are better when higher.
Worst LeastOf(const ScenarioReport& scenario, size_t method, const std::string& figure);
// " (worst in CASE)"; empty for a scenario with one case.
std::string InCase(const ScenarioReport& scenario, const Worst& worst);

// "short asked for 75 % and got 74.9 %, in the worst window 73.8 %", for the tenant whose worst window was farthest from what it
// asked for.
std::string FarthestTenant(const CaseReport& one, size_t method);

const Part* PartOf(const CaseReport& one, size_t method);

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_SENTENCES_H_
