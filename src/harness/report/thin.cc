// SPDX-License-Identifier: Apache-2.0
#include "harness/report/thin.h"

#include <algorithm>
#include <cmath>

namespace gpushare::harness::report {

std::vector<Point> Thin(const std::vector<Point>& points, double column) {
  std::vector<Point> kept;
  for (size_t first = 0; first < points.size();) {
    const double at = std::floor(points[first].x / column);
    size_t last = first, least = first, most = first;
    while (last + 1 < points.size() && std::floor(points[last + 1].x / column) == at) {
      ++last;
      if (points[last].y < points[least].y) least = last;
      if (points[last].y > points[most].y) most = last;
    }
    size_t chosen[] = {first, least, most, last};
    std::sort(std::begin(chosen), std::end(chosen));
    for (const size_t i : chosen) {
      if (kept.empty() || !(kept.back() == points[i])) kept.push_back(points[i]);
    }
    first = last + 1;
  }
  return kept;
}

}  // namespace gpushare::harness::report
