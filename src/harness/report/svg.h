// SPDX-License-Identifier: Apache-2.0
// A drawing as an <svg> within a page: it takes its colours and fonts from the page's style (page_style.cc), so that it is
// readable on light and dark pages. All text is escaped here.
#ifndef GPUSHARE_HARNESS_REPORT_SVG_H_
#define GPUSHARE_HARNESS_REPORT_SVG_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/report/axis.h"
#include "harness/report/thin.h"

namespace gpushare::harness::report {

// As wide as a phone's screen shows at the size at which text is read; a large screen has several beside one another.
inline constexpr double kPlotWidth = 360;
inline constexpr double kLineHeight = 13;

// What is no method's and no tenant's, but is compared with.
inline constexpr size_t kOfNobody = SIZE_MAX;

// Colour and dash: twenty-four that differ in one of them at least.
std::string StyleOf(size_t index);
std::string ColourOf(size_t index);

class Svg {
 public:
  enum class Anchor { kStart, kMiddle, kEnd };

  // `description` is for those who cannot see it.
  Svg(double height, std::string_view description);

  void Line(double x1, double y1, double x2, double y2, const std::string& style);
  // Thinned to what the plot can show.
  void Curve(const std::vector<Point>& points, const std::string& style);
  void Area(const std::vector<Point>& outline, const std::string& style);
  void Box(double x, double y, double width, double height, const std::string& style);
  // One of four shapes, with what it stands for as its tooltip.
  void Mark(double x, double y, size_t shape, const std::string& style, std::string_view about);
  // Text that is wider than `room` is elided, and whole in its tooltip.
  void Text(double x, double y, Anchor anchor, std::string_view text, const std::string& style = "",
            double room = kPlotWidth);

  std::string Take() &&;

 private:
  void Attribute(const char* name, double value);
  void Points(const std::vector<Point>& points);

  std::string out_;
};

// A field with axes, and room on the right for the lines' names.
class Field {
 public:
  static constexpr double kLeft = 46, kRight = kPlotWidth - 122, kTop = 22;

  // High enough for the names of so many lines.
  explicit Field(size_t lines);
  double bottom() const { return bottom_; }
  double height() const { return bottom_ + 36; }

  void DrawAxes(Svg* svg, const Axis& x, const Axis& y, const std::string& x_title,
                const std::string& y_title) const;

  struct Name {
    double y;  // where the line ends
    std::string text;
    size_t style;
  };
  // Beside the lines' ends, apart from one another, each with a piece of its line.
  void DrawNames(Svg* svg, std::vector<Name> names) const;

 private:
  double bottom_;
};

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_SVG_H_
