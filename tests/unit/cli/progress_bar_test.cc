// SPDX-License-Identifier: Apache-2.0
#include "cli/progress_bar.h"

#include <gtest/gtest.h>

namespace gpushare::cli {
namespace {

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
