// SPDX-License-Identifier: Apache-2.0
#include "harness/report/svg.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "harness/report/words.h"

namespace gpushare::harness::report {
namespace {

constexpr size_t kColours = 6, kDashes = 6;  // one of each for every method of gpushare's own
constexpr double kColumn = 0.5;              // the width of a pixel on a high-resolution screen
constexpr double kTextSize = 11;

// Writes one decimal, a tenth of a pixel: such numbers are half the size of a page with many plots.
void AppendTenths(std::string* out, double value) {
  const long long tenths = std::llround(std::clamp(value, -1e6, 1e6) * 10);
  const long long size = std::llabs(tenths);
  absl::StrAppend(out, tenths < 0 ? "-" : "", size / 10);
  if (size % 10 != 0) absl::StrAppend(out, ".", size % 10);
}

}  // namespace

std::string StyleOf(size_t index) {
  if (index == kOfNobody) return "cn dn";
  // Where colours repeat, the dash is shifted.
  return absl::StrCat(ColourOf(index), " d", (index + index / kColours) % kDashes);
}
std::string ColourOf(size_t index) {
  return index == kOfNobody ? "cn" : absl::StrCat("c", index % kColours);
}

Svg::Svg(double height, std::string_view description) {
  out_ = absl::StrCat("<svg viewBox=\"0 0 ", kPlotWidth, " ");
  AppendTenths(&out_, height);
  absl::StrAppend(&out_, "\" role=\"img\" aria-label=\"", Markup(description), "\">\n");
}

void Svg::Attribute(const char* name, double value) {
  absl::StrAppend(&out_, " ", name, "=\"");
  AppendTenths(&out_, value);
  out_ += '"';
}

void Svg::Points(const std::vector<Point>& points) {
  out_ += " points=\"";
  for (size_t i = 0; i < points.size(); ++i) {
    if (i > 0) out_ += ' ';
    AppendTenths(&out_, points[i].x);
    out_ += ',';
    AppendTenths(&out_, points[i].y);
  }
  out_ += "\"/>\n";
}

void Svg::Line(double x1, double y1, double x2, double y2, const std::string& style) {
  absl::StrAppend(&out_, "<line class=\"", style, "\"");
  Attribute("x1", x1);
  Attribute("y1", y1);
  Attribute("x2", x2);
  Attribute("y2", y2);
  out_ += "/>\n";
}

void Svg::Curve(const std::vector<Point>& points, const std::string& style) {
  absl::StrAppend(&out_, "<polyline class=\"line ", style, "\"");
  Points(Thin(points, kColumn));
}

void Svg::Area(const std::vector<Point>& outline, const std::string& style) {
  absl::StrAppend(&out_, "<polygon class=\"band ", style, "\"");
  Points(outline);
}

void Svg::Box(double x, double y, double width, double height, const std::string& style) {
  absl::StrAppend(&out_, "<rect class=\"", style, "\"");
  Attribute("x", x);
  Attribute("y", y);
  Attribute("width", std::max(width, 0.0));
  Attribute("height", height);
  out_ += "/>\n";
}

void Svg::Mark(double x, double y, size_t shape, const std::string& style, std::string_view about) {
  absl::StrAppend(&out_, "<path class=\"mark ", style, "\" transform=\"translate(");
  AppendTenths(&out_, x);
  out_ += ' ';
  AppendTenths(&out_, y);
  constexpr const char* kShapes[] = {"M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
                                     "M-3.5-3.5h7v7h-7z",
                                     "M0-5L5 0L0 5L-5 0z",
                                     "M0-5L4.6 3.5H-4.6z",
                                     "M0 5L4.6-3.5H-4.6z",
                                     "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z"};
  absl::StrAppend(&out_, ")\" d=\"", kShapes[shape % std::size(kShapes)], "\"><title>",
                  Markup(about), "</title></path>\n");
}

void Svg::Text(double x, double y, Anchor anchor, std::string_view text, const std::string& style,
               double room) {
  const std::string shown = Elided(text, room / kTextSize);
  out_ += "<text";
  if (!style.empty()) absl::StrAppend(&out_, " class=\"", style, "\"");
  if (anchor != Anchor::kStart) {
    absl::StrAppend(&out_, " text-anchor=\"", anchor == Anchor::kEnd ? "end" : "middle", "\"");
  }
  Attribute("x", x);
  Attribute("y", y);
  absl::StrAppend(&out_, ">", Markup(shown));
  if (shown != text) absl::StrAppend(&out_, "<title>", Markup(text), "</title>");
  out_ += "</text>\n";
}

std::string Svg::Take() && {
  out_ += "</svg>\n";
  return std::move(out_);
}

Field::Field(size_t lines)
    : bottom_(kTop + std::max(170.0, kLineHeight * static_cast<double>(lines))) {}

void Field::DrawAxes(Svg* svg, const Axis& x, const Axis& y, const std::string& x_title,
                     const std::string& y_title) const {
  for (const Axis::Tick& tick : y.ticks()) {
    const double at = y.At(tick.value);
    svg->Line(kLeft, at, kRight, at, at >= bottom_ ? "axis" : "grid");
    svg->Text(kLeft - 5, at + 4, Svg::Anchor::kEnd, tick.label, "tick");
  }
  for (const Axis::Tick& tick : x.ticks()) {
    const double at = x.At(tick.value);
    svg->Line(at, bottom_, at, bottom_ + 4, "axis");
    svg->Text(at, bottom_ + 16, Svg::Anchor::kMiddle, tick.label, "tick");
  }
  svg->Text(2, 10, Svg::Anchor::kStart, y_title, "tick");
  svg->Text((kLeft + kRight) / 2, bottom_ + 31, Svg::Anchor::kMiddle, x_title, "tick");
}

void Field::DrawNames(Svg* svg, std::vector<Name> names) const {
  std::stable_sort(names.begin(), names.end(),
                   [](const Name& a, const Name& b) { return a.y < b.y; });
  // Pushes names down from the first, then up again from the bottom.
  for (size_t i = 1; i < names.size(); ++i) {
    names[i].y = std::max(names[i].y, names[i - 1].y + kLineHeight);
  }
  double most = bottom_;
  for (size_t i = names.size(); i-- > 0;) {
    names[i].y = std::min(names[i].y, most);
    most = names[i].y - kLineHeight;
  }
  for (const Name& name : names) {
    svg->Line(kRight + 4, name.y, kRight + 20, name.y, absl::StrCat("line ", StyleOf(name.style)));
    constexpr double kAt = kRight + 24;
    svg->Text(kAt, name.y + 4, Svg::Anchor::kStart, name.text,
              absl::StrCat("name ", ColourOf(name.style)), kPlotWidth - kAt);
  }
}

}  // namespace gpushare::harness::report
