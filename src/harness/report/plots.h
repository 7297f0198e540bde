// SPDX-License-Identifier: Apache-2.0
// The plots of a report, each in a source of its own. A missing value is never drawn as 0: it has no line, and its reason is shown.
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

// What each tenant asked for and got, by method, with the range over the windows.
std::vector<Plot> AskedPlots(const Report& report, const CaseReport& one);
// Shares over time: for each method, the run that was farthest from what was asked for.
std::vector<Plot> SharePlots(const Report& report, const CaseReport& one);
// Distributions of latencies: one for each tenant that serves requests.
std::vector<Plot> LatencyPlots(const Report& report, const CaseReport& one);
// Bars by method: one plot for each figure that has a better direction, and one for the part of native's device time that each
// method leaves unused.
std::vector<Plot> BarPlots(const Report& report, const CaseReport& one);
// Figures that have a better direction, over the number of tenants. For those of three or more cases, all with different numbers of
// tenants.
std::vector<Plot> ScalePlots(const Report& report, const ScenarioReport& scenario);

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_PLOTS_H_
