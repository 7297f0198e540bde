// SPDX-License-Identifier: Apache-2.0
// What a report tells, in the order in which it tells it: scenarios, their cases, and what each method did there.
//
//   const std::vector<Given> given = {{"today.jsonl", *results}};
//   const Report report = ReportOf(given);      // looks into `given` as long as it lives
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

// A figure in a case, by method. A method without it has none: it failed, has no word for the case or was not run.
struct Row {
  std::string name, unit;
  Figure::Better better = Figure::Better::kNeither;
  std::map<size_t, Median> by_method = {};  // places in Report::methods
};

// In words: "a: 99th percentile of latencies" for a.p99.
std::string TitleOf(const Row& row);

// What one method did in one case.
struct Part {
  size_t method = 0;  // place in Report::methods
  size_t good = 0, failed = 0, not_supported = 0;
  std::vector<std::string> why = {};        // each reason once
  const Course* asked = nullptr;            // of its first run; of results without courses null
  std::vector<const Course*> courses = {};  // of the good runs
};

// "3 of 3 runs failed", "not supported"; empty: all runs are good.
std::string StateOf(const Part& part);
// In place of a figure: the same, or that there is none.
std::string MissingOf(const Part& part);

struct CaseReport {
  std::string name;
  std::vector<std::string> tenants =
      {};            // none of results without courses, nor of more than are told of each by itself
  size_t count = 0;  // of all tenants
  std::vector<Row> rows = {};
  std::vector<Part> parts = {};  // in the methods' order
};

struct ScenarioReport {
  std::string name, question;  // question: empty of results without courses
  Nanos window{0};
  std::vector<CaseReport> cases = {};
  size_t repetitions = 0;  // the most that any method has in any case
};

struct Report {
  std::span<const Given> given;
  // gpushare's in one order always, then others as they are met. Where a method has the same case in two files it is a
  // method of its own in each, and its name says of which: "gpushare (2)" is of the second.
  std::vector<std::string> methods;
  std::vector<ScenarioReport> scenarios;
};

Report ReportOf(std::span<const Given> given);

const Row* FindRow(const CaseReport& one, const std::string& name);
const TenantCourse* FindTenant(const Course& course, const std::string& name);
// What a tenant asked for, as a percentage of what its course counts: its share, or its cap.
std::optional<double> AskedOf(const Course& course, const TenantCourse& tenant);
std::optional<double> AskedOf(const Part& part, const std::string& tenant);
// The run that was furthest in any window that counts from what was asked for; without an ask the first. Null: none has windows.
const Course* WorstCourse(const Part& part);

// The least and the most that a tenant had in any window that counts for it, in any run; nothing without one.
struct Range {
  double low = 0, high = 0;
};
std::optional<Range> WindowsOf(const Part& part, const std::string& tenant);
// The greatest share that is drawn of a case: of what was asked for, and of any window.
double GreatestShare(const CaseReport& one);
// The tenant's share over all the time after the warm-up.
std::string ShareFigure(const std::string& tenant);

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_MODEL_H_
