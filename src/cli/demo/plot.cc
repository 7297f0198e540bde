// SPDX-License-Identifier: Apache-2.0
#include "cli/demo/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace gpushare::cli {
namespace {

constexpr double kWidth = 960, kHeight = 480;
constexpr double kLeft = 64, kRight = 168, kTop = 84, kBottom = 56;
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;
constexpr size_t kStyles = 4;  // line styles before they repeat

// Okabe and Ito's palette, whose colours remain distinguishable with every common colour blindness: darker
// ones on light pages, lighter ones on dark pages.
constexpr char kStyle[] = R"(
  svg { background: #ffffff; font-family: system-ui, 'DejaVu Sans', sans-serif; }
  text { fill: #1c1e21; font-size: 13px; }
  .title { font-size: 18px; font-weight: 600; }
  .sub, .tick { fill: #57606a; }
  .page { fill: #ffffff; }
  .grid { stroke: #d8dee4; stroke-width: 1; }
  .axis { stroke: #57606a; stroke-width: 1; }
  .span { fill: #8c959f; fill-opacity: 0.16; }
  .line { fill: none; stroke-width: 2.25; stroke-linejoin: round; }
  .asked { fill: none; stroke-width: 1; stroke-dasharray: 2 5; }
  .c0 { stroke: #0072b2; } .c1 { stroke: #d55e00; } .c2 { stroke: #008060; } .c3 { stroke: #a5457e; }
  .d1 { stroke-dasharray: 10 3; } .d2 { stroke-dasharray: 3 3; } .d3 { stroke-dasharray: 12 3 3 3; }
  @media (prefers-color-scheme: dark) {
    svg { background: #0d1117; }
    text { fill: #e6edf3; }
    .sub, .tick { fill: #9ea7b3; }
    .page { fill: #0d1117; }
    .grid { stroke: #2b323b; }
    .axis { stroke: #9ea7b3; }
    .c0 { stroke: #56b4e9; } .c1 { stroke: #e69f00; } .c2 { stroke: #2fc39a; } .c3 { stroke: #e48fc0; }
  }
)";

std::string Escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        // XML cannot represent other control characters.
        escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return escaped;
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

class Drawing {
 public:
  explicit Drawing(const SharePlot& plot)
      : plot_(plot), seconds_(plot.seconds > 0 ? plot.seconds : 1) {}

  std::string Draw() {
    Head();
    Spans();
    Axes();
    for (size_t i = 0; i < plot_.lines.size(); ++i) Line(i);
    Legend();
    svg_ += "</svg>\n";
    return std::move(svg_);
  }

 private:
  double X(double seconds) const {
    return kLeft + kPlotWidth * std::clamp(seconds / seconds_, 0.0, 1.0);
  }
  static double Y(double share) {
    return kTop + kPlotHeight * (1 - std::clamp(std::isfinite(share) ? share : 0, 0.0, 1.0));
  }
  static std::string Class(size_t i) {
    const std::string style = std::to_string(i % kStyles);
    return "c" + style + " d" + style;
  }

  void Text(double x, double y, const char* anchor, const std::string& what, const char* style) {
    svg_ += "<text class=\"" + std::string(style) + "\" x=\"" + Number(x) + "\" y=\"" + Number(y) +
            "\" text-anchor=\"" + anchor + "\">" + Escape(what) + "</text>\n";
  }
  void Segment(double x1, double y1, double x2, double y2, const std::string& style) {
    svg_ += "<line class=\"" + style + "\" x1=\"" + Number(x1) + "\" y1=\"" + Number(y1) +
            "\" x2=\"" + Number(x2) + "\" y2=\"" + Number(y2) + "\"/>\n";
  }

  void Head() {
    const std::string size =
        std::to_string(static_cast<int>(kWidth)) + " " + std::to_string(static_cast<int>(kHeight));
    svg_ += "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + size +
            "\" role=\"img\" aria-labelledby=\"title desc\">\n<title id=\"title\">" +
            Escape(plot_.title) + "</title>\n<desc id=\"desc\">" + Escape(plot_.subtitle) +
            "</desc>\n<style>" + kStyle + "</style>\n";
    svg_ += "<rect class=\"page\" width=\"" + Number(kWidth) + "\" height=\"" + Number(kHeight) +
            "\"/>\n";
    Text(kLeft, 30, "start", plot_.title, "title");
    Text(kLeft, 50, "start", plot_.subtitle, "sub");
  }

  void Spans() {
    for (const PlotSpan& span : plot_.spans) {
      const double from = X(span.from_s), to = X(span.to_s);
      svg_ += "<rect class=\"span\" x=\"" + Number(from) + "\" y=\"" + Number(kTop) +
              "\" width=\"" + Number(to - from) + "\" height=\"" + Number(kPlotHeight) + "\"/>\n";
      Text((from + to) / 2, kTop - 8, "middle", span.label, "sub");
    }
  }

  void Axes() {
    for (int percent = 0; percent <= 100; percent += 20) {
      const double y = Y(percent / 100.0);
      Segment(kLeft, y, kLeft + kPlotWidth, y, percent == 0 ? "axis" : "grid");
      Text(kLeft - 8, y + 4, "end", std::to_string(percent) + " %", "tick");
    }
    // A tick each 1, 2, 5, 10, 20, ... seconds: at most eleven.
    double step = 1;
    for (int i = 0; seconds_ / step > 10.001; ++i) step *= i % 3 == 1 ? 2.5 : 2;
    const int ticks = static_cast<int>(std::floor(seconds_ / step + 1e-9));
    for (int i = 0; i <= ticks; ++i) {
      const double at = i * step;
      Segment(X(at), kTop + kPlotHeight, X(at), kTop + kPlotHeight + 5, "axis");
      Text(X(at), kTop + kPlotHeight + 20, "middle", std::to_string(std::lround(at)), "tick");
    }
    Text(kLeft + kPlotWidth / 2, kHeight - 14, "middle", "device time in seconds", "tick");
    svg_ += "<text class=\"tick\" text-anchor=\"middle\" transform=\"translate(16 " +
            Number(kTop + kPlotHeight / 2) + ") rotate(-90)\">share of the device</text>\n";
  }

  void Line(size_t index) {
    const PlotLine& line = plot_.lines[index];
    if (line.asked >= 0) {
      Segment(kLeft, Y(line.asked), kLeft + kPlotWidth, Y(line.asked),
              "asked c" + std::to_string(index % kStyles));
    }
    if (line.shares.empty()) return;
    svg_ += "<polyline class=\"line " + Class(index) + "\" points=\"";
    for (size_t i = 0; i < line.shares.size(); ++i) {
      // A window's share is drawn at the middle of the window.
      svg_ += (i == 0 ? "" : " ") + Number(X((static_cast<double>(i) + 0.5) * plot_.step_s)) + "," +
              Number(Y(line.shares[i]));
    }
    svg_ += "\"/>\n";
  }

  void Legend() {
    const double x = kLeft + kPlotWidth + 18;
    double y = kTop + 12;
    for (size_t i = 0; i < plot_.lines.size(); ++i, y += 24) {
      Segment(x, y - 4, x + 34, y - 4, "line " + Class(i));
      Text(x + 42, y, "start", plot_.lines[i].name, "legend");
    }
    Segment(x, y - 4, x + 34, y - 4, "asked axis");
    Text(x + 42, y, "start", "asked for", "sub");
  }

  const SharePlot& plot_;
  const double seconds_;
  std::string svg_;
};

}  // namespace

std::string RenderSvg(const SharePlot& plot) { return Drawing(plot).Draw(); }

}  // namespace gpushare::cli
