// SPDX-License-Identifier: Apache-2.0
#include "broker/copy_book.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/unit/broker/pages.h"

namespace gpushare::broker {
namespace {

constexpr double kRate = 1e9;
constexpr uint64_t kTurnBytes = 2'000'000;  // 2 ms at the full rate

spec::Limits ToDevice(double rate) {
  spec::Limits limits;
  limits.h2d_bytes_per_s = rate;
  return limits;
}

class CopyBookTest : public ::testing::Test {
 protected:
  CopyBookTest() { book.SetLimits(ToDevice(kRate), now, changed); }
  // For `time`, each process copies a piece whenever it has a grant, like a gate. A size of 0 copies nothing.
  void Run(Nanos time, const std::vector<uint64_t>& pieces) {
    for (const Time end = now + time; now < end;) {
      for (size_t i = 0; i < pieces.size(); ++i) {
        Pages& page = pages[i];
        if (pieces[i] == 0) continue;
        while (page.limits.copy_granted[0] > copied[i]) copied[i] += pieces[i];
        page.usage.copy_wanted[0] = copied[i] + 1;
      }
      const Time next = book.Look(now, changed);
      ASSERT_GT(next, now);
      now = std::min({next, now + Micros(100), end});
    }
  }
  uint64_t Granted(size_t i) { return pages[i].limits.copy_granted[0]; }

