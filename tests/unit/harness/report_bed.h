// SPDX-License-Identifier: Apache-2.0
// Sample results for tests of reports.
#ifndef GPUSHARE_TESTS_UNIT_HARNESS_REPORT_BED_H_
#define GPUSHARE_TESTS_UNIT_HARNESS_REPORT_BED_H_

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "harness/report/model.h"

namespace gpushare::harness::report {

inline Given GivenRuns(std::vector<Result> runs, std::string file = "r.jsonl") {
  Given given;
  given.file = std::move(file);
  given.results.circumstances = {"0.1.0",  "H200", "a processor", "2026-01-01T00:00:00Z", "580.1",
                                 "abcdef", 7};
  given.results.runs = std::move(runs);
  return given;
}

// A run of the question `share`: two tenants ask for 75 % and 25 %. The first had `got`, and `worst` in one window.
inline Result ShareRun(const std::string& method, int repetition, double got, double worst) {
  Result run = {.scenario = "share", .one_case = "two", .method = method, .repetition = repetition};
  run.course = {.question = "share",
                .of_used = true,
                .window = Millis(100),
                .begins = Seconds(1),
                .step = Millis(10)};
  run.course.tenants = {{.name = "a",
                         .ask = {.share = 0.75},
                         .low = {got, worst},
                         .high = {got, worst},
                         .least = std::min(got, worst),
                         .most = std::max(got, worst)},
                        {.name = "b",
                         .ask = {.share = 0.25},
                         .low = {100 - got, 100 - worst},
                         .high = {100 - got, 100 - worst},
                         .least = 100 - std::max(got, worst),
                         .most = 100 - std::min(got, worst)}};
  run.figures = {{"a.share", "%", got, Figure::Better::kNeither},
                 {"b.share", "%", 100 - got, Figure::Better::kNeither},
                 {"worst_error", "pp", 75 - worst, Figure::Better::kLower},
                 {"busy", "%", 90, Figure::Better::kHigher}};
  return run;
}

// The same run without figures.
inline Result WithoutFigures(Result run) {
  run.figures.clear();
  for (TenantCourse& tenant : run.course.tenants) {
    tenant = {.name = tenant.name, .ask = tenant.ask};
  }
  return run;
}

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_TESTS_UNIT_HARNESS_REPORT_BED_H_
