// SPDX-License-Identifier: Apache-2.0
#include "harness/spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

namespace gpushare::harness {
namespace {

using ::testing::ElementsAre;

// `sms` SMs from `first` to `last`, in us.
KernelSpan Span(int64_t first, int64_t last, int64_t sms) {
  return {first * 1000, last * 1000, (last - first) * 1000 * sms, (last - first) * 1980 * sms};
}

constexpr SpanGrid kGrid = {.length = Micros(300), .step = Micros(100), .sms = 100};

TEST(Spans, WhoRunsAloneHasTheDeviceHoweverNarrowItsKernels) {
  const auto used = UsedOf({{Span(50, 150, 30)}, {}}, kGrid);
  EXPECT_THAT(used[0], ElementsAre(0, 50'000, 100'000, 100'000));
  EXPECT_THAT(used[1], ElementsAre(0, 0, 0, 0));
  SpanGrid by_sms = kGrid;
  by_sms.sm_time = true;
  EXPECT_THAT(UsedOf({{Span(50, 150, 30)}, {}}, by_sms)[0], ElementsAre(0, 15'000, 30'000, 30'000));
}

TEST(Spans, ThoseThatRunTogetherHavePartsByTheirSms) {
  const auto used = UsedOf({{Span(0, 200, 60)}, {Span(100, 300, 20)}}, kGrid);
  EXPECT_THAT(used[0], ElementsAre(0, 100'000, 175'000, 175'000));
  EXPECT_THAT(used[1], ElementsAre(0, 0, 25'000, 125'000));
}

TEST(Spans, WorkIsWhatKernelsTakeAloneHoweverLongTheyRan) {
  // Two kernels side by side, each of which takes 80 us alone. The first half of one was before the start.
  KernelSpan early = Span(-100, 100, 60), late = Span(150, 250, 20);
  early.work = late.work = 80'000;
  const auto work = WorkDone({{early}, {late}, {}}, kGrid);
  EXPECT_THAT(work[0], ElementsAre(0, 40'000, 40'000, 40'000));
  EXPECT_THAT(work[1], ElementsAre(0, 0, 40'000, 80'000));
  EXPECT_THAT(work[2], ElementsAre(0, 0, 0, 0));
  // A kernel that runs beyond the end has not done all its work.
  late.last = 350'000;
  EXPECT_THAT(WorkDone({{late}}, kGrid)[0], ElementsAre(0, 0, 20'000, 60'000));
}

TEST(Spans, OfTwoThatTakeTurnsEachHasWhatItsBlocksRan) {
  // Time slices between processes: both are present equally long, and one runs for three quarters of the time.
  KernelSpan favoured = Span(0, 300, 75), other = Span(0, 300, 25);
  const auto used = UsedOf({{favoured}, {other}}, kGrid);
  EXPECT_THAT(used[0], ElementsAre(0, 75'000, 150'000, 225'000));
  EXPECT_THAT(used[1], ElementsAre(0, 25'000, 50'000, 75'000));
}

TEST(Spans, WhatStandsStillWhileTheDeviceIsAnothersIsNotThere) {
  // In turns of 100 us with 10 us unused between them: one tenant has a single kernel, the other has many.
  KernelSpans one = {{0, 300'000, 190'000 * 100, 190'000 * 200, 900}}, other;
  CutAway({{210'000, 320'000}, {100'000, 210'000}}, &one);
  EXPECT_THAT(one, ElementsAre(KernelSpan{0, 100'000, 190'000 * 100, 190'000 * 200, 900}));
  one = {{0, 290'000, 180'000 * 100, 180'000 * 200, 900}};
  CutAway({{100'000, 210'000}}, &one);
  EXPECT_THAT(one, ElementsAre(KernelSpan{0, 100'000, 10'000'000, 20'000'000, 500},
                               KernelSpan{210'000, 290'000, 8'000'000, 16'000'000, 400}));
  for (int64_t at = 110; at < 200; at += 10) other.push_back(Span(at, at + 10, 100));
  const auto used = UsedOf({one, other}, kGrid);
  EXPECT_THAT(used[0], ElementsAre(0, 100'000, 100'000, 180'000));
  EXPECT_THAT(used[1], ElementsAre(0, 0, 90'000, 90'000));
}

TEST(Spans, WhatIsCutIsAllThereAndOnceAndElsewhere) {
  std::mt19937 random(11);
  const auto upto = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(1, most)(random);
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<Away> away;
    for (int64_t at = upto(50); at < 1000; at += upto(100)) {
      const int64_t until = at + upto(80);
      away.push_back({at, until});
      at = until - upto(3);  // they may overlap slightly
    }
    KernelSpans kernels;
    for (int i = 0; i < 20; ++i) {
      const int64_t first = upto(1000);
      kernels.push_back({first, first + upto(300), upto(1'000'000), upto(1'000'000)});
    }
    std::shuffle(away.begin(), away.end(), random);
    KernelSpans parts = kernels;
    CutAway(away, &parts);
    int64_t ran = 0, cycles = 0;
    for (const KernelSpan& each : kernels) ran += each.ran, cycles += each.cycles;
    for (const KernelSpan& each : parts) {
      ran -= each.ran, cycles -= each.cycles;
      const bool whole = std::count(kernels.begin(), kernels.end(), each) != 0;
      for (const Away& gone : away) {
        EXPECT_TRUE(whole || each.last <= gone.from || each.first >= gone.until);
      }
    }
    EXPECT_EQ(ran, 0);
    EXPECT_EQ(cycles, 0);
  }
}

TEST(Spans, APauseBeforeAKernelIsItsOwnWhereItIsShort) {
  const auto used =
      UsedOf({{Span(0, 100, 100)}, {Span(102, 150, 100), Span(160, 200, 100)}}, kGrid);
  EXPECT_THAT(used[0], ElementsAre(0, 100'000, 100'000, 100'000));
  EXPECT_THAT(used[1], ElementsAre(0, 0, 90'000, 90'000));
}

TEST(Spans, WhatIsBeforeTheStartAndAfterTheEndIsLeftOut) {
  const auto used =
      UsedOf({{Span(-500, -400, 100), Span(-100, 50, 100), Span(250, 900, 100)}}, kGrid);
  EXPECT_THAT(used[0], ElementsAre(0, 50'000, 50'000, 100'000));
  EXPECT_THAT(UsedOf({{}}, kGrid)[0], ElementsAre(0, 0, 0, 0));
  EXPECT_TRUE(UsedOf({}, kGrid).empty());
}

TEST(Spans, NoMoreIsUsedThanThereIs) {
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    std::vector<KernelSpans> tenants(3);
    for (KernelSpans& spans : tenants) {
      const auto upto = [&](int most) {
        return std::uniform_int_distribution<int64_t>(1, most)(random);
      };
      int64_t at = upto(40);
      while (at < 400) {
        const int64_t took = upto(30);
        spans.push_back(Span(at, at + took, upto(100)));
        at += took + upto(10) - 1;
      }
    }
    const auto used = UsedOf(tenants, kGrid);
    for (size_t moment = 0; moment < 4; ++moment) {
      int64_t sum = 0;
      for (const auto& each : used) {
        sum += each[moment];
        EXPECT_GE(each[moment], each[moment == 0 ? 0 : moment - 1]);
      }
      EXPECT_LE(sum, static_cast<int64_t>(moment) * 100'000 + 3);
    }
  }
}

TEST(Spans, TheClockOfTheSms) {
  EXPECT_DOUBLE_EQ(SmMhz({{Span(0, 10, 100)}, {Span(5, 9, 3)}}), 1980);
  EXPECT_EQ(SmMhz({{}}), 0);
}

TEST(Spans, AreReadAsTheyWereWrittenAndOnlyWhole) {
  const std::string path = ::testing::TempDir() + "gpushare_spans_" + std::to_string(::getpid());
  const std::vector<KernelSpans> tenants = {{Span(1, 2, 3), Span(4, 5, 6)}, {}, {Span(7, 8, 9)}};
  ASSERT_TRUE(WriteSpans(path, tenants).ok());
  EXPECT_EQ(*ReadSpans(path), tenants);
  const auto size = std::filesystem::file_size(path);
  for (uintmax_t cut = 0; cut < size; cut += 7) {
    std::filesystem::resize_file(path, size - 1 - cut);
    EXPECT_EQ(ReadSpans(path).status().code(), absl::StatusCode::kInternal) << cut;
  }
  std::ofstream(path, std::ios::binary) << std::string(64, '\xff');  // no room for so many
  EXPECT_FALSE(ReadSpans(path).ok());
  std::filesystem::remove(path);
  EXPECT_FALSE(ReadSpans(path).ok());
  EXPECT_FALSE(WriteSpans("/nowhere/spans", tenants).ok());
}

}  // namespace
}  // namespace gpushare::harness
