// SPDX-License-Identifier: Apache-2.0
#include "harness/figures.h"

#include "harness/questions/question.h"
#include "harness/windows.h"

namespace gpushare::harness {

std::vector<Figure> FiguresOf(const Scenario& scenario, const Case& one, const Outcome& outcome,
                              const Outcome& alone, const Outcome& ungated) {
  const Windows windows(scenario, one, outcome);
  std::vector<Figure> figures;
  if (windows.measured().first == windows.measured().last) return figures;
  scenario.question->figures({scenario, one, outcome, alone, ungated, windows}, &figures);
  return figures;
}

std::optional<double> PercentOf(const std::optional<double>& part) {
  if (!part.has_value()) return std::nullopt;
  return 100 * *part;
}

}  // namespace gpushare::harness
