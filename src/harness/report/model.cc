// SPDX-License-Identifier: Apache-2.0
#include "harness/report/model.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "harness/method.h"
#include "harness/questions/question.h"
#include "harness/report/words.h"

namespace gpushare::harness::report {
namespace {

using CaseKey = std::pair<std::string, std::string>;

// The methods for which more than one file has results of the same case.
std::set<std::string> MethodsOfSeveralFiles(std::span<const Given> given) {
  std::map<std::tuple<std::string, std::string, std::string>, size_t> first;
  std::set<std::string> several;
  for (size_t i = 0; i < given.size(); ++i) {
    for (const Result& run : given[i].results.runs) {
      const auto at = first.emplace(std::make_tuple(run.scenario, run.one_case, run.method), i);
      if (at.first->second != i) several.insert(run.method);
    }
  }
  return several;
}

class Builder {
 public:
  explicit Builder(std::span<const Given> given)
      : given_(given), several_(MethodsOfSeveralFiles(given)) {
    report_.given = given;
  }

  Report Build() {
    NameMethods();
    for (size_t i = 0; i < given_.size(); ++i) {
      for (const Result& run : given_[i].results.runs) Take(i, run);
    }
    Finish();
    return std::move(report_);
  }

 private:
  struct Growing {
    std::map<std::string, size_t> row_at;
    std::map<size_t, size_t> part_at;
    std::map<std::pair<size_t, size_t>, std::vector<double>> values;  // by row and method
  };

  std::string Label(size_t file, const std::string& method) const {
    return several_.contains(method) ? absl::StrCat(method, " (", file + 1, ")") : method;
  }

  void NameMethods() {
    const auto add = [this](const std::string& label) {
      if (method_at_.emplace(label, report_.methods.size()).second) {
        report_.methods.push_back(label);
      }
    };
    for (const std::string& known : MethodNames()) {
      for (size_t i = 0; i < given_.size(); ++i) {
        for (const Result& run : given_[i].results.runs) {
          if (run.method == known) add(Label(i, known));
        }
      }
    }
    for (size_t i = 0; i < given_.size(); ++i) {
      for (const Result& run : given_[i].results.runs) add(Label(i, run.method));
    }
  }

  void Take(size_t file, const Result& run) {
    const auto [scenario_at, is_new] = scenario_at_.emplace(run.scenario, report_.scenarios.size());
    if (is_new) report_.scenarios.push_back({.name = run.scenario, .question = ""});
    ScenarioReport& scenario = report_.scenarios[scenario_at->second];
    const auto [case_at, case_is_new] =
        case_at_.emplace(CaseKey(run.scenario, run.one_case), scenario.cases.size());
    if (case_is_new) scenario.cases.push_back({.name = run.one_case});
    CaseReport& one = scenario.cases[case_at->second];

    Growing& growing = growing_[case_at->first];
    const size_t method = method_at_.at(Label(file, run.method));
    const auto part_at = growing.part_at.emplace(method, one.parts.size());
    if (part_at.second) one.parts.push_back({.method = method});
    Part& part = one.parts[part_at.first->second];
    TakeCourse(run, &scenario, &one, &part);
    const std::string& why = run.error.empty() ? run.not_supported : run.error;
    if (!why.empty() && std::count(part.why.begin(), part.why.end(), why) == 0) {
      part.why.push_back(why);
    }
    if (!run.error.empty()) {
      ++part.failed;
    } else if (!run.not_supported.empty()) {
      ++part.not_supported;
    } else {
      ++part.good;
      if (!run.course.question.empty()) part.courses.push_back(&run.course);
    }
    for (const Figure& figure : run.figures) {
      const auto row_at = growing.row_at.emplace(figure.name, one.rows.size());
      if (row_at.second) one.rows.push_back({figure.name, figure.unit, figure.better});
      if (!figure.value.has_value()) continue;  // the row shows that there is no value
      growing.values[{row_at.first->second, method}].push_back(*figure.value);
    }
  }

  static void TakeCourse(const Result& run, ScenarioReport* scenario, CaseReport* one, Part* part) {
    if (run.course.question.empty()) return;
    if (scenario->question.empty()) {
      scenario->question = run.course.question;
      scenario->window = run.course.window;
    }
    if (part->asked == nullptr) part->asked = &run.course;
    one->count = std::max(one->count, run.course.unnamed + run.course.tenants.size());
    for (const TenantCourse& tenant : run.course.tenants) {
      std::vector<std::string>& names = one->tenants;
      if (std::count(names.begin(), names.end(), tenant.name) == 0) names.push_back(tenant.name);
    }
  }

