// SPDX-License-Identifier: Apache-2.0
// A tenant whose processes on several GPUs wait for each other.
#include "broker/collective.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

#include "broker/time_book.h"
#include "tests/unit/broker/pages.h"

namespace gpushare::broker {
namespace {

constexpr Nanos kSlice = Micros(50);
constexpr Nanos kUnseen = Millis(10);  // a process charges overdue work after this time

// One process on each GPU, all of one tenant. Each step is work of the process itself, followed by a kernel that ends
// once it runs on all GPUs at the same time.
class Ranks {
 public:
  struct Rank {
    TimeBook book;
    TimeBook::Tenant* tenant = nullptr;
    TimeBook::Member* member = nullptr;
    Pages pages;
    Nanos work{0};    // the process's own work in a step
    Nanos left{0};    // what remains of that in this step
    bool in = false;  // the collective's kernel is on the device
    Time in_since{};
    int64_t charged_ns = 0;  // charged for spinning
    int64_t ran_ns = 0;
    Nanos longest{0};    // the longest time that it spun
    bool stuck = false;  // its work does not end
    Nanos command{0};    // the length of each of its commands, if longer than a slice
    Nanos runs{0};       // what remains of the running command
  };

  Ranks(int count, double cap, Nanos work, bool joined = true) {
    for (int i = 0; i < count; ++i) {
      Rank& rank = ranks.emplace_back();
      // Like the books of real GPUs, each is somewhat later than the previous one.
      rank.work = rank.left = work + i * Micros(100);
      rank.tenant = rank.book.AddTenant({.cap = cap}, now, joined ? &collective : nullptr);
      rank.member = rank.book.Join(rank.tenant, rank.pages.seat, now, changed);
    }
  }

  void Run(Nanos span) {
    for (const Time end = now + span; now < end;) {
      now += kSlice;
      for (Rank& rank : ranks) Advance(rank);
      const bool met = std::all_of(ranks.begin(), ranks.end(),
                                   [](const Rank& rank) { return rank.in && !rank.stuck; });
      for (Rank& rank : ranks) {
        if (met) End(rank);
      }
      steps += met;
      for (Rank& rank : ranks) {
        rank.book.Look(now, changed);
        ASSERT_STREQ(rank.book.CheckInvariants(), nullptr);
      }
    }
  }
  void Stick(Rank& rank) {
    if (!rank.in) Begin(rank);
    rank.stuck = true;
  }
  void Unstick(Rank& rank) {
    rank.stuck = false;
    End(rank);
  }
  double Part(const Rank& rank, Nanos of) const {
    return static_cast<double>(rank.ran_ns) / static_cast<double>(of.count());
  }

  Collective collective;
  Changed changed;
  std::deque<Rank> ranks;
  Time now{Seconds(1)};
  int steps = 0;

