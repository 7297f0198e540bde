// SPDX-License-Identifier: Apache-2.0
// An inline <svg>. It takes colours and fonts from the page's style (page_style.cc), so it is readable on light and dark pages. All
// text is escaped here.
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

// The width that a phone's screen shows at reading size. Large screens show several plots in a row.
inline constexpr double kPlotWidth = 360;
inline constexpr double kLineHeight = 13;

// The style index of a reference line, which belongs to no method or tenant.
inline constexpr size_t kOfNobody = SIZE_MAX;

// The style (colour and dash) of an index: 24 different combinations.
std::string StyleOf(size_t index);
std::string ColourOf(size_t index);

class Svg {
 public:
  enum class Anchor { kStart, kMiddle, kEnd };

  // `description` is the text alternative.
  Svg(double height, std::string_view description);

  void Line(double x1, double y1, double x2, double y2, const std::string& style);
  // Draws a polyline, thinned to the plot's resolution.
  void Curve(const std::vector<Point>& points, const std::string& style);
  void Area(const std::vector<Point>& outline, const std::string& style);
  void Box(double x, double y, double width, double height, const std::string& style);
  // Draws one of four shapes with the tooltip `about`.
  void Mark(double x, double y, size_t shape, const std::string& style, std::string_view about);
  // Text wider than `room` is elided; its tooltip has the whole text.
  void Text(double x, double y, Anchor anchor, std::string_view text, const std::string& style = "",
            double room = kPlotWidth);

  std::string Take() &&;

 private:
  void Attribute(const char* name, double value);
  void Points(const std::vector<Point>& points);

  std::string out_;
};

// The area of a plot with its axes, and room on the right for the names of its lines.
class Field {
 public:
  static constexpr double kLeft = 46, kRight = kPlotWidth - 122, kTop = 22;

  // High enough for the names of this many lines.
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
  // Draws the names beside the ends of their lines, without overlaps, each with a sample of its line.
  void DrawNames(Svg* svg, std::vector<Name> names) const;

 private:
  double bottom_;
};

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_SVG_H_