  void Finish() {
    for (ScenarioReport& scenario : report_.scenarios) {
      for (CaseReport& one : scenario.cases) {
        for (const auto& [at, values] : growing_[{scenario.name, one.name}].values) {
          one.rows[at.first].by_method[at.second] = MedianOf(values);
        }
        std::sort(one.parts.begin(), one.parts.end(),
                  [](const Part& a, const Part& b) { return a.method < b.method; });
        for (const Part& part : one.parts) {
          scenario.repetitions =
              std::max(scenario.repetitions, part.good + part.failed + part.not_supported);
        }
      }
    }
  }

  const std::span<const Given> given_;
  const std::set<std::string> several_;
  Report report_;
  std::map<std::string, size_t> method_at_, scenario_at_;
  std::map<CaseKey, size_t> case_at_;
  std::map<CaseKey, Growing> growing_;
};

double FarthestFromAsked(const Course& course) {
  double farthest = -1;
  for (const TenantCourse& tenant : course.tenants) {
    const std::optional<double> asked = AskedOf(course, tenant);
    if (!tenant.low.empty()) farthest = std::max(farthest, 0.0);
    if (!asked.has_value()) continue;
    if (tenant.least.has_value()) farthest = std::max(farthest, *asked - *tenant.least);
    if (tenant.most.has_value()) farthest = std::max(farthest, *tenant.most - *asked);
  }
  return farthest;
}

}  // namespace

std::string TitleOf(const Row& row) {
  if (row.name == "overhead") return "device time that native uses and this leaves unused";
  std::string words = FigureWords(row.name);
  return words.empty() ? row.name : words;
}

std::string StateOf(const Part& part) {
  const size_t runs = part.good + part.failed + part.not_supported;
  std::string state;
  if (part.not_supported > 0) state = "not supported";
  if (part.failed > 0) {
    absl::StrAppend(&state, state.empty() ? "" : ", ", part.failed, " of ", Count(runs, "run"),
                    " failed");
  }
  return state;
}

std::string MissingOf(const Part& part) {
  const std::string state = StateOf(part);
  return state.empty() ? "no figure" : state;
}

Report ReportOf(std::span<const Given> given) { return Builder(given).Build(); }

const Row* FindRow(const CaseReport& one, const std::string& name) {
  for (const Row& row : one.rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

const TenantCourse* FindTenant(const Course& course, const std::string& name) {
  for (const TenantCourse& tenant : course.tenants) {
    if (tenant.name == name) return &tenant;
  }
  return nullptr;
}

std::optional<double> AskedOf(const Course& course, const TenantCourse& tenant) {
  const Question* const question = FindQuestion(course.question);
  const std::optional<double>& asked =
      question == nullptr ? tenant.ask.share : tenant.ask.*question->asked;
  if (!asked.has_value()) return std::nullopt;
  return 100 * *asked;
}

std::optional<double> AskedOf(const Part& part, const std::string& tenant) {
  const TenantCourse* const found =
      part.asked == nullptr ? nullptr : FindTenant(*part.asked, tenant);
  if (found == nullptr) return std::nullopt;
  return AskedOf(*part.asked, *found);
}

const Course* WorstCourse(const Part& part) {
  const Course* worst = nullptr;
  double farthest = -1;
  for (const Course* course : part.courses) {
    const double far = FarthestFromAsked(*course);
    if (far <= farthest) continue;
    worst = course;
    farthest = far;
  }
  return worst;
}

std::optional<Range> WindowsOf(const Part& part, const std::string& tenant) {
  std::optional<Range> range;
  for (const Course* course : part.courses) {
    const TenantCourse* const of = FindTenant(*course, tenant);
    if (of == nullptr) continue;
    for (const std::optional<double>& value : {of->least, of->most}) {
      if (!value.has_value()) continue;
      if (!range.has_value()) range = Range{*value, *value};
      range->low = std::min(range->low, *value);
      range->high = std::max(range->high, *value);
    }
  }
  return range;
}

double GreatestShare(const CaseReport& one) {
  double greatest = 1;
  for (const Part& part : one.parts) {
    for (const Course* course : part.courses) {
      for (const TenantCourse& tenant : course->tenants) {
        greatest = std::max(greatest, AskedOf(*course, tenant).value_or(0));
        for (const double share : tenant.high) greatest = std::max(greatest, share);
      }
    }
    for (const std::string& tenant : one.tenants) {
      greatest = std::max(greatest, AskedOf(part, tenant).value_or(0));
    }
  }
  return std::min(greatest, 100.0);
}

std::string ShareFigure(const std::string& tenant) { return absl::StrCat(tenant, ".share"); }

}  // namespace gpushare::harness::report
