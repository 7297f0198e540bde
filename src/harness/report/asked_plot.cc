// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "harness/report/plots.h"
#include "harness/report/svg.h"
#include "harness/report/words.h"

namespace gpushare::harness::report {
namespace {

using Anchor = Svg::Anchor;

constexpr double kAskedLeft = 112, kAskedRight = kPlotWidth - 46, kAskedRow = 17;
constexpr size_t kAskedRows = 16;
constexpr double kAskedHead = 0.8 * kPlotWidth;  // bold text is wider

void DrawAsked(const Report& report, const CaseReport& one, const std::string& tenant,
               const Part& part, double y, const Axis& x, Svg* svg) {
  svg->Text(kAskedLeft - 8, y + 4, Anchor::kEnd, report.methods[part.method],
            absl::StrCat("name ", ColourOf(part.method)), kAskedLeft - 8);
  const Row* const row = FindRow(one, ShareFigure(tenant));
  const auto got = row == nullptr ? std::map<size_t, Median>::const_iterator()
                                  : row->by_method.find(part.method);
  if (row == nullptr || got == row->by_method.end()) {
    svg->Text(kAskedLeft + 6, y + 4, Anchor::kStart, MissingOf(part), "tick");
    return;
  }
  if (const std::optional<double> asked = AskedOf(part, tenant); asked.has_value()) {
    svg->Line(x.At(*asked), y - kAskedRow / 2, x.At(*asked), y + kAskedRow / 2, "asked");
  }
  if (const std::optional<Range> windows = WindowsOf(part, tenant); windows.has_value()) {
    svg->Line(x.At(windows->low), y, x.At(windows->high), y,
              absl::StrCat("range ", ColourOf(part.method)));
  }
  svg->Mark(
      x.At(got->second.value), y, part.method, ColourOf(part.method),
      absl::StrCat(tenant, " by ", report.methods[part.method], ": ", Interval(got->second), " %"));
  svg->Text(kPlotWidth - 2, y + 4, Anchor::kEnd, absl::StrCat(Number(got->second.value), " %"));
}

Plot AskedPlot(const Report& report, const CaseReport& one, std::span<const std::string> tenants) {
  const double block = kAskedRow * static_cast<double>(one.parts.size() + 1) + 4;
  const double bottom = block * static_cast<double>(tenants.size()) + 4;
  Svg svg(bottom + 22, absl::StrCat("what each tenant of ", one.name, " asked for and got"));
  const Axis x = Axis::Linear(0, GreatestShare(one), kAskedLeft, kAskedRight);
  for (const Axis::Tick& tick : x.ticks()) {
    svg.Line(x.At(tick.value), 4, x.At(tick.value), bottom, tick.value == 0 ? "axis" : "grid");
    svg.Text(x.At(tick.value), bottom + 15, Anchor::kMiddle, absl::StrCat(tick.label, "%"), "tick");
  }
  double y = kAskedRow / 2 + 2;
  for (const std::string& tenant : tenants) {
    svg.Text(2, y + 4, Anchor::kStart, tenant, "head", kAskedHead);
    for (const Part& part : one.parts) {
      y += kAskedRow;
      DrawAsked(report, one, tenant, part, y, x, &svg);
    }
    y += kAskedRow + 4;
  }
  return {
      "Asked against got. Upright line: what was asked for; mark: what the tenant got over the "
      "run; bar: from its least window to its greatest",
      std::move(svg).Take()};
}

}  // namespace

std::vector<Plot> AskedPlots(const Report& report, const CaseReport& one) {
  std::vector<std::string> tenants;
  for (const std::string& tenant : one.tenants) {
    // Some questions have other figures than shares.
    if (FindRow(one, ShareFigure(tenant)) == nullptr) continue;
    for (const Part& part : one.parts) {
      if (!AskedOf(part, tenant).has_value()) continue;
      tenants.push_back(tenant);
      break;
    }
  }
  // Splits the plot so that no part is much higher than the plots beside it.
  const size_t each = std::max<size_t>(kAskedRows / (one.parts.size() + 1), 1);
  std::vector<Plot> plots;
  for (size_t first = 0; first < tenants.size(); first += each) {
    const std::span<const std::string> some(tenants.begin() + static_cast<std::ptrdiff_t>(first),
                                            std::min(each, tenants.size() - first));
    plots.push_back(AskedPlot(report, one, some));
  }
  return plots;
}

}  // namespace gpushare::harness::report
