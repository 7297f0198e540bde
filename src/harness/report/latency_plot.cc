// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "harness/report/plots.h"
#include "harness/report/svg.h"
#include "harness/report/words.h"

namespace gpushare::harness::report {
namespace {

// The distribution over several runs: the median and the range at each quantile that all of them have.
struct Distribution {
  std::string name;
  size_t style = 0;
  std::vector<double> middle, low, high;
};

Distribution Summed(std::string name, size_t style,
                    const std::vector<const std::vector<double>*>& runs) {
  Distribution sum = {std::move(name), style, {}, {}, {}};
  size_t common = runs.empty() ? 0 : SIZE_MAX;
  // The last entry of each run is its maximum, whose index differs between runs.
  for (const auto* run : runs) common = std::min(common, run->empty() ? 0 : run->size() - 1);
  for (size_t i = 0; i < common; ++i) {
    std::vector<double> values;
    values.reserve(runs.size());
    for (const auto* run : runs) values.push_back((*run)[i]);
    sum.middle.push_back(MedianOf(values).value);
    sum.low.push_back(*std::min_element(values.begin(), values.end()));
    sum.high.push_back(*std::max_element(values.begin(), values.end()));
  }
  return sum;
}

std::vector<Distribution> DistributionsOf(const Report& report, const CaseReport& one,
                                          const std::string& tenant) {
  std::vector<Distribution> all;
  std::vector<const std::vector<double>*> alone;
  for (const Part& part : one.parts) {
    std::vector<const std::vector<double>*> runs;
    for (const Course* course : part.courses) {
      const TenantCourse* const found = FindTenant(*course, tenant);
      if (found == nullptr) continue;
      if (!found->latency_us.empty()) runs.push_back(&found->latency_us);
      if (!found->alone_us.empty()) alone.push_back(&found->alone_us);
    }
    Distribution sum = Summed(report.methods[part.method], part.method, runs);
    if (!sum.middle.empty()) all.push_back(std::move(sum));
  }
  Distribution by_itself = Summed("alone", kOfNobody, alone);
  if (!all.empty() && !by_itself.middle.empty()) all.push_back(std::move(by_itself));
  return all;
}

Plot LatencyPlot(const std::string& tenant, const std::vector<Distribution>& all) {
  double least = all.front().low.front(), most = least;
  size_t longest = 0;
  for (const Distribution& each : all) {
    least = std::min(least, each.low.front());
    most = std::max(most, each.high.back());
    longest = std::max(longest, each.middle.size());
  }
  const Field field(all.size());
  const Axis x = Axis::Logarithmic(least, most, Field::kLeft, Field::kRight);
  const Axis y = Axis::Nines(CourseQuantile(longest - 1), field.bottom(), Field::kTop);
  Svg svg(field.height(), absl::StrCat("distribution of the latencies of ", tenant));
  field.DrawAxes(&svg, x, y, "latency", "requests that took no longer");
  std::vector<Field::Name> names;
  for (const Distribution& each : all) {
    std::vector<Point> line, outline;
    for (size_t i = 0; i < each.middle.size(); ++i) {
      line.push_back({x.At(each.middle[i]), y.At(CourseQuantile(i))});
      outline.push_back({x.At(each.low[i]), y.At(CourseQuantile(i))});
    }
    for (size_t i = each.middle.size(); i-- > 0;) {
      outline.push_back({x.At(each.high[i]), y.At(CourseQuantile(i))});
    }
    if (each.low != each.high) svg.Area(outline, ColourOf(each.style));
    svg.Curve(line, StyleOf(each.style));
    names.push_back({line.back().y, each.name, each.style});
  }
  field.DrawNames(&svg, std::move(names));
  return {absl::StrCat(tenant,
                       ": latencies of its requests, from their arrival. Line: median of "
                       "the runs; field: from the least to the greatest"),
          std::move(svg).Take()};
}

}  // namespace

std::vector<Plot> LatencyPlots(const Report& report, const CaseReport& one) {
  std::vector<Plot> plots;
  for (const std::string& tenant : one.tenants) {
    const std::vector<Distribution> all = DistributionsOf(report, one, tenant);
    if (!all.empty()) plots.push_back(LatencyPlot(tenant, all));
  }
  return plots;
}

}  // namespace gpushare::harness::report
