// SPDX-License-Identifier: Apache-2.0
#include "cli/progress_bar.h"

#include <gtest/gtest.h>

namespace gpushare::cli {
namespace {

TEST(ProgressBarTest, TheTimeThatIsLeftIsByWhatIsDone) {
  EXPECT_EQ(TimeLeft(0, 10), "");
  EXPECT_EQ(TimeLeft(0.005, 10), "");  // too early
  EXPECT_EQ(TimeLeft(0.5, 0), "");
  EXPECT_EQ(TimeLeft(0.5, 12), "12 s left");
  EXPECT_EQ(TimeLeft(0.25, 14), "40 s left");
  EXPECT_EQ(TimeLeft(0.5, 89), "90 s left");
  EXPECT_EQ(TimeLeft(0.1, 30), "5 min left");
  EXPECT_EQ(TimeLeft(0.01, 60), "1 h 39 min left");
  EXPECT_EQ(TimeLeft(0.5, 7200), "2 h left");
  EXPECT_EQ(TimeLeft(1, 50), "0 s left");
}

TEST(ProgressBarTest, TheLineFitsTheTerminal) {
  EXPECT_EQ(ProgressLine(50, "four tenants", 200),
            "[" + std::string(20, '#') + std::string(20, '.') + "]  50 %  four tenants");
  EXPECT_EQ(ProgressLine(100, "", 80), "[" + std::string(40, '#') + "] 100 %");
  for (size_t columns = 1; columns < 120; ++columns) {
    const std::string line = ProgressLine(37, "the service alone, 12.3 of 20 s", columns);
    EXPECT_LE(line.size(), columns);
    if (columns < 60) continue;
    EXPECT_NE(line.find("of 20 s"), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace gpushare::cli
