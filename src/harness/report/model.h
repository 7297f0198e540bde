// SPDX-License-Identifier: Apache-2.0
// The content of a report in its order: scenarios, their cases, and the results of each method.
//
//   const std::vector<Given> given = {{"today.jsonl", *results}};
//   const Report report = ReportOf(given);      // refers to `given`
//   WriteFile(PageOf(report)); WriteFile(MarkdownOf(report)); WriteFile(CsvOf(report));
#ifndef GPUSHARE_HARNESS_REPORT_MODEL_H_
#define GPUSHARE_HARNESS_REPORT_MODEL_H_

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/course.h"
#include "harness/results.h"
#include "harness/statistics.h"

namespace gpushare::harness::report {

struct Given {
  std::string file;
  Results results;
};

// A figure of a case, by method. A method may lack it: it failed, does not support the case or was not run.
struct Row {
  std::string name, unit;
  Figure::Better better = Figure::Better::kNeither;
  std::map<size_t, Median> by_method = {};  // by index in Report::methods
};

// In words: "a: 99th percentile of latencies" for a.p99.
std::string TitleOf(const Row& row);

// The results of one method in one case.
struct Part {
  size_t method = 0;  // index in Report::methods
  size_t good = 0, failed = 0, not_supported = 0;
  std::vector<std::string> why = {};  // each reason once
  const Course* asked = nullptr;  // the course of its first run; null if results have no courses
  std::vector<const Course*> courses = {};  // of the successful runs
};

// "3 of 3 runs failed", "not supported"; empty if all runs succeeded.
std::string StateOf(const Part& part);
// The text in place of a missing figure: StateOf(), or that there is none.
std::string MissingOf(const Part& part);

struct CaseReport {
  std::string name;
  std::vector<std::string> tenants =
      {};            // empty if results have no courses, or have more tenants than a course lists
  size_t count = 0;  // number of all tenants
  std::vector<Row> rows = {};
  std::vector<Part> parts = {};  // in the methods' order
};

struct ScenarioReport {
  std::string name, question;  // `question` is empty if results have no courses
  Nanos window{0};
  std::vector<CaseReport> cases = {};
  size_t repetitions = 0;  // the most of any method in any case
};

struct Report {
  std::span<const Given> given;
  // gpushare's methods in a fixed order, then others in the order of their first results. If two files have the same case by the same
  // method, they count as two methods, named after the file: "gpushare (2)" is from the second.
  std::vector<std::string> methods;
  std::vector<ScenarioReport> scenarios;
};

Report ReportOf(std::span<const Given> given);

const Row* FindRow(const CaseReport& one, const std::string& name);
const TenantCourse* FindTenant(const Course& course, const std::string& name);
// What a tenant asked for (its share or its cap), as a percentage on the course's scale.
std::optional<double> AskedOf(const Course& course, const TenantCourse& tenant);
std::optional<double> AskedOf(const Part& part, const std::string& tenant);
// The course of the run with the window farthest from what was asked for, or of the first run if nothing was. Null if no run has
// windows.
const Course* WorstCourse(const Part& part);

// A tenant's least and greatest share over the windows of all runs that count for it; nullopt without such windows.
struct Range {
  double low = 0, high = 0;
};
std::optional<Range> WindowsOf(const Part& part, const std::string& tenant);
// The greatest share to draw for a case: asked for, or in any window.
double GreatestShare(const CaseReport& one);
// The name of the figure with the tenant's share over all time after the warm-up.
std::string ShareFigure(const std::string& tenant);

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_MODEL_H_