 private:
  void Advance(Rank& rank) {
    ipc::UsagePage& usage = rank.pages.usage;
    usage.time_wanted_ns = rank.in ? 0 : kSlice.count();
    if (rank.in) {
      rank.ran_ns += kSlice.count();
      // Overdue work is charged while it runs.
      const int64_t spun = (now - rank.in_since - kUnseen).count();
      if (spun > rank.charged_ns) Charge(rank, spun - rank.charged_ns);
      return;
    }
    if (rank.runs > Nanos(0)) {
      rank.ran_ns += kSlice.count();
      rank.runs -= kSlice;
      if (rank.runs > Nanos(0)) return;
      usage.time_in_flight_ns = 0;
      usage.time_used_ns += rank.command.count();
      return;
    }
    if (rank.pages.time_left() <= 0) return;
    if (rank.pages.limits.flags & ipc::LimitsPage::kClosed) return;
    if (rank.command > Nanos(0)) {
      rank.runs = rank.command;
      usage.time_in_flight_ns = rank.command.count();
      usage.time_ends_ns = (now + rank.command).time_since_epoch().count();
      return;
    }
    if (rank.left > Nanos(0)) {
      rank.left -= kSlice;
      rank.ran_ns += kSlice.count();
      usage.time_used_ns += kSlice.count();
      return;
    }
    Begin(rank);
  }
  void Begin(Rank& rank) {
    rank.in = true;
    rank.in_since = now;
    rank.pages.usage.time_in_flight_ns = Micros(20).count();
    rank.pages.usage.time_ends_ns = (now + Micros(20)).time_since_epoch().count();
  }
  void Charge(Rank& rank, int64_t ns) {
    rank.charged_ns += ns;
    rank.pages.usage.time_used_ns += ns;
  }
  void End(Rank& rank) {
    const Nanos spun = now - rank.in_since;
    rank.longest = std::max(rank.longest, spun);
    Charge(rank, std::max<int64_t>(0, spun.count() - rank.charged_ns));
    rank.charged_ns = 0;
    rank.in = false;
    rank.left = rank.work;
    rank.pages.usage.time_in_flight_ns = 0;
  }
};

// Each process is held for its own cap while the others spin; the charge for the spinning holds those even longer.
TEST(Collective, CapsOfRanksThatWaitForOneAnotherRunAwayByThemselves) {
  Ranks ranks(2, 0.3, Millis(1), /*joined=*/false);
  ranks.Run(Seconds(5));
  EXPECT_LT(ranks.steps, 100);  // out of 1500 that the cap allows
}

TEST(Collective, CapsHoldInStep) {
  for (const double cap : {0.1, 0.3, 0.5, 0.8}) {
    for (const Nanos work : {Micros(300), Millis(1), Millis(10)}) {
      for (const int count : {2, 4}) {
        SCOPED_TRACE(testing::Message() << "cap " << cap << ", " << work.count() << " ns of work, "
                                        << count << " GPUs");
        Ranks ranks(count, cap, work);
        ranks.Run(Seconds(1));
        const int before = std::exchange(ranks.steps, 0);
        EXPECT_GT(before, 0);
        for (Ranks::Rank& rank : ranks.ranks) rank.ran_ns = 0;
        ranks.Run(Seconds(2));
        // A step takes as long as the longest work; the others spin meanwhile and are charged for that.
        const Nanos step = work + (count - 1) * Micros(100) + kSlice;
        const double allowed = cap * 2e9 / static_cast<double>(step.count());
        EXPECT_GE(ranks.steps, (cap < 0.8 ? 0.8 : 0.6) * allowed);
        for (const Ranks::Rank& rank : ranks.ranks) {
          EXPECT_LE(ranks.Part(rank, Seconds(2)), cap + 0.01);
          EXPECT_LE(rank.longest, Millis(6));
        }
      }
    }
  }
}

// Work that never ends on one GPU lets only a stated amount pass a cap on another GPU, whatever takes longer than its
// grant.
TEST(Collective, WhatNeverEndsIsNotWaitedForWithoutBound) {
  for (const double cap : {0.05, 0.2, 0.5}) {
    for (const Nanos command : {Nanos(0), Millis(1), Millis(10), Millis(40), Millis(100)}) {
      SCOPED_TRACE(testing::Message() << "cap " << cap << ", " << command.count() << " ns each");
      Ranks ranks(2, cap, Seconds(3600));
      Ranks::Rank &stuck = ranks.ranks[0], &works = ranks.ranks[1];
      works.command = command;
      ranks.Stick(stuck);
      ranks.Run(Seconds(10));
      // 20 ms at once, and then an eleventh of the time, with an error of one command.
      const double one = static_cast<double>(command.count()) / 10e9;
      EXPECT_LE(ranks.Part(works, Seconds(10)), std::max(cap, 1.0 / 11) + 0.015 + 2 * one);
      EXPECT_GE(ranks.Part(works, Seconds(10)), cap - 0.01 - 2 * one);
    }
  }
}

// Work that is repeatedly late gains nothing either: the time that has passed the cap is paid before the same amount
// passes again.
TEST(Collective, WhatIsLateAgainAndAgainGainsNothing) {
  Ranks ranks(2, 0.2, Seconds(3600));
  Ranks::Rank &late = ranks.ranks[0], &works = ranks.ranks[1];
  for (int i = 0; i < 100; ++i) {
    ranks.Stick(late);
    ranks.Run(Millis(30));
    ranks.Unstick(late);
    ranks.Run(Millis(20));
  }
  EXPECT_LE(ranks.Part(works, Seconds(5)), 0.22);
}

// Only its own cap holds a tenant on a single GPU.
TEST(Collective, OfOneGpuIsNothing) {
  Ranks ranks(1, 0.3, Millis(1));
  ranks.Run(Seconds(2));
  EXPECT_NEAR(ranks.Part(ranks.ranks[0], Seconds(2)), 0.3, 0.01);
}

}  // namespace
}  // namespace gpushare::broker
