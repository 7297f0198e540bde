// SPDX-License-Identifier: Apache-2.0
// The plots of a report, each in its own source. What is missing has no line, and its reason in place of it; never a 0.
#ifndef GPUSHARE_HARNESS_REPORT_PLOTS_H_
#define GPUSHARE_HARNESS_REPORT_PLOTS_H_

#include <string>
#include <vector>

#include "harness/report/model.h"

namespace gpushare::harness::report {

struct Plot {
  std::string caption;  // plain text
  std::string svg;
};

// What each tenant asked for and got, by method, with the windows' range.
std::vector<Plot> AskedPlots(const Report& report, const CaseReport& one);
// Shares over time: one for each method, of its run that was furthest from what was asked for.
std::vector<Plot> SharePlots(const Report& report, const CaseReport& one);
// Latencies' distribution: one for each tenant that serves requests.
std::vector<Plot> LatencyPlots(const Report& report, const CaseReport& one);
// Bars by method: one for each figure that has a better direction, and the device time that each method leaves unused
// of what native uses.
std::vector<Plot> BarPlots(const Report& report, const CaseReport& one);
// Figures that have a better direction by the number of tenants, of a scenario of three cases or more, each with another number of them.
std::vector<Plot> ScalePlots(const Report& report, const ScenarioReport& scenario);

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_PLOTS_H_