  std::array<Pages, 3> pages;
  std::array<uint64_t, 3> copied{};
  Changed changed;
  CopyBook book;
  Time now{Seconds(1)};
};

TEST_F(CopyBookTest, TheSumKeepsToTheLimitAndEachGetsTheSame) {
  for (Pages& each : pages) book.Join(each.seat, changed);
  Run(Seconds(1), {4 << 20, 64 << 10, 1 << 20});
  const double sum = static_cast<double>(copied[0] + copied[1] + copied[2]);
  // One piece and one turn of each process, and the saved-up credit.
  EXPECT_NEAR(sum / kRate, 1, 0.025);
  for (const uint64_t each : copied) EXPECT_NEAR(static_cast<double>(each) / sum, 1.0 / 3, 0.01);
}

TEST_F(CopyBookTest, WhatOneDoesNotAskForIsTheOthers) {
  for (Pages& each : pages) book.Join(each.seat, changed);
  Run(Seconds(1), {4 << 20, 0, 0});
  EXPECT_NEAR(static_cast<double>(copied[0]) / kRate, 1, 0.02);
  EXPECT_EQ(Granted(1), 0u);
  // After a pause no more than the saved-up credit passes at once.
  now += Seconds(5);
  Run(Millis(100), {4 << 20, 4 << 20, 0});
  EXPECT_NEAR(static_cast<double>(copied[0] + copied[1]) / kRate, 1.11, 0.03);
}

TEST_F(CopyBookTest, AWishWithoutBoundsGetsItsTurnsAndNoMore) {
  book.Join(pages[0].seat, changed);
  book.Join(pages[1].seat, changed);
  pages[1].usage.copy_wanted[0] = UINT64_MAX;
  Run(Seconds(1), {1 << 20, 0});
  EXPECT_NEAR(static_cast<double>(copied[0]) / kRate, 0.5, 0.01);
  EXPECT_NEAR(static_cast<double>(Granted(1)) / kRate, 0.5, 0.01);
}

TEST_F(CopyBookTest, WhoWantsLittleIsWokenOnceAndWhoWantsMuchWhenItHasCome) {
  book.Join(pages[0].seat, changed);
  changed.Take();
  pages[0].usage.copy_wanted[0] = 3 * kTurnBytes;
  int woken = 0;
  for (int i = 0; i < 2000 && woken == 0; ++i) {
    now = std::min(book.Look(now, changed), now + Millis(1));
    woken += static_cast<int>(changed.Take().size());
    if (woken == 0) {
      EXPECT_LT(Granted(0), 3 * kTurnBytes);
    }
  }
  EXPECT_EQ(woken, 1);
  EXPECT_EQ(Granted(0), 3 * kTurnBytes);
  EXPECT_EQ(book.Look(now, changed), kNever);
}

TEST_F(CopyBookTest, PagesSayWhatAProcessMayCopyAlone) {
  CopyBook::Member* const first = book.Join(pages[0].seat, changed);
  EXPECT_EQ(pages[0].limits.copy_rate[0], 1'000'000'000u);
  EXPECT_EQ(pages[0].limits.copy_rate[1], 0u);
  book.Join(pages[1].seat, changed);
  EXPECT_EQ(pages[0].limits.copy_rate[0], 500'000'000u);
  book.Leave(first, now, changed);
  EXPECT_EQ(pages[1].limits.copy_rate[0], 1'000'000'000u);
  // A limit is removed, added and changed while the processes run.
  book.SetLimits(ToDevice(0), now, changed);
  EXPECT_EQ(pages[1].limits.copy_rate[0], 0u);
  pages[1].usage.copy_wanted[0] = 1;
  EXPECT_EQ(book.Look(now, changed), kNever);
  book.SetLimits(ToDevice(1), now, changed);
  EXPECT_EQ(pages[1].limits.copy_rate[0], 1u);
  now += Seconds(1);
  book.Look(now, changed);
  EXPECT_EQ(pages[1].limits.copy_granted[0], CopyBook::kLeastTurn);
  pages[1].usage.copy_wanted[0] = CopyBook::kLeastTurn + 1;
  // The turn was 64 KiB at one byte a second.
  EXPECT_GT(book.Look(now + Seconds(3600), changed), now + Seconds(60'000));
}

TEST_F(CopyBookTest, WhatOneOwesItsTenantPaysWhenItEnds) {
  book.Join(pages[1].seat, changed);
  // Each process copies once, for which the first byte of a grant is enough, and ends.
  double copied_once = 0;
  for (const Time end = now + Seconds(1); now < end;) {
    pages[0].limits.copy_granted[0] = pages[0].usage.copy_used[0] = 0;
    pages[0].usage.copy_wanted[0] = 1;
    CopyBook::Member* const one = book.Join(pages[0].seat, changed);
    while (Granted(0) == 0) now = std::min(book.Look(now, changed), now + Micros(100));
    pages[0].usage.copy_wanted[0] = 0;
    pages[0].usage.copy_used[0] = 8 << 20;
    copied_once += 8 << 20;
    book.Leave(one, now, changed);
  }
  EXPECT_NEAR(copied_once / kRate, 1, 0.02);
  // A process's figure cannot hold the others up for ever. Unused bytes are not given back, since the figure may be
  // anything.
  pages[0].limits.copy_granted[0] = 0;
  pages[0].usage.copy_used[0] = UINT64_MAX;
  book.Leave(book.Join(pages[0].seat, changed), now, changed);
  pages[1].usage.copy_wanted[0] = 1;
  const Time again = book.Look(now, changed);
  EXPECT_LT(again, now + CopyBook::kMostOwed + Millis(10));
  now = again;
  book.Look(now, changed);
  EXPECT_EQ(Granted(1), kTurnBytes);
  pages[1].usage.copy_used[0] = 0;
  pages[1].usage.copy_wanted[0] = kTurnBytes + 1;
  EXPECT_GT(book.Look(now, changed), now + Millis(1));
}

TEST_F(CopyBookTest, DirectionsAreApart) {
  spec::Limits both = ToDevice(kRate);
  both.d2h_bytes_per_s = 2 * kRate;
  book.SetLimits(both, now, changed);
  book.Join(pages[0].seat, changed);
  now += Millis(1);
  pages[0].usage.copy_wanted[1] = 1;
  book.Look(now, changed);
  EXPECT_EQ(pages[0].limits.copy_granted[0], 0u);
  EXPECT_EQ(pages[0].limits.copy_granted[1], 2 * kTurnBytes);
}

TEST_F(CopyBookTest, AParentsLimitIsOfTheSumAndAChildsOfItself) {
  CopyBook slow, fast;
  for (CopyBook* const child : {&slow, &fast}) child->SetParent(&book);
  slow.SetLimits(ToDevice(kRate / 10), now, changed);
  slow.Join(pages[0].seat, changed);
  fast.Join(pages[1].seat, changed);
  book.Join(pages[2].seat, changed);
  EXPECT_EQ(pages[0].limits.copy_rate[0], 100'000'000u);
  EXPECT_EQ(pages[1].limits.copy_rate[0], 333'333'333u) << "a third of the parent's";
  Run(Seconds(1), {1 << 20, 1 << 20, 1 << 20});
  EXPECT_NEAR(static_cast<double>(copied[0]) / kRate, 0.1, 0.02);
  EXPECT_NEAR(static_cast<double>(copied[1]) / kRate, 0.45, 0.02);
  EXPECT_NEAR(static_cast<double>(copied[2]) / kRate, 0.45, 0.02);
  EXPECT_EQ(fast.Look(now, changed), kNever) << "the parent's book serves it";
}

// What a child's process owes when it ends is owed to both limits.
TEST_F(CopyBookTest, WhatAChildOwesItsParentOwesToo) {
  CopyBook child;
  child.SetParent(&book);
  CopyBook::Member* const one = child.Join(pages[0].seat, changed);
  book.Join(pages[1].seat, changed);
  pages[0].usage.copy_used[0] = 1'000'000'000;
  child.Leave(one, now, changed);
  pages[1].usage.copy_wanted[0] = 1;
  EXPECT_GT(book.Look(now, changed), now + Millis(980));
}

}  // namespace
}  // namespace gpushare::broker
