// SPDX-License-Identifier: Apache-2.0
#include "harness/report/sentences.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace gpushare::harness::report {

namespace {

// Whether a row has the figure: ".p99" of any tenant, or "launch" itself, which "graph_launch" is not.
bool Has(const Row& row, const std::string& figure) {
  return absl::StartsWith(figure, ".") ? absl::EndsWith(row.name, figure) : row.name == figure;
}

// `sign`: 1 for the greatest, -1 for the least.
Worst ExtremeOf(const ScenarioReport& scenario, size_t method, const std::string& figure,
                double sign) {
  Worst worst;
  for (const CaseReport& one : scenario.cases) {
    for (const Row& row : one.rows) {
      const auto found = row.by_method.find(method);
      if (!Has(row, figure) || found == row.by_method.end()) continue;
      if (worst.row != nullptr && sign * found->second.value <= sign * worst.median.value) continue;
      worst = {&one, &row, found->second};
    }
  }
  return worst;
}

}  // namespace

Worst WorstOf(const ScenarioReport& scenario, size_t method, const std::string& figure) {
  return ExtremeOf(scenario, method, figure, 1);
}

Worst LeastOf(const ScenarioReport& scenario, size_t method, const std::string& figure) {
  return ExtremeOf(scenario, method, figure, -1);
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

}  // namespace gpushare::harness::report
