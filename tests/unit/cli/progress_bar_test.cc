// SPDX-License-Identifier: Apache-2.0
#include "cli/progress_bar.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

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

// The displayed lines for a run of a hundred parts of 3 s each, ten of which have nothing to do.
TEST(ProgressBarTest, TheLinesSayHowMuchTimeIsLeft) {
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  double now = 1000;
  {
    ProgressBar bar(file, ProgressBar::Shown::kAlways);
    PartsBar parts(bar, 100, [&now] { return now; });
    for (int i = 0; i < 100; ++i) {
      parts.Begin(1, "part " + std::to_string(i));
      const bool ran =
          i >= 10;  // the empty parts come first: they end at once, and each is a hundredth
      now += ran ? 3 : 0.02;
      parts.End(ran);
    }
    parts.Begin(0, "all");
  }
  std::rewind(file);
  std::vector<std::string> lines;
  char line[256];
  while (std::fgets(line, sizeof(line), file) != nullptr) lines.emplace_back(line);
  std::fclose(file);
  // Output that is not a terminal gets a line for every tenth.
  ASSERT_EQ(lines.size(), 11u);
  const std::string said[] = {"  0 %  part 0\n",
                              " 10 %  4 min left, part 19\n",
                              " 20 %  4 min left, part 28\n",
                              " 30 %  3 min left, part 37\n",
                              " 40 %  3 min left, part 46\n",
                              " 50 %  2 min left, part 55\n",
                              " 60 %  2 min left, part 64\n",
                              " 70 %  80 s left, part 73\n",
                              " 80 %  50 s left, part 82\n",
                              " 90 %  30 s left, part 91\n",
                              "100 %  0 s left, all\n"};
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].substr(lines[i].find(']') + 2), said[i]);
  }
}

// The beginning of a long run must not predict that it will end soon.
TEST(ProgressBarTest, ShortPartsDoNotTellTheTime) {
  EXPECT_EQ(TimeLeft(0.05, 0.05), "");
  EXPECT_EQ(TimeLeft(0.5, 0.9), "");
  EXPECT_EQ(TimeLeft(0.05, 1), "19 s left");
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
