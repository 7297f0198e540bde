// SPDX-License-Identifier: Apache-2.0
#include "cli/nearest.h"

#include <gtest/gtest.h>

namespace gpushare::cli {
namespace {

TEST(Nearest, IsWhatWasMistyped) {
  const std::vector<std::string> names = {"list", "top", "set", "suspend", "drain", "doctor"};
  EXPECT_EQ(NearestOf("lsit", names), "list");
  EXPECT_EQ(NearestOf("lists", names), "list");
  EXPECT_EQ(NearestOf("tpo", names), "top");
  EXPECT_EQ(NearestOf("docter", names), "doctor");
  EXPECT_EQ(NearestOf("susspendd", names), "suspend");
  EXPECT_EQ(NearestOf("list", names), "") << "it is one";
  EXPECT_EQ(NearestOf("x", names), "");
  EXPECT_EQ(NearestOf("", names), "");
  EXPECT_EQ(NearestOf("abc", names), "") << "none is like it";
  EXPECT_EQ(NearestOf(std::string(1000, 'l'), names), "");
}

}  // namespace
}  // namespace gpushare::cli
