// SPDX-License-Identifier: Apache-2.0
// The plot of shares over time, as an SVG that stands on its own: readable on light and dark pages, by
// people who do not tell colours apart (lines differ in dash and carry their name), and by screen readers.
#ifndef GPUSHARE_CLI_DEMO_PLOT_H_
#define GPUSHARE_CLI_DEMO_PLOT_H_

#include <string>
#include <vector>

namespace gpushare::cli {

struct PlotLine {
  std::string name;
  std::vector<double> shares;  // [0, 1], one a step
  double asked = -1;           // drawn as a thin line of its own; negative: none
};

struct PlotSpan {  // a time that a grey field and a label mark
  double from_s = 0, to_s = 0;
  std::string label;
};

struct SharePlot {
  std::string title, subtitle;
  double seconds = 1;   // the time axis
  double step_s = 0.1;  // the shares' windows: value i is of [i * step, (i + 1) * step)
  std::vector<PlotLine> lines;
  std::vector<PlotSpan> spans;
};

std::string RenderSvg(const SharePlot& plot);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_DEMO_PLOT_H_
