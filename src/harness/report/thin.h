// SPDX-License-Identifier: Apache-2.0
// Fewer points that look the same: of each column of a plot the first, the least, the greatest and the last.
#ifndef GPUSHARE_HARNESS_REPORT_THIN_H_
#define GPUSHARE_HARNESS_REPORT_THIN_H_

#include <vector>

namespace gpushare::harness::report {

struct Point {
  double x = 0, y = 0;
  bool operator==(const Point&) const = default;
};

// Of points in ascending order of x, in the plot's units; at most four for each `column` of it.
std::vector<Point> Thin(const std::vector<Point>& points, double column);

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_THIN_H_
