// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "harness/report/plots.h"
#include "harness/report/svg.h"
#include "harness/report/words.h"

namespace gpushare::harness::report {
namespace {

struct ScalePoint {
  double tenants;
  Median median;
};
using ScaleLines = std::map<size_t, std::vector<ScalePoint>>;  // by method

// A figure, and the numbers of tenants of the cases that have it.
struct ScaleFigure {
  const Row* row;
  std::set<double> numbers;
  bool twice = false;  // two cases have the same number, so they differ in something else
};

// Of figures with a better direction, in the order in which the cases have them.
std::vector<ScaleFigure> FiguresOf(const ScenarioReport& scenario) {
  std::vector<ScaleFigure> figures;
  std::map<std::string, size_t> places;
  for (const CaseReport& one : scenario.cases) {
    for (const Row& row : one.rows) {
      if (row.better == Figure::Better::kNeither) continue;
      const auto [place, is_new] = places.emplace(row.name, figures.size());
      if (is_new) figures.push_back({&row, {}});
      ScaleFigure& figure = figures[place->second];
      const bool first = figure.numbers.insert(static_cast<double>(one.count)).second;
      figure.twice = figure.twice || !first;
    }
  }
  return figures;
}

ScaleLines LinesOf(const ScenarioReport& scenario, const std::string& figure) {
  ScaleLines lines;
  for (const CaseReport& one : scenario.cases) {
    const Row* const row = FindRow(one, figure);
    if (row == nullptr || one.count == 0) continue;
    for (const auto& [method, median] : row->by_method) {
      lines[method].push_back({static_cast<double>(one.count), median});
    }
  }
  // A curve needs two points.
  std::erase_if(lines, [](const auto& line) { return line.second.size() < 2; });
  for (auto& [method, points] : lines) {
    std::stable_sort(points.begin(), points.end(), [](const ScalePoint& a, const ScalePoint& b) {
      return a.tenants < b.tenants;
    });
  }
  return lines;
}

Plot ScalePlot(const Report& report, const Row& row, const std::vector<double>& numbers,
               const ScaleLines& lines) {
  double least = 0, most = 0;
  for (const auto& [method, points] : lines) {
    for (const ScalePoint& point : points) {
      least = std::min(least, point.median.low);
      most = std::max(most, point.median.high);
    }
  }
  const Field field(lines.size());
  const Axis x = Axis::Doubling(numbers, Field::kLeft, Field::kRight);
  const Axis y = Axis::Linear(least, most, field.bottom(), Field::kTop);
  Svg svg(field.height(), absl::StrCat(TitleOf(row), " by the number of tenants"));
  field.DrawAxes(&svg, x, y, "tenants", UnitName(row.unit));
  std::vector<Field::Name> names;
  for (const auto& [method, points] : lines) {
    std::vector<Point> line;
    for (const ScalePoint& point : points) {
      line.push_back({x.At(point.tenants), y.At(point.median.value)});
      svg.Line(line.back().x, y.At(point.median.low), line.back().x, y.At(point.median.high),
               "whisker");
      svg.Mark(line.back().x, line.back().y, method, ColourOf(method),
               absl::StrCat(report.methods[method], ", ", point.tenants,
                            " tenants: ", Interval(point.median), " ", UnitName(row.unit)));
    }
    svg.Curve(line, StyleOf(method));
    names.push_back({line.back().y, report.methods[method], method});
  }
  field.DrawNames(&svg, std::move(names));
  return {absl::StrCat(TitleOf(row), " by the number of tenants"), std::move(svg).Take()};
}

}  // namespace

std::vector<Plot> ScalePlots(const Report& report, const ScenarioReport& scenario) {
  std::vector<Plot> plots;
  for (const ScaleFigure& figure : FiguresOf(scenario)) {
    if (figure.twice || figure.numbers.size() < 3) continue;
    const ScaleLines lines = LinesOf(scenario, figure.row->name);
    if (lines.empty()) continue;
    plots.push_back(
        ScalePlot(report, *figure.row, {figure.numbers.begin(), figure.numbers.end()}, lines));
  }
  return plots;
}

}  // namespace gpushare::harness::report
