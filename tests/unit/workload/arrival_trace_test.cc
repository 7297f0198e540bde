// SPDX-License-Identifier: Apache-2.0
#include "workload/arrival_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace gpushare::workload {
namespace {

using ::testing::ElementsAre;

std::string Wrong(std::string_view text, ArrivalsAs as = ArrivalsAs::kTimes) {
  const auto arrivals = ParseArrivalTrace(text, "t", as);
  EXPECT_EQ(arrivals.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(arrivals.status().message());
}

TEST(ArrivalTrace, TimesAndGaps) {
  constexpr char kText[] = "# of a service\n0\n 0.25 \r\n\n0.25  # at once\n1.000000001";
  const auto times = ParseArrivalTrace(kText, "t", ArrivalsAs::kTimes);
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_THAT(*times, ElementsAre(Nanos(0), Millis(250), Millis(250), Nanos(1'000'000'001)));
  const auto gaps = ParseArrivalTrace(kText, "t", ArrivalsAs::kGaps);
  ASSERT_TRUE(gaps.ok()) << gaps.status();
  EXPECT_THAT(*gaps, ElementsAre(Nanos(0), Millis(250), Millis(500), Nanos(1'500'000'001)));
}

TEST(ArrivalTrace, WhatIsWrongIsToldByItsLine) {
  constexpr char kAllowed[] = "allowed: a number of seconds from 0 to 1000000, as 12.345678";
  for (const char* const bad : {"1s", "-1", "nan", "inf", "1e3", "0x10", "1,2", "1 2", "1000001"}) {
    EXPECT_EQ(Wrong(std::string("1\n") + bad),
              std::string("t:2: '") + bad + "' given; " + kAllowed);
  }
  EXPECT_EQ(Wrong("2\n\n1\n"), "t:3: '1' given; allowed: times each not before the one above it");
  EXPECT_EQ(Wrong("999999\n2", ArrivalsAs::kGaps),
            "t:2: '2' given; allowed: gaps of 1000000 s together");
  EXPECT_EQ(Wrong("# nothing\n"), "t: it has no request");
  std::string many;
  for (size_t i = 0; i <= kMostTraceArrivals; ++i) many += "0\n";
  EXPECT_EQ(Wrong(many), "t:1000001: '0' given; allowed: a million requests");
}

TEST(ArrivalTrace, OfAFile) {
  const std::string path = ::testing::TempDir() + "/arrivals.txt";
  std::ofstream(path) << "0.5\n";
  const auto arrivals = ReadArrivalTrace(path, ArrivalsAs::kGaps);
  ASSERT_TRUE(arrivals.ok()) << arrivals.status();
  EXPECT_THAT(*arrivals, ElementsAre(Millis(500)));
  EXPECT_EQ(ReadArrivalTrace("/nowhere/at", ArrivalsAs::kTimes).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadArrivalTrace("/tmp", ArrivalsAs::kTimes).status().message(),
            "/tmp: it is not a file");
}

}  // namespace
}  // namespace gpushare::workload
