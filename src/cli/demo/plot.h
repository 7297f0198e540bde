// SPDX-License-Identifier: Apache-2.0
// The plot of shares over time as a standalone SVG. It is readable on light and dark pages, without colour
// vision (lines differ in dash and carry their names), and by screen readers.
#ifndef GPUSHARE_CLI_DEMO_PLOT_H_
#define GPUSHARE_CLI_DEMO_PLOT_H_

#include <string>
#include <vector>

namespace gpushare::cli {

struct PlotLine {
  std::string name;
  std::vector<double> shares;  // [0, 1], one per step
  double asked = -1;           // drawn as a thin line; negative: none
};

struct PlotSpan {  // an interval marked by a grey area and a label
  double from_s = 0, to_s = 0;
  std::string label;
};

struct SharePlot {
  std::string title, subtitle;
  double seconds = 1;   // length of the time axis
  double step_s = 0.1;  // window of the shares: value i covers [i * step, (i + 1) * step)
  std::vector<PlotLine> lines;
  std::vector<PlotSpan> spans;
};

std::string RenderSvg(const SharePlot& plot);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_DEMO_PLOT_H_
