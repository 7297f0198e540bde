// SPDX-License-Identifier: Apache-2.0
#include "client/time_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>

namespace gpushare::client {
namespace {

using Report = gate::Supply::Report;
using Limits = TimeShare::Limits;

constexpr Time kStart{Seconds(1)};

Report Charged(Nanos charged, Nanos outstanding = Nanos(0), Nanos wanted = Nanos(0)) {
  return {.charged = charged, .outstanding = outstanding, .wanted = wanted};
}

Limits Granted(Nanos granted, Nanos grant) {
  Limits limits;
  limits.granted = granted, limits.grant = grant;
  return limits;
}

TEST(TimeShare, WithoutAGrantNothingIsHandedOut) {
  TimeShare share;
  const auto told = share.Tell({}, Charged(Nanos(0), Nanos(0), Micros(10)), kStart);
  EXPECT_FALSE(told.answer.open);
  EXPECT_FALSE(told.answer.revoke);
  EXPECT_TRUE(told.ring);
  EXPECT_EQ(told.wanted, Micros(10));
  // The broker knows.
  EXPECT_FALSE(share.Tell({}, Charged(Nanos(0), Nanos(0), Micros(10)), kStart + Millis(4)).ring);
  // Now and then again, for what it said may have been seen otherwise.
  EXPECT_TRUE(share.Tell({}, Charged(Nanos(0), Nanos(0), Micros(10)), kStart + Millis(6)).ring);
}

TEST(TimeShare, WhoIsInLineDoesNotCall) {
  TimeShare share;
  Limits limits = Granted(Millis(2), Millis(2));
  EXPECT_TRUE(share.Tell(limits, Charged(Millis(2), Micros(50)), kStart).ring);
  limits.in_line = true;
  for (Time now = kStart; now < kStart + Millis(90); now += Millis(1)) {
    const auto waits = share.Tell(limits, Charged(Millis(2), Nanos(0), Micros(5)), now);
    EXPECT_FALSE(waits.ring);
    EXPECT_TRUE(waits.relies_on_line);
    EXPECT_GT(waits.wanted, Nanos(0));
    EXPECT_FALSE(share.Tell(limits, Charged(Millis(2)), now + Micros(10)).ring);
  }
  // In the end it asks, in case the broker is wrong, and at once when it is struck off.
  EXPECT_TRUE(
      share.Tell(limits, Charged(Millis(2), Nanos(0), Micros(5)), kStart + Millis(101)).ring);
  limits.in_line = false;
  const auto off =
      share.Tell(limits, Charged(Millis(2), Nanos(0), Micros(5)), kStart + Millis(107));
  EXPECT_TRUE(off.ring);
  EXPECT_FALSE(off.relies_on_line);
}

// It has waited for the end of what nobody could predict, and hears of it at once: it looks seldom.
TEST(TimeShare, TheBrokerIsToldWhenAGuessIsDone) {
  TimeShare share;
  const Limits limits = Granted(Millis(2), Millis(2));
  Report guess = Charged(Millis(2), Micros(50));
  guess.ends = kNever;
  EXPECT_EQ(share.Tell(limits, guess, kStart).ends, kNever);
  EXPECT_FALSE(share.Tell(limits, guess, kStart + Micros(40)).ring);
  const Report done = Charged(Millis(2));
  EXPECT_TRUE(share.Tell(limits, done, kStart + Micros(50)).ring);
  EXPECT_FALSE(share.Tell(limits, done, kStart + Micros(60)).ring);
}

// Nobody waits for the end of a guess in the midst of a grant.
TEST(TimeShare, AGuessWithinAGrantIsNobodyElsesAffair) {
  TimeShare share;
  const Limits limits = Granted(Millis(4), Millis(4));
  Report guess = Charged(Micros(100), Micros(50));
  guess.ends = kNever;
  EXPECT_FALSE(share.Tell(limits, guess, kStart).ring);
  EXPECT_FALSE(share.Tell(limits, Charged(Micros(100)), kStart + Micros(50)).ring);
}

TEST(TimeShare, AnIdleProcessSaysNothing) {
  TimeShare share;
  const auto told = share.Tell({}, {}, kStart);
  EXPECT_FALSE(told.ring);
  EXPECT_EQ(told.answer.look_by, kNever);
}

TEST(TimeShare, AtHalfAGrantTheNextIsAskedForOnce) {
  TimeShare share;
  const Limits limits = Granted(Millis(2), Millis(2));
  EXPECT_FALSE(share.Tell(limits, Charged(Millis(1), Micros(50)), kStart).ring);
  const auto low = share.Tell(limits, Charged(Micros(1001), Micros(50)), kStart);
  EXPECT_TRUE(low.ring);
  EXPECT_TRUE(low.answer.open);
  EXPECT_GT(low.wanted, Nanos(0));  // nobody waits yet, and the broker sees that more is to come
  EXPECT_FALSE(share.Tell(limits, Charged(Micros(1500), Micros(50)), kStart).ring);
  const auto used_up = share.Tell(limits, Charged(Millis(2), Micros(50)), kStart);
  EXPECT_TRUE(used_up.ring);
  EXPECT_FALSE(used_up.answer.open);
  EXPECT_FALSE(share.Tell(limits, Charged(Millis(2), Micros(50)), kStart).ring);
  // The next grant.
  const Limits more = Granted(Millis(4), Millis(2));
  EXPECT_FALSE(share.Tell(more, Charged(Millis(2), Micros(50)), kStart).ring);
  EXPECT_TRUE(share.Tell(more, Charged(Micros(3001), Micros(50)), kStart).ring);
}

TEST(TimeShare, ARestThatIsTooSmallIsTheEndOfAGrant) {
  TimeShare share;
  const Limits limits = Granted(Millis(4), Millis(4));
  EXPECT_TRUE(share.Tell(limits, Charged(Millis(3), Millis(2), Micros(900)), kStart).ring);
  EXPECT_FALSE(share.Tell(limits, Charged(Millis(3), Millis(1), Micros(900)), kStart).ring);
  const auto end = share.Tell(limits, Charged(Micros(3900), Micros(900), Micros(900)), kStart);
  EXPECT_TRUE(end.ring);
  EXPECT_FALSE(end.answer.open);
  EXPECT_EQ(end.returned, Nanos(0));  // it goes with the next
  EXPECT_FALSE(
      share.Tell(limits, Charged(Micros(3900), Micros(900), Micros(900)), kStart + Micros(50))
          .ring);
}

// Between two iterations a program wants nothing for a moment; if the broker looked then, it must hear again of whom it
// took for idle.
TEST(TimeShare, WhoBeginsToWaitRingsAgain) {
  TimeShare share;
  const Limits limits = Granted(Millis(2), Millis(2));
  EXPECT_TRUE(share.Tell(limits, Charged(Millis(2), Micros(50)), kStart).ring);
  EXPECT_FALSE(share.Tell(limits, Charged(Millis(2)), kStart + Micros(10)).ring);
  EXPECT_TRUE(
      share.Tell(limits, Charged(Millis(2), Nanos(0), Micros(5)), kStart + Micros(20)).ring);
}

TEST(TimeShare, WhatAnIdleProcessHasLeftGoesBack) {
  TimeShare share;
  const Limits limits = Granted(Millis(2), Millis(2));
  share.Tell(limits, Charged(Micros(500), Micros(500)), kStart);
  const auto idle = share.Tell(limits, Charged(Micros(500)), kStart + Micros(500));
  EXPECT_EQ(idle.returned, Nanos(0));
  EXPECT_EQ(idle.answer.look_by, kStart + Micros(1500));
  const auto returned = share.Tell(limits, Charged(Micros(500)), kStart + Micros(1500));
  EXPECT_EQ(returned.returned, Micros(1500));
  EXPECT_TRUE(returned.ring);
  EXPECT_FALSE(returned.answer.open);
  EXPECT_EQ(returned.answer.look_by, kNever);
  // Back from idle it asks at once.
  const auto back =
      share.Tell(limits, Charged(Micros(500), Nanos(0), Micros(10)), kStart + Seconds(1));
  EXPECT_TRUE(back.ring);
  EXPECT_FALSE(back.answer.open);
  // What comes too late goes back too.
  const Limits late = Granted(Millis(4), Millis(2));
  share.Tell(late, Charged(Micros(500)), kStart + Seconds(2));
  EXPECT_EQ(share.Tell(late, Charged(Micros(500)), kStart + Seconds(2) + Millis(1)).returned,
            Micros(3500));
}

TEST(TimeShare, WhatIsMeasuredCorrectsTheBalance) {
  TimeShare share;
  const Limits limits = Granted(Millis(1), Millis(1));
  EXPECT_FALSE(share.Tell(limits, Charged(Millis(1), Millis(1), Micros(1)), kStart).answer.open);
  const auto told = share.Tell(limits, Charged(Micros(900), Nanos(0), Micros(1)), kStart);
  EXPECT_TRUE(told.answer.open);
  EXPECT_EQ(told.used, Micros(900));
  // It is not taken back what was said to be used.
  EXPECT_EQ(share.Tell(limits, Charged(Micros(800), Nanos(0), Micros(1)), kStart).used,
            Micros(900));
}

TEST(TimeShare, WhileItIsClosedNothingIsHandedOutAndWhatIsNotSpentComesBack) {
  TimeShare share;
  Limits limits = Granted(Seconds(1), Millis(1));
  limits.closed = true;
  const auto told = share.Tell(limits, Charged(Millis(1), Millis(1), Micros(1)), kStart);
  EXPECT_FALSE(told.answer.open);
  EXPECT_TRUE(told.answer.revoke);
  limits.closed = false;
  EXPECT_TRUE(share.Tell(limits, Charged(Millis(1), Millis(1), Micros(1)), kStart).answer.open);
  limits.suspended = true;
  EXPECT_FALSE(share.Tell(limits, Charged(Millis(1), Millis(1), Micros(1)), kStart).answer.open);
}

TEST(TimeShare, WhetherSomebodyGoesFirstIsTheBrokersToSay) {
  TimeShare share;
  Limits limits = Granted(Seconds(1), Millis(1));
  EXPECT_FALSE(share.Tell(limits, Charged(Millis(1), Millis(1)), kStart).answer.below);
  limits.below = true;
  const auto told = share.Tell(limits, Charged(Millis(1), Millis(1), Micros(1)), kStart);
  EXPECT_TRUE(told.answer.below && told.answer.open);
  share.Lose(limits, /*goes_on=*/true, kStart);
  EXPECT_FALSE(share.Tell(limits, Charged(Millis(1), Millis(1)), kStart).answer.below);
}

TEST(TimeShare, HighPriorityNeedsNoGrantAndSaysWhenItIsBusy) {
  TimeShare share;
  Limits limits;
  limits.bypass = limits.closed = true;
  const auto busy = share.Tell(limits, Charged(Millis(1), Millis(1)), kStart);
  EXPECT_TRUE(busy.answer.open);
  EXPECT_FALSE(busy.answer.revoke);
  EXPECT_TRUE(busy.ring);
  EXPECT_EQ(busy.in_flight, Millis(1));
  EXPECT_FALSE(share.Tell(limits, Charged(Millis(2), Millis(1)), kStart).ring);
  const auto idle = share.Tell(limits, Charged(Millis(2)), kStart);
  EXPECT_TRUE(idle.ring);
  EXPECT_TRUE(idle.answer.open);
  EXPECT_EQ(idle.used, Millis(2));
  // A command at the gate has not begun: who is called for it would find nothing in flight.
  EXPECT_FALSE(share.Tell(limits, Charged(Millis(2), Nanos(0), Micros(1)), kStart).ring);
  EXPECT_TRUE(share.Tell(limits, Charged(Millis(3), Millis(1)), kStart).ring);
  EXPECT_TRUE(share.Tell(limits, Charged(Millis(3)), kStart).ring);
  limits.suspended = true;
  EXPECT_FALSE(share.Tell(limits, Charged(Millis(3), Nanos(0), Micros(1)), kStart).answer.open);
}

TEST(TimeShare, WhileThoseBelowHaveTheirTurnNothingIsHandedOut) {
  TimeShare share;
  Limits limits = Granted(Millis(4), Millis(4));
  for (const bool bypass : {true, false}) {
    limits.bypass = bypass;
    limits.held = false;
    EXPECT_TRUE(share.Tell(limits, Charged(Nanos(0), Nanos(0), Micros(1)), kStart).answer.open);
    limits.held = true;
    const auto held = share.Tell(limits, Charged(Nanos(0), Nanos(0), Micros(1)), kStart);
    EXPECT_FALSE(held.answer.open);
    EXPECT_TRUE(held.answer.revoke);
  }
  // Nobody ends it when the broker has gone.
  limits.bypass = true;
  share.Lose(limits, /*goes_on=*/true, kStart);
  EXPECT_TRUE(share.Tell(limits, Charged(Nanos(0), Nanos(0), Micros(1)), kStart).answer.open);
}

TEST(TimeShare, WithoutABrokerWhatTookLongerIsOwed) {
  TimeShare share;
  Limits limits = Granted(Millis(2), Millis(2));
  limits.guarantee_ppm = 500'000;
  share.Tell(limits, Charged(Millis(2)), kStart);
  share.Lose(limits, /*goes_on=*/true, kStart);
  const auto told = share.Tell(limits, Charged(Millis(30), Nanos(0), Millis(1)), kStart);
  EXPECT_FALSE(told.answer.open);
  EXPECT_GE(told.answer.look_by - kStart, Millis(56));
}

TEST(TimeShare, WhatWasUsedWithoutAGrantIsNotOwedLater) {
  TimeShare share;
  Limits limits = Granted(Millis(2), Millis(2));
  share.Tell(limits, Charged(Millis(1), Micros(50)), kStart);
  limits.bypass = true;
  share.Tell(limits, Charged(Seconds(1), Micros(50)), kStart);
  limits.bypass = false;
  const auto told = share.Tell(limits, Charged(Seconds(1) + Micros(500), Micros(50)), kStart);
  EXPECT_TRUE(told.answer.open);
  EXPECT_EQ(told.used, Seconds(1) + Micros(450));  // the broker has charged that
  EXPECT_FALSE(share.Tell(limits, Charged(Seconds(1) + Millis(1), Micros(50)), kStart).answer.open);
}

// An engine that hands out a piece whenever it may, on a device that is its own; `ends` ago it was handed out.
Nanos RunFor(TimeShare& share, const Limits& limits, Nanos charged, Time from, Nanos length) {
  const Nanos piece = Micros(20);
  Time now = from;
  while (now < from + length) {
    const auto told = share.Tell(limits, Charged(charged, Nanos(0), piece), now);
    if (told.answer.open) {
      charged += piece;
      now += piece;
    } else {
      if (told.answer.look_by == kNever) break;
      EXPECT_GT(told.answer.look_by, now);
      now = told.answer.look_by;
    }
  }
  return charged;
}

TEST(TimeShare, WithoutABrokerItsGuaranteeFlowsIn) {
  for (const uint32_t percent : {1u, 30u, 75u}) {
    TimeShare share;
    Limits limits = Granted(Millis(3), Millis(2));
    limits.guarantee_ppm = percent * 10'000;
    limits.closed = true;  // nobody would open it again
    share.Tell(limits, Charged(Millis(1)), kStart);
    share.Lose(limits, /*goes_on=*/true, kStart);
    const Nanos before = RunFor(share, {}, Millis(1), kStart, Seconds(1));
    const Nanos second = RunFor(share, {}, before, kStart + Seconds(1), Seconds(1)) - before;
    EXPECT_NEAR(static_cast<double>(second.count()) / 1e9, percent / 100.0, 0.002) << percent;
    // What it had been granted is spent, too.
    EXPECT_NEAR(static_cast<double>((before - Millis(3)).count()) / 1e9, percent / 100.0, 0.002);
  }
}

TEST(TimeShare, WithoutABrokerAPauseIsNotSavedUp) {
  TimeShare share;
  Limits limits;
  limits.guarantee_ppm = 500'000;
  share.Lose(limits, /*goes_on=*/true, kStart);
  const Time later = kStart + Seconds(100);
  EXPECT_TRUE(share.Tell({}, Charged(Nanos(0), Nanos(0), Micros(1)), later).answer.open);
  EXPECT_TRUE(share.Tell({}, Charged(Micros(4999), Nanos(0), Micros(1)), later).answer.open);
  EXPECT_FALSE(share.Tell({}, Charged(Micros(5000), Nanos(0), Micros(1)), later).answer.open);
}

// It is looked at again when a command fits, not all the time until then; nor does one wait that never would.
TEST(TimeShare, WithoutABrokerALongCommandComesToo) {
  for (const Nanos grant : {Millis(2), Seconds(1)}) {
    TimeShare share;
    Limits limits = Granted(Nanos(0), grant);
    limits.guarantee_ppm = 500'000;
    share.Lose(limits, /*goes_on=*/true, kStart);
    const Report waits = Charged(Nanos(0), Nanos(0), Millis(50));
    Time now = kStart;
    int looks = 0;
    for (; !share.Tell({}, waits, now).answer.open && looks < 3; ++looks) {
      now = share.Tell({}, waits, now).answer.look_by;
    }
    EXPECT_EQ(looks, 1);
    EXPECT_NEAR(static_cast<double>((now - kStart).count()),
                2.0 * static_cast<double>(std::min(grant, Millis(5)).count()), 10);
  }
}

TEST(TimeShare, WithoutABrokerItEndsWithTheGrantIfItIsToldSo) {
  TimeShare share;
  Limits limits = Granted(Millis(2), Millis(2));
  limits.guarantee_ppm = 1'000'000;
  share.Lose(limits, /*goes_on=*/false, kStart);
  EXPECT_EQ(RunFor(share, {}, Nanos(0), kStart, Seconds(10)), Millis(2));
  limits.bypass = true;
  share.Lose(limits, /*goes_on=*/false, kStart);
  EXPECT_FALSE(share.Tell({}, Charged(Millis(2), Nanos(0), Micros(1)), kStart).answer.open);
}

TEST(TimeShare, WithoutABrokerWhoWasSuspendedStaysSo) {
  TimeShare share;
  Limits limits = Granted(Seconds(1), Millis(2));
  limits.suspended = true;
  limits.guarantee_ppm = 1'000'000;
  share.Lose(limits, /*goes_on=*/true, kStart);
  EXPECT_EQ(RunFor(share, {}, Nanos(0), kStart, Seconds(1)), Nanos(0));
}

// Its broker was silent, and goes on from where it was: with what it had granted and what was left or owed of that.
TEST(TimeShare, WhatWasUsedByTheClockIsNotOfTheGrantsOfABrokerThatIsHeardAgain) {
  for (const Nanos spent : {Millis(1), Millis(3), Millis(5)}) {
    TimeShare share;
    Limits limits = Granted(Millis(3), Millis(2));
    limits.guarantee_ppm = 500'000;
    share.Tell(limits, Charged(spent), kStart);
    share.Lose(limits, /*goes_on=*/true, kStart);
    Time now = kStart + Seconds(1);
    Nanos charged = RunFor(share, {}, spent, kStart, Seconds(1));
    EXPECT_GT(charged, Millis(490));
    share.Find();
    const auto told = share.Tell(limits, Charged(charged, Nanos(0), Micros(20)), now);
    EXPECT_FALSE(told.answer.open);
    EXPECT_EQ(told.used, std::max(spent, Millis(3)));
    limits.granted += Millis(4);
    const Nanos before = charged;
    charged = RunFor(share, limits, charged, now, Millis(5));
    EXPECT_EQ(charged - before, Millis(4) - std::max(spent - Millis(3), Nanos(0)));
  }
}

TEST(TimeShare, WhatFlowedInAndWasNotUsedEndsWithTheSilence) {
  TimeShare share;
  Limits limits = Granted(Millis(3), Millis(2));
  limits.guarantee_ppm = 500'000;
  share.Tell(limits, Charged(Millis(2)), kStart);
  share.Lose(limits, /*goes_on=*/true, kStart);
  const Time now = kStart + Seconds(1);
  share.Tell(limits, Charged(Millis(2), Nanos(0), Micros(20)), now);
  share.Find();
  EXPECT_EQ(RunFor(share, limits, Millis(2), now, Millis(5)), Millis(3));
}

TEST(TimeShare, ANewSessionBeginsAtZero) {
  TimeShare share;
  share.Tell(Granted(Millis(4), Millis(2)), Charged(Millis(3), Millis(1)), kStart);
  share.Lose(Granted(Millis(4), Millis(2)), /*goes_on=*/true, kStart);
  share.Tell({}, Charged(Millis(5)), kStart);
  share.Begin();
  const auto told = share.Tell(Granted(Millis(1), Millis(2)), Charged(Millis(5)), kStart);
  EXPECT_TRUE(told.answer.open);
  EXPECT_EQ(told.used, Nanos(0));
  EXPECT_EQ(told.returned, Nanos(0));
  EXPECT_FALSE(
      share.Tell(Granted(Millis(1), Millis(2)), Charged(Millis(6), Nanos(0), Micros(1)), kStart)
          .answer.open);
}

TEST(TimeShare, NonsenseIsSurvived) {
  std::mt19937_64 random(7);
  const auto any = [&]() -> int64_t {
    switch (random() % 4) {
      case 0:
        return INT64_MAX - static_cast<int64_t>(random() % 3);
      case 1:
        return INT64_MIN + static_cast<int64_t>(random() % 3);
      case 2:
        return static_cast<int64_t>(random());
      default:
        return static_cast<int64_t>(random() % 10'000'000);
    }
  };
  TimeShare share;
  Nanos charged{0};
  Time now = kStart;
  for (int i = 0; i < 100'000; ++i) {
    Limits limits = Granted(Nanos(any()), Nanos(any()));
    limits.closed = random() % 4 == 0, limits.suspended = random() % 8 == 0;
    limits.bypass = random() % 8 == 0, limits.guarantee_ppm = static_cast<uint32_t>(random());
    charged += Nanos(random() % 1'000'000);
    now += Nanos(random() % 10'000'000);
    if (random() % 100 == 0) share.Lose(limits, random() % 2 == 0, now);
    if (random() % 100 == 0) share.Begin();
    if (random() % 100 == 0) share.Find();
    const auto told = share.Tell(
        limits, Charged(charged, Nanos(random() % 1000), Nanos(random() % 2 * 1000)), now);
    EXPECT_FALSE(told.answer.open && told.answer.revoke);
    EXPECT_GE(told.used, Nanos(0));
    EXPECT_GE(told.returned, Nanos(0));
    EXPECT_GT(told.answer.look_by, now);
  }
}

// Against a broker that looks only when it is rung for, grants only to whom it then sees wanting, and may say that it
// will: no more is spent than was granted, and nobody waits whom the broker has forgotten.
TEST(TimeShare, NobodyIsForgotten) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const Nanos grant = Micros(100 + static_cast<int64_t>(random() % 2000));
    const Nanos piece = Micros(1 + static_cast<int64_t>(random() % 50));
    TimeShare share;
    Limits limits = Granted(Nanos(0), grant);
    Nanos charged{0}, outstanding{0}, wanted{0};
    bool rung = false, queued = false;
    Time now = kStart;
    TimeShare::Told told;
    int forgotten = 0;
    const auto tell = [&] {
      limits.in_line = queued && seed % 2 == 0;
      told = share.Tell(limits, Charged(charged, outstanding, wanted), now);
      rung |= told.ring;
    };
    for (int step = 0; step < 5000; ++step) {
      now += Nanos(random() % 20'000);
      switch (random() % 6) {
        case 0:
        case 1:  // a launch
          wanted = piece;
          tell();
          if (told.answer.open) {
            charged += piece, outstanding += piece, wanted = Nanos(0);
            tell();
          }
          break;
        case 2:  // all of it is done
          outstanding = Nanos(0);
          tell();
          break;
        case 3:  // the program pauses
          if (random() % 8 == 0 && wanted == Nanos(0)) {
            outstanding = Nanos(0);
            tell();
            now += Millis(3);
            tell();
          }
          break;
        case 4:  // the broker is rung for
          if (std::exchange(rung, false)) queued = told.wanted > Nanos(0);
          break;
        default:  // and it is the process's turn
          if (queued && told.wanted > Nanos(0)) {
            limits.granted += grant;
            queued = false;
            tell();
          } else {
            queued = false;
          }
      }
      if (wanted > Nanos(0) && !told.answer.open && !rung && !queued) {
        ASSERT_LT(++forgotten, 2) << "seed " << seed << ", step " << step;
      } else {
        forgotten = 0;
      }
      ASSERT_LE(charged + told.returned, limits.granted + piece) << seed;
      ASSERT_LE(told.used, charged) << seed;
    }
    EXPECT_GT(charged, Nanos(0)) << seed;
  }
}

}  // namespace
}  // namespace gpushare::client
