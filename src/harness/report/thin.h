// SPDX-License-Identifier: Apache-2.0
// Reduces points without changing the picture: keeps the first, least, greatest and last of each column of a plot.
#ifndef GPUSHARE_HARNESS_REPORT_THIN_H_
#define GPUSHARE_HARNESS_REPORT_THIN_H_

#include <vector>

namespace gpushare::harness::report {

struct Point {
  double x = 0, y = 0;
  bool operator==(const Point&) const = default;
};

// `points` are in ascending order of x, in the plot's units; at most four remain for each `column` of width.
std::vector<Point> Thin(const std::vector<Point>& points, double column);

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_THIN_H_
