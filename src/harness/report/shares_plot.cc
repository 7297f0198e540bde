// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "absl/strings/str_cat.h"
#include "harness/report/plots.h"
#include "harness/report/svg.h"
#include "harness/report/words.h"
#include "spec/text.h"

namespace gpushare::harness::report {
namespace {

double SecondsOf(Nanos time) { return static_cast<double>(time.count()) / 1e9; }

// `most`: the top of the share axis, the same for all methods.
Plot SharePlot(const std::string& method, const Part& part, const Course& course, double most) {
  const Field field(course.tenants.size());
  size_t steps = 0;
  for (const TenantCourse& tenant : course.tenants) steps = std::max(steps, tenant.low.size());
  const double begins = SecondsOf(course.begins), step = SecondsOf(course.step);
  const Axis x =
      Axis::Within(begins, begins + step * static_cast<double>(steps), Field::kLeft, Field::kRight);
  const Axis y = Axis::Linear(0, most, field.bottom(), Field::kTop);
  Svg svg(field.height(), absl::StrCat("shares over time by ", method));
  field.DrawAxes(&svg, x, y, "second at which the window begins",
                 course.of_used ? "% of what all used" : "% of the time");
  std::vector<Field::Name> names;
  bool wanted = false;
  for (size_t i = 0; i < course.tenants.size(); ++i) {
    const TenantCourse& tenant = course.tenants[i];
    if (const auto asked = AskedOf(course, tenant); asked.has_value()) {
      svg.Line(Field::kLeft, y.At(*asked), Field::kRight, y.At(*asked),
               absl::StrCat("wanted ", ColourOf(i)));
      wanted = true;
    }
    std::vector<Point> points;
    for (size_t at = 0; at < tenant.low.size(); ++at) {
      const double place = x.At(begins + step * static_cast<double>(at));
      points.push_back({place, y.At(tenant.low[at])});
      if (tenant.high[at] != tenant.low[at]) points.push_back({place, y.At(tenant.high[at])});
    }
    if (points.empty()) continue;
    svg.Curve(points, StyleOf(i));
    names.push_back({points.back().y, tenant.name, i});
  }
  field.DrawNames(&svg, std::move(names));
  std::string caption =
      absl::StrCat(method, ": shares in windows of ", spec::FormatDuration(course.window));
  if (part.courses.size() > 1) {
    absl::StrAppend(&caption, ", in the ", wanted ? "" : "first ", "run of ", part.courses.size(),
                    wanted ? " that was furthest from what was asked for" : "");
  }
  if (wanted) caption += "; dotted: what was asked for";
  return {std::move(caption), std::move(svg).Take()};
}

// Whether there is a course over time to draw. A single window is shown in the asked-for plot instead.
bool HasWindows(const Course& course) {
  for (const TenantCourse& tenant : course.tenants) {
    if (tenant.low.size() > 1) return true;
  }
  return false;
}

}  // namespace

std::vector<Plot> SharePlots(const Report& report, const CaseReport& one) {
  std::vector<Plot> plots;
  for (const Part& part : one.parts) {
    const Course* const course = WorstCourse(part);
    if (course == nullptr || !HasWindows(*course)) continue;
    plots.push_back(SharePlot(report.methods[part.method], part, *course, GreatestShare(one)));
  }
  return plots;
}

}  // namespace gpushare::harness::report
