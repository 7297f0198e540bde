// SPDX-License-Identifier: Apache-2.0
#include "cli/text_table.h"

#include <gtest/gtest.h>

namespace gpushare::cli {
namespace {

TEST(TextTableTest, ColumnsAreAsWideAsTheirWidestCell) {
  TextTable table({{"tenant"}, {"share", Align::kRight}, {"note"}});
  table.AddRow({"online", "20.0 %", "x"});
  table.AddRow({"a", "5 %"});
  EXPECT_EQ(table.ToString(),
            "tenant   share  note\n"
            "------  ------  ----\n"
            "online  20.0 %  x\n"
            "a          5 %\n");
}

TEST(TextTableTest, NoRuleUnderNoTitle) {
  TextTable table({{""}, {"what"}});
  table.AddRow({"!", "broker"});
  table.AddRow({"", "GPU"});
  EXPECT_EQ(table.ToString(), "   what\n   ------\n!  broker\n   GPU\n");
}

TEST(TextTableTest, WidthsCountCodePoints) {
  TextTable table({{"a"}, {"b"}});
  table.AddRow({"\xc2\xb5s", "1"});
  table.AddRow({"ms", "2", "dropped"});
  EXPECT_EQ(table.ToString(), "a   b\n--  -\n\xc2\xb5s  1\nms  2\n");
}

}  // namespace
}  // namespace gpushare::cli
