// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "harness/report/plots.h"
#include "harness/report/svg.h"
#include "harness/report/words.h"

namespace gpushare::harness::report {
namespace {

using Anchor = Svg::Anchor;

constexpr double kBarsLeft = 112, kBarsRight = kPlotWidth - 56, kBarsRow = 19;

// `compared_with`: the method that the figure is relative to, which therefore has no bar.
Plot BarPlot(const Report& report, const CaseReport& one, const Row& row,
             std::optional<size_t> compared_with = std::nullopt) {
  double least = 0, most = 0;
  for (const auto& [method, median] : row.by_method) {
    least = std::min(least, median.low);
    most = std::max(most, median.high);
  }
  const double bottom = kBarsRow * static_cast<double>(one.parts.size()) + 4;
  const std::string title = TitleOf(row);
  Svg svg(bottom + 18, title);
  const Axis x = Axis::Linear(least, most, kBarsLeft, kBarsRight);
  for (const Axis::Tick& tick : x.ticks()) {
    svg.Line(x.At(tick.value), 2, x.At(tick.value), bottom, tick.value == 0 ? "axis" : "grid");
    svg.Text(x.At(tick.value), bottom + 13, Anchor::kMiddle, tick.label, "tick");
  }
  double y = 2 + kBarsRow / 2;
  for (const Part& part : one.parts) {
    svg.Text(kBarsLeft - 8, y + 4, Anchor::kEnd, report.methods[part.method],
             absl::StrCat("name ", ColourOf(part.method)), kBarsLeft - 8);
    const auto found = row.by_method.find(part.method);
    if (found == row.by_method.end()) {
      svg.Text(kBarsLeft + 6, y + 4, Anchor::kStart,
               part.method == compared_with ? "what is compared with" : MissingOf(part), "tick");
    } else {
      const Median& median = found->second;
      const double from = x.At(std::min(0.0, median.value)), to = x.At(std::max(0.0, median.value));
      svg.Box(from, y - 6, to - from, 12, absl::StrCat("bar ", ColourOf(part.method)));
      if (median.low != median.high) svg.Line(x.At(median.low), y, x.At(median.high), y, "whisker");
      const Median itself = {median.value, median.value, median.value};
      svg.Text(kPlotWidth - 2, y + 4, Anchor::kEnd, IntervalIn(row.unit, itself));
    }
    y += kBarsRow;
  }
  return {absl::StrCat(
              title, row.unit.empty() ? "" : ", ", UnitName(row.unit),
              row.better == Figure::Better::kLower ? " (less is better)" : " (more is better)"),
          std::move(svg).Take()};
}

// The part of native's device time that a method leaves unused. The interval combines the ends of both medians' intervals.
std::optional<Plot> OverheadPlot(const Report& report, const CaseReport& one) {
  const Row* const busy = FindRow(one, "busy");
  if (busy == nullptr) return std::nullopt;
  const Median* native = nullptr;
  size_t compared_with = 0;
  for (const auto& [method, median] : busy->by_method) {
    if (report.methods[method] != "native") continue;
    native = &median;
    compared_with = method;
  }
  if (native == nullptr || native->low <= 0 || busy->by_method.size() < 2) return std::nullopt;
  Row row = {"overhead", "% of native's busy time", Figure::Better::kLower};
  for (const auto& [method, median] : busy->by_method) {
    if (&median == native) continue;
    const auto lost = [](double value, double of) { return 100 * (of - value) / of; };
    row.by_method[method] = {lost(median.value, native->value), lost(median.high, native->low),
                             lost(median.low, native->high),
                             std::max(0.0, median.confidence + native->confidence - 1),
                             std::min(median.n, native->n)};
  }
  Plot plot = BarPlot(report, one, row, compared_with);
  plot.caption += "; the lines are of both intervals, the method's and native's";
  return plot;
}

}  // namespace

std::vector<Plot> BarPlots(const Report& report, const CaseReport& one) {
  std::vector<Plot> plots;
  for (const Row& row : one.rows) {
    if (row.better == Figure::Better::kNeither || row.by_method.empty()) continue;
    plots.push_back(BarPlot(report, one, row));
  }
  if (std::optional<Plot> overhead = OverheadPlot(report, one); overhead.has_value()) {
    plots.push_back(*std::move(overhead));
  }
  return plots;
}

}  // namespace gpushare::harness::report
