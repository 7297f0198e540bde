// SPDX-License-Identifier: Apache-2.0
#include "harness/made_otherwise.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpushare::harness {
namespace {

Results Made() {
  Results results;
  results.circumstances = {.version = "0.1.0",
                           .gpu = "simulated",
                           .machine = "a processor",
                           .begun = "2026-01-01T00:00:00Z",
                           .seed = 1};
  results.runs.push_back({.scenario = "share", .one_case = "two", .method = "gpushare"});
  results.runs[0].length = Seconds(4);
  results.runs[0].warm_up = Seconds(1);
  results.runs[0].course.window = Seconds(1);
  return results;
}

TEST(MadeOtherwise, WhatIsTheSameIsNotTold) {
  Results later = Made();
  later.circumstances.begun = "2026-01-02T00:00:00Z";
  later.runs.push_back(later.runs[0]);
  later.runs.back().scenario = "cap";
  EXPECT_TRUE(MadeOtherwise(Made(), later).empty());
}

TEST(MadeOtherwise, EachDifferenceIsTold) {
  Results other = Made();
  other.circumstances.gpu = "NVIDIA H200";
  other.circumstances.driver = "580.1";
  other.circumstances.profile = "h200.yaml";
  other.circumstances.machine = "another";
  other.circumstances.version = "0.2.0";
  other.circumstances.seed = 2;
  other.runs[0].length = Millis(1500);
  other.runs[0].course.window = Millis(500);
  EXPECT_EQ(MadeOtherwise(Made(), other),
            (std::vector<Otherwise>{{"gpu", "simulated", "NVIDIA H200"},
                                    {"driver", "", "580.1"},
                                    {"profile", "", "h200.yaml"},
                                    {"machine", "a processor", "another"},
                                    {"gpushare", "0.1.0", "0.2.0"},
                                    {"seed", "1", "2"},
                                    {"length of share", "4s with a warm-up of 1s, windows of 1s",
                                     "1500ms with a warm-up of 1s, windows of 500ms"}}));
}

TEST(MadeOtherwise, WhatAFileDoesNotSayIsNoDifference) {
  Results older = Made(), newer = Made();
  older.runs[0].length = Nanos(0);
  newer.circumstances.commit = "abcdef";
  EXPECT_TRUE(MadeOtherwise(older, newer).empty());
  older.circumstances.commit = "fedcba";
  EXPECT_EQ(MadeOtherwise(older, newer), (std::vector<Otherwise>{{"commit", "fedcba", "abcdef"}}));
}

}  // namespace
}  // namespace gpushare::harness
