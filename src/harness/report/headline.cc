// SPDX-License-Identifier: Apache-2.0
#include "harness/report/headline.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "harness/report/words.h"
#include "spec/text.h"

namespace gpushare::harness::report {
namespace {

// Where a figure is the worst: of all cases, its greatest median.
struct Worst {
  const CaseReport* one = nullptr;
  const Row* row = nullptr;
  Median median = {};
};

// `ends`: the figure's name, or its end where it is a tenant's.
Worst WorstOf(const ScenarioReport& scenario, size_t method, const std::string& ends) {
  Worst worst;
  for (const CaseReport& one : scenario.cases) {
    for (const Row& row : one.rows) {
      const auto found = row.by_method.find(method);
      if (!absl::EndsWith(row.name, ends) || found == row.by_method.end()) continue;
      if (worst.row != nullptr && found->second.value <= worst.median.value) continue;
      worst = {&one, &row, found->second};
    }
  }
  return worst;
}

const Part* PartOf(const CaseReport& one, size_t method) {
  for (const Part& part : one.parts) {
    if (part.method == method) return &part;
  }
  return nullptr;
}

std::string InCase(const ScenarioReport& scenario, const Worst& worst) {
  return scenario.cases.size() < 2 ? "" : absl::StrCat(" (worst in ", worst.one->name, ")");
}

// "short asked for 75 % and got 74.9 %, in the worst window 73.8 %": of the tenant that a window of this case was
// furthest from what it asked for.
std::string FarthestTenant(const CaseReport& one, size_t method) {
  const Part* const part = PartOf(one, method);
  std::string text;
  double farthest = -1;
  for (const std::string& tenant : one.tenants) {
    if (part == nullptr) break;
    const std::optional<double> asked = AskedOf(*part, tenant);
    const std::optional<Range> windows = WindowsOf(*part, tenant);
    const Row* const got = FindRow(one, ShareFigure(tenant));
    if (!asked.has_value() || !windows.has_value() || got == nullptr) continue;
    const auto median = got->by_method.find(method);
    if (median == got->by_method.end()) continue;
    const double below = *asked - windows->low, above = windows->high - *asked;
    const double far = std::max(below, above);
    if (far <= farthest) continue;
    farthest = far;
    text = absl::StrCat(tenant, " asked for ", Number(*asked), " % and got ",
                        Number(median->second.value), " %, in the worst window ",
                        part->good > 1 ? "of all runs " : "",
                        Number(below > above ? windows->low : windows->high), " %");
  }
  return text;
}

std::string OfShares(const ScenarioReport& scenario, size_t method) {
  const Worst worst = WorstOf(scenario, method, "worst_error");
  if (worst.row == nullptr) return "";
  const std::string tenant = FarthestTenant(*worst.one, method);
  return absl::StrCat("In the worst window a tenant was ", Interval(worst.median),
                      " percentage points off what it asked for", InCase(scenario, worst), ". ",
                      tenant, tenant.empty() ? "" : ". ");
}

std::string OfCaps(const ScenarioReport& scenario, size_t method) {
  const Worst over = WorstOf(scenario, method, "worst_over");
  const Worst under = WorstOf(scenario, method, "worst_under");
  if (over.row == nullptr || under.row == nullptr) return "";
  const std::string above =
      over.median.value <= 0
          ? "No window was above a cap"
          : absl::StrCat("In the worst window a tenant was ", Interval(over.median),
                         " percentage points above its cap", InCase(scenario, over));
  const std::string below =
      under.median.value <= 0
          ? "none below it"
          : absl::StrCat(Interval(under.median), " below it in another", InCase(scenario, under));
  const std::string tenant =
      FarthestTenant(over.median.value >= under.median.value ? *over.one : *under.one, method);
  return absl::StrCat(above, ", ", below, ". ", tenant, tenant.empty() ? "" : ". ");
}

std::string OfLatencies(const ScenarioReport& scenario, size_t method) {
  const Worst worst = WorstOf(scenario, method, ".p99_ratio");
  if (worst.row == nullptr) return "";
  const std::string tenant = worst.row->name.substr(0, worst.row->name.rfind('.'));
  std::string text =
      absl::StrCat("The 99th percentile of ", tenant, "'s requests was ", Interval(worst.median),
                   " times what it is alone", InCase(scenario, worst), ". ");
  std::vector<std::string> beside;
  for (const Row& row : worst.one->rows) {
    const auto found = row.by_method.find(method);
    if (!absl::EndsWith(row.name, ".share") || found == row.by_method.end()) continue;
    beside.push_back(absl::StrCat(row.name.substr(0, row.name.rfind('.')), " had ",
                                  Number(found->second.value), " % of the time"));
    if (beside.size() == 3) break;
  }
  if (!beside.empty()) absl::StrAppend(&text, "Beside it ", absl::StrJoin(beside, ", "), ". ");
  return text;
}

// What is not there, as such.
std::string OfTheRest(const ScenarioReport& scenario, size_t method) {
  size_t failed = 0, runs = 0, not_supported = 0, cases = 0;
  std::set<std::string> why;
  for (const CaseReport& one : scenario.cases) {
    const Part* const part = PartOf(one, method);
    if (part == nullptr) continue;
    ++cases;
    failed += part->failed;
    runs += part->good + part->failed;
    not_supported += part->not_supported > 0 ? 1 : 0;
    why.insert(part->why.begin(), part->why.end());
  }
  std::string text;
  if (not_supported > 0) {
    absl::StrAppend(&text, "Not supported in ", not_supported, " of ", Count(cases, "case"));
  }
  if (failed > 0) {
    absl::StrAppend(&text, text.empty() ? "" : ". ", failed, " of ", Count(runs, "run"), " failed");
  }
  if (!why.empty()) absl::StrAppend(&text, ": ", absl::StrJoin(why, "; "));
  return text.empty() ? "" : absl::StrCat(text, ".");
}

std::string Told(const ScenarioReport& scenario, size_t method) {
  if (scenario.question == "share") return OfShares(scenario, method);
  if (scenario.question == "cap") return OfCaps(scenario, method);
  if (scenario.question == "latency") return OfLatencies(scenario, method);
  return "";
}

}  // namespace

std::string QuestionOf(const ScenarioReport& scenario) {
  const std::string window = spec::FormatDuration(scenario.window);
  if (scenario.question == "share") {
    return absl::StrCat("Does each tenant get the share that it asks for, in every window of ",
                        window, "?");
  }
  if (scenario.question == "cap") {
    return absl::StrCat(
        "Does each tenant stay at its cap, though the device is free, in every "
        "window of ",
        window, "?");
  }
  if (scenario.question == "latency") {
    return "How much longer do requests take beside others' work than alone?";
  }
  return scenario.question;
}

std::vector<Headline> HeadlinesOf(const Report& report, const ScenarioReport& scenario) {
  std::vector<Headline> headlines;
  for (size_t method = 0; method < report.methods.size(); ++method) {
    const auto has_it = [method](const CaseReport& one) { return PartOf(one, method) != nullptr; };
    if (std::none_of(scenario.cases.begin(), scenario.cases.end(), has_it)) continue;
    std::string sentence = absl::StrCat(Told(scenario, method), OfTheRest(scenario, method));
    while (!sentence.empty() && sentence.back() == ' ') sentence.pop_back();
    if (sentence.empty()) sentence = "See the figures below.";
    headlines.push_back({method, std::move(sentence)});
  }
  return headlines;
}

}  // namespace gpushare::harness::report
