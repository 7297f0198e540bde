// SPDX-License-Identifier: Apache-2.0
#include "cli/demo/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace gpushare::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// An error in the nesting of the elements of `xml`; empty if there is none.
std::string NestingError(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    const size_t end = xml.find('>', at);
    if (end == std::string::npos) return "a tag does not end";
    const std::string tag = xml.substr(at + 1, end - at - 1);
    if (tag.find('<') != std::string::npos) return "< within a tag: " + tag;
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return "unexpected <" + tag + ">";
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

SharePlot Sample() {
  SharePlot plot;
  plot.title = "Shares & more";
  plot.subtitle = "a < b";
  plot.seconds = 20;
  plot.step_s = 1;
  plot.lines = {{"online", std::vector<double>(20, 0.2), 0.2},
                {"<batch>", std::vector<double>(20, 0.8)}};
  plot.spans = {{8, 12, "\"train\" is away"}};
  return plot;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(PlotTest, IsWellFormedAndEscaped) {
  const std::string svg = RenderSvg(Sample());
  EXPECT_EQ(NestingError(svg), "");
  EXPECT_THAT(svg, HasSubstr("Shares &amp; more"));
  EXPECT_THAT(svg, HasSubstr("&lt;batch&gt;"));
  EXPECT_THAT(svg, HasSubstr("&quot;train&quot; is away"));
  EXPECT_THAT(svg, Not(HasSubstr("<batch>")));
}

TEST(PlotTest, HasALineForEachTenantAndOneForEachShareAskedFor) {
  const std::string svg = RenderSvg(Sample());
  EXPECT_EQ(Count(svg, "<polyline"), 2u);
  EXPECT_EQ(Count(svg, "class=\"asked c"), 1u);
  EXPECT_EQ(Count(svg, "class=\"span\""), 1u);
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme: dark"));
}

TEST(PlotTest, PointsLieWhereTheSharesAre) {
  SharePlot plot;
  plot.seconds = 2;
  plot.step_s = 1;
  plot.lines = {{"a", {0, 1}}};
  // The plot's area is 728 x 340 at (64, 84); windows of 1 s have their centres at 0.5 and 1.5 s.
  EXPECT_THAT(RenderSvg(plot), HasSubstr("points=\"246.0,424.0 610.0,84.0\""));
}

TEST(PlotTest, OddValuesStayInTheField) {
  SharePlot plot;
  plot.seconds = 0;
  plot.lines = {{"a", {std::nan(""), 7, -3}}, {"none", {}}};
  const std::string svg = RenderSvg(plot);
  EXPECT_EQ(NestingError(svg), "");
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(PlotTest, TicksStayFew) {
  for (const double seconds : {1.0, 3.0, 20.0, 25.0, 60.0, 600.0, 86400.0}) {
    SharePlot plot;
    plot.seconds = seconds;
    const size_t ticks = Count(RenderSvg(plot), "class=\"tick\"");
    EXPECT_LE(ticks, 11u + 6u + 2u) << seconds;
    EXPECT_GE(ticks, 2u + 6u + 2u) << seconds;
  }
}

}  // namespace
}  // namespace gpushare::cli
