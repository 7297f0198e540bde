// SPDX-License-Identifier: Apache-2.0
#include "broker/time_book.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "tests/unit/broker/time_book_bench.h"

namespace gpushare::broker {
namespace {

using Bench = TimeBookBench;

TEST(TimeBook, DividesByWeight) {
  Bench bench;
  auto& a = bench.Start(bench.Tenant({.weight = 3}));
  auto& b = bench.Start(bench.Tenant({.weight = 1}));
  bench.Run(Seconds(2));
  EXPECT_NEAR(bench.Part(a, Seconds(2)), 0.75, 0.01);
  EXPECT_NEAR(bench.Part(b, Seconds(2)), 0.25, 0.01);
  EXPECT_GE(bench.busy_ns, 1'980'000'000);
}

TEST(TimeBook, CountsHowLongWhoWasInLine) {
  Bench bench;
  TimeBook::Tenant *one = bench.Tenant({}), *other = bench.Tenant({});
  bench.Start(one);
  bench.Run(Millis(200));
  EXPECT_LT(one->waits.sum, Millis(100));  // alone it asks ahead of time
  bench.Start(other);
  bench.Run(Millis(200));
  // Turns of 4 ms: a process that has used half of one waits until its own rest and the other's turn are over.
  const uint64_t times =
      std::accumulate(other->waits.counts.begin(), other->waits.counts.end(), uint64_t{0});
  EXPECT_GT(times, 10u);
  EXPECT_GT(other->waits.sum, Millis(40));
  EXPECT_LT(other->waits.sum, Millis(200));
  EXPECT_EQ(one->preempted + other->preempted, 0u);
  TimeBook::Tenant* first = bench.Tenant({.band = sched::Band::kHigh});
  Bench::Process& bypasses = bench.Start(first);
  bench.Run(Millis(5));
  EXPECT_GE(one->preempted + other->preempted, 1u);
  EXPECT_LE(one->preempted + other->preempted, 2u);
  bypasses.busy = false;
  bench.Run(Millis(50));
  const uint64_t before = one->preempted + other->preempted;
  bypasses.busy = true;
  bench.Run(Millis(5));
  EXPECT_GT(one->preempted + other->preempted, before);
}

TEST(TimeBook, GuaranteesAndACap) {
  Bench bench;
  auto& a = bench.Start(bench.Tenant({.guarantee = 0.5}));
  auto& b = bench.Start(bench.Tenant({.guarantee = 0.1, .cap = 0.1}));
  auto& c = bench.Start(bench.Tenant({}));
  bench.Run(Seconds(2));
  EXPECT_NEAR(bench.Part(b, Seconds(2)), 0.1, 0.01);
  EXPECT_GE(bench.Part(a, Seconds(2)), 0.49);
  EXPECT_NEAR(bench.Part(a, Seconds(2)) + bench.Part(c, Seconds(2)), 0.9, 0.015);
}

TEST(TimeBook, ACapAlone) {
  for (const double cap : {0.1, 0.3, 0.5, 0.8}) {
    Bench bench;
    auto& a = bench.Start(bench.Tenant({.cap = cap}));
    bench.Run(Seconds(2));
    EXPECT_NEAR(bench.Part(a, Seconds(2)), cap, 0.01) << cap;
  }
}

TEST(TimeBook, ProcessesOfATenantShareWhatItGets) {
  Bench bench;
  TimeBook::Tenant* const pair = bench.Tenant({});
  auto& a = bench.Start(pair);
  auto& b = bench.Start(pair);
  auto& c = bench.Start(bench.Tenant({}));
  bench.Run(Seconds(2));
  EXPECT_NEAR(bench.Part(a, Seconds(2)), 0.25, 0.015);
  EXPECT_NEAR(bench.Part(b, Seconds(2)), 0.25, 0.015);
  EXPECT_NEAR(bench.Part(c, Seconds(2)), 0.5, 0.01);
}

// The shares for the time after the broker has ended: in sum no more than the device, and something for everybody.
TEST(TimeBook, EachHasAPartForTheTimeWithoutABroker) {
  Bench bench;
  const auto ppm = [](const Bench::Process& process) {
    return process.pages.limits.guarantee_ppm.load();
  };
  auto& guaranteed = bench.Start(bench.Tenant({.guarantee = 0.4}));
  auto& capped = bench.Start(bench.Tenant({.cap = 0.1}));
  TimeBook::Tenant* const pair = bench.Tenant({.weight = 2});
  auto& first = bench.Start(pair);
  bench.Run(Millis(1));
  EXPECT_NEAR(ppm(guaranteed), 550'000, 1);  // 40 %, and a quarter of the rest
  EXPECT_NEAR(ppm(capped), 100'000, 1);
  EXPECT_NEAR(ppm(first), 300'000, 1);
  auto& second = bench.Start(pair);
  bench.Run(Millis(1));
  EXPECT_NEAR(ppm(first), 150'000, 1);
  EXPECT_NEAR(ppm(second), 150'000, 1);
}

TEST(TimeBook, TheShareOfOneThatIsIdleIsLentAndComesBack) {
  Bench bench;
  auto& a = bench.Start(bench.Tenant({}));
  auto& b = bench.Start(bench.Tenant({}));
  a.busy = false;
  bench.Run(Seconds(1));
  EXPECT_GE(bench.Part(b, Seconds(1)), 0.98);
  a.busy = true;
  const int64_t before = b.ran_ns;
  bench.Run(Seconds(1));
  EXPECT_NEAR(bench.Part(a, Seconds(1)), 0.5, 0.03);
  EXPECT_NEAR(static_cast<double>(b.ran_ns - before) / 1e9, 0.5, 0.03);
}

// From then on its page changes only where the test writes it.
void GetAGrantAndStop(Bench& bench, Bench::Process& process) {
  process.pages.usage.time_wanted_ns = 1000;
  bench.Look();
  ASSERT_GT(process.pages.time_left(), 0);
  process.gone = true;
}

// A process that has a grant and neither runs nor reports anything does not keep the device.
TEST(TimeBook, WhatIsNeitherUsedNorReturnedLapses) {
  Bench bench;
  auto& a = bench.Start(bench.Tenant({}));
  auto& b = bench.Start(bench.Tenant({}));
  GetAGrantAndStop(bench, a);
  bench.Run(Seconds(1));
  EXPECT_GE(bench.Part(b, Seconds(1)), 0.98);
}

// What a process uses late is not beside a grant of another, if it goes on using it.
TEST(TimeBook, WhatHasLapsedIsHeldAgainWhenItIsUsed) {
  Bench bench;
  auto& late = bench.Start(bench.Tenant({.guarantee = 0.3}));
  auto& other = bench.Start(bench.Tenant({}));
  late.pages.usage.time_wanted_ns = 500'000;
  bench.Look();
  ASSERT_EQ(late.pages.time_left(), 4'000'000);
  other.pages.usage.time_wanted_ns = 500'000;
  bench.now += Millis(5);
  bench.Look();
  ASSERT_EQ(other.pages.time_left(), 4'000'000);  // late's has lapsed
  late.pages.usage.time_used_ns = 1'000'000;
  other.pages.usage.time_used_ns = 4'000'000;
  bench.now += Millis(4);
  bench.Look();
  EXPECT_EQ(other.pages.time_left(), 0);
  EXPECT_EQ(late.member->charged_ns, 2'000'000);
  late.pages.usage.time_used_ns = 3'500'000;
  bench.now += Millis(2);
  bench.Look();
  EXPECT_EQ(other.pages.time_left(), 0);
  // Its next turn is due too.
  late.pages.usage.time_used_ns = 4'000'000;
  bench.now += Micros(500);
  bench.Look();
  EXPECT_EQ(late.pages.time_left(), 4'000'000);
  EXPECT_EQ(other.pages.time_left(), 0);
}

// Who uses little of what has lapsed does not keep the device with it.
TEST(TimeBook, WhatHasLapsedIsHeldInProportionToItsUse) {
  Bench bench;
  auto& late = bench.Start(bench.Tenant({}));
  auto& other = bench.Start(bench.Tenant({}));
  GetAGrantAndStop(bench, late);
  bench.Run(Millis(10));
  const int64_t before = other.ran_ns;
  for (int i = 0; i < 600; ++i) {
    late.pages.usage.time_used_ns += 5000;
    bench.Run(Bench::kSlice);
  }
  // Of 60 ms. 3 are late's, 4 and 3 % may pass in waiting for it, and it may hold 8 without using them.
  EXPECT_GE(other.ran_ns - before, 42'000'000);
}

// The rest of each grant is too little for the next command. However often that was so, a process that stops keeps the device no
// longer than its grant.
TEST(TimeBook, WhatAProcessHoldsLapsesInTimeHoweverOftenARestWasLeft) {
  Bench bench;
  auto& a = bench.Start(bench.Tenant({}));
  auto& b = bench.Start(bench.Tenant({}));
  a.gone = true;  // its page is written here
  b.busy = false;
  ipc::UsagePage& usage = a.pages.usage;
  usage.time_wanted_ns = 2'500'000;
  bench.Look();
  for (int i = 0; i < 100; ++i) {
    ASSERT_GE(a.pages.time_left(), 2'500'000) << i;
    usage.time_in_flight_ns = 2'500'000;
    usage.time_ends_ns = (bench.now + Micros(2500)).time_since_epoch().count();
    bench.Run(Micros(2500));
    usage.time_in_flight_ns = 0;
    usage.time_used_ns += 2'500'000;
    bench.Look();
  }
  b.busy = true;
  bench.Run(Millis(20));
  EXPECT_GE(b.ran_ns, 11'000'000);
}

// Likewise beside a high tenant whose cap frees the device for less time than the stopped process's grant would take.
// The grant's time stands still while the device is closed, and continues afterwards.
TEST(TimeBook, WhatAStoppedProcessHoldsLapsesBesideACappedHighTenant) {
  Bench bench;
  bench.Start(bench.Tenant({.cap = 0.6, .band = sched::Band::kHigh}));
  auto& stopped = bench.Start(bench.Tenant({}));
  auto& b = bench.Start(bench.Tenant({.guarantee = 0.3}));
  b.busy = false;
  for (int i = 0; i < 1000 && stopped.pages.time_left() <= 0; ++i) bench.Run(Millis(1));
  ASSERT_GT(stopped.pages.time_left(), 0);
  stopped.gone = b.busy = true;
  b.ran_ns = 0;
  bench.Run(Seconds(1));
  EXPECT_GE(bench.Part(b, Seconds(1)), 0.3);
}

// The rest of a grant is too small for the next command, so nothing will run in it. The next grant comes when the
// work in flight ends, by its process's own prediction, and not when the grant would have been used up.
TEST(TimeBook, TheNextGrantComesWhenTheLastCommandThatFitsIsDone) {
  Bench bench;
  auto& a = bench.Start(bench.Tenant({}));
  auto& b = bench.Start(bench.Tenant({}));
  a.pages.usage.time_wanted_ns = 1'500'000;
  bench.Look();
  ASSERT_EQ(a.pages.time_left(), 4'000'000);
  b.pages.usage.time_wanted_ns = 100'000;
  bench.Look();
  ASSERT_EQ(b.pages.time_left(), 0);
  // Commands of 1.5 ms, and 1 ms is left over: the first command is done, the second ends in 1.4 ms.
  bench.now += Micros(1600);
  const Time ends = bench.now + Micros(1400);
  a.pages.usage.time_used_ns = 1'500'000;
  a.pages.usage.time_in_flight_ns = 1'500'000;
  a.pages.usage.time_ends_ns = ends.time_since_epoch().count();
  const Time next = bench.Look();
  EXPECT_EQ(b.pages.time_left(), 0);
  EXPECT_GE(next, ends - Micros(30));
  EXPECT_LE(next, ends);
  bench.now = next;
  bench.Look();
  EXPECT_EQ(b.pages.time_left(), 4'000'000);
  EXPECT_EQ(bench.book.CheckInvariants(), nullptr);
  // The rest of the grant still belongs to it.
  EXPECT_EQ(a.pages.time_left(), 1'000'000);
}

// If a process's prediction is a guess, its work in flight is done when it says so, and no clock can tell earlier.
TEST(TimeBook, TheEndOfAGuessIsWaitedFor) {
  for (const int64_t used :
       {3'950'000, 4'000'000, 4'500'000}) {  // also after using more than the grant
    Bench bench;
    auto& a = bench.Start(bench.Tenant({}));
    auto& b = bench.Start(bench.Tenant({}));
    a.pages.usage.time_wanted_ns = 100'000;
    bench.Look();
    b.pages.usage.time_wanted_ns = 100'000;
    a.pages.usage.time_used_ns = used;
    a.pages.usage.time_in_flight_ns = 50'000;
    a.pages.usage.time_ends_ns = ipc::UsagePage::kGuess;
    for (int i = 0; i < 100; ++i) {
      bench.now += Micros(100);
      bench.Look();
      ASSERT_EQ(b.pages.time_left(), 0) << i;
    }
    a.pages.usage.time_in_flight_ns = 0;
    a.pages.usage.time_used_ns = 5'000'000;
    bench.Look();
    EXPECT_EQ(b.pages.time_left(), 4'000'000);
    EXPECT_EQ(bench.book.CheckInvariants(), nullptr);
  }
}

// A prediction that has been exceeded says nothing: the work may take any time from then on.
TEST(TimeBook, WhatIsOverdueIsWaitedFor) {
  Bench bench;
  auto& a = bench.Start(bench.Tenant({}));
  auto& b = bench.Start(bench.Tenant({}));
  a.pages.usage.time_wanted_ns = 3'000'000;
  bench.Look();
  b.pages.usage.time_wanted_ns = 100'000;
  a.pages.usage.time_in_flight_ns = 3'000'000;
  a.pages.usage.time_ends_ns = (bench.now + Millis(3)).time_since_epoch().count();
  for (int i = 0; i < 100; ++i) {
    bench.now += Micros(100);
    if (bench.now >= Time(Seconds(1)) + Micros(2900) &&
        bench.now <= Time(Seconds(1)) + Micros(3020))
      continue;  // skips the predicted end
    bench.Look();
    ASSERT_EQ(b.pages.time_left(), 0) << i;
  }
  // Now the work is done.
  a.pages.usage.time_in_flight_ns = 0;
  a.pages.usage.time_used_ns = 10'000'000;
  bench.Look();
  EXPECT_EQ(b.pages.time_left(), 4'000'000);
}

// Nobody waits for ever for work that is always about to end, or that ends by a nanosecond at a time.
TEST(TimeBook, WhatNeverEndsHoldsNobodyUpForEver) {
  for (const bool trickles : {false, true}) {
    Bench bench;
    auto& liar = bench.Start(bench.Tenant({}));
    auto& honest = bench.Start(bench.Tenant({}));
    liar.gone = true;  // the bench leaves its page alone
    liar.pages.usage.time_wanted_ns = 1;
    bench.Look();
    ASSERT_GT(liar.pages.time_left(), 0);
    liar.pages.usage.time_in_flight_ns = INT64_MAX;
    const Time begin = bench.now;
    while (honest.ran_ns == 0 && bench.now < begin + Seconds(10)) {
      liar.pages.usage.time_ends_ns = (bench.now + Micros(300)).time_since_epoch().count();
      if (trickles) ++liar.pages.usage.time_used_ns;
      bench.Run(Micros(200));
    }
    EXPECT_LT(bench.now - begin, trickles ? Millis(1100) : Millis(200)) << trickles;
  }
}

TEST(TimeBook, GrantsAreNotHoarded) {
  Bench bench;
  auto& liar = bench.Start(bench.Tenant({}));
  liar.gone = true;
  liar.pages.usage.time_wanted_ns = 1;
  liar.pages.usage.time_in_flight_ns = INT64_MAX;
  for (int i = 0; i < 2000; ++i) {
    liar.pages.usage.time_ends_ns = bench.now.time_since_epoch().count();
    bench.Run(Millis(1));
  }
  EXPECT_LE(liar.pages.limits.time_granted_ns.load(), 16'000'000);
  auto& honest = bench.Start(bench.Tenant({}));
  liar.pages.usage.time_in_flight_ns = 0;
  bench.Run(Millis(100));
  EXPECT_GE(bench.Part(honest, Millis(100)), 0.5);
}

// Nor are they by letting each lapse. What is used of them later would pass the cap, and be used beside the grants of others.
TEST(TimeBook, GrantsThatHaveLapsedAreNotHoarded) {
  Bench bench;
  auto& liar = bench.Start(bench.Tenant({.cap = 0.1}));
  liar.gone = true;
  ipc::UsagePage& usage = liar.pages.usage;
  for (int i = 0; i < 10'000; ++i) {
    usage.time_wanted_ns = 4'000'000;
    // With so much in flight it has nothing left.
    usage.time_in_flight_ns =
        i % 10 == 0 ? liar.pages.limits.time_granted_ns - usage.time_used_ns : 0;
    bench.Run(Micros(100));
  }
  usage.time_in_flight_ns = 0;
  const int64_t before = usage.time_used_ns;
  for (int i = 0; i < 10'000; ++i) {
    if (liar.pages.time_left() > 0) usage.time_used_ns += 100'000;
    bench.Run(Micros(100));
  }
  EXPECT_LE(usage.time_used_ns - before, 100'000'000 + 5'000'000 + 16'000'000);
}

// Whatever the page contains.
TEST(TimeBook, NonsenseAboutTheEndHurtsNobodyElse) {
  std::mt19937_64 random(7);
  for (int run = 0; run < 50; ++run) {
    Bench bench;
    auto& liar = bench.Start(bench.Tenant({}));
    auto& honest = bench.Start(bench.Tenant({}));
    liar.pages.usage.time_ends_ns = static_cast<int64_t>(random());
    liar.pages.usage.time_wanted_ns = static_cast<int64_t>(random());
    bench.Run(Millis(200));
    EXPECT_NEAR(bench.Part(honest, Millis(200)), 0.5, 0.04) << run;
  }
}

TEST(TimeBook, OneThatEndsLeavesItsTimeToTheOthersAtOnce) {
  Bench bench;
  auto& a = bench.Start(bench.Tenant({}));
  auto& b = bench.Start(bench.Tenant({}));
  bench.Run(Millis(10));
  a.gone = true;
  bench.changed.Forget(a.pages.seat);
  bench.book.Leave(a.member, bench.now, bench.changed);
  const int64_t before = b.ran_ns;
  bench.Run(Seconds(1));
  EXPECT_GE(static_cast<double>(b.ran_ns - before) / 1e9, 0.98);
}

TEST(TimeBook, AHigherBandClosesTheLower) {
  Bench bench;
  auto& high = bench.Start(bench.Tenant({.band = sched::Band::kHigh}));
  auto& normal = bench.Start(bench.Tenant({}));
  bench.Run(Millis(500));
  EXPECT_GE(bench.Part(high, Millis(500)), 0.97);
  high.busy = false;
  const int64_t before = normal.ran_ns;
  bench.Run(Millis(500));
  EXPECT_GE(static_cast<double>(normal.ran_ns - before) / 5e8, 0.95);
}

TEST(TimeBook, ASliceIsWhatAnOperatorSays) {
  Bench bench;
  auto& process = bench.Start(bench.Tenant({}));
  process.pages.usage.time_wanted_ns = 100'000;
  bench.Look();
  EXPECT_EQ(process.pages.limits.time_granted_ns.load(), 4'000'000);
  bench.book.Configure({.slice = Millis(1)});
  bench.Run(Millis(100));
  EXPECT_EQ(process.pages.limits.grant_ns.load(), 1'000'000);
  EXPECT_GE(bench.Part(process, Millis(100)), 0.97);
  // Two processes take turns of that length.
  auto& other = bench.Start(bench.Tenant({}));
  const int64_t before = process.ran_ns;
  bench.Run(Millis(500));
  EXPECT_NEAR(bench.Part(other, Millis(500)), 0.5, 0.01);
  EXPECT_NEAR(static_cast<double>(process.ran_ns - before) / 5e8, 0.5, 0.01);
}

TEST(TimeBook, AFloorIsKeptBesideOneThatWantsAll) {
  for (const double floor : {0.0, 0.05, 0.2}) {
    SCOPED_TRACE(floor);
    Bench bench;
    bench.book.Configure({.floor = floor});
    auto& high = bench.Start(bench.Tenant({.band = sched::Band::kHigh}));
    auto& a = bench.Start(bench.Tenant({}));
    auto& b = bench.Start(bench.Tenant({}));
    bench.Run(Seconds(1));
    const int64_t of_a = a.ran_ns, of_b = b.ran_ns;
    bench.Run(Seconds(2));
    EXPECT_NEAR(static_cast<double>(a.ran_ns - of_a + b.ran_ns - of_b) / 2e9, floor, 0.01);
    EXPECT_GE(bench.Part(high, Seconds(3)), 1 - floor - 0.05);
    // Tenants that had more than the floor anyway get no more for it.
    high.busy = false;
    bench.Run(Millis(100));
    EXPECT_EQ(high.pages.limits.flags.load() & ipc::LimitsPage::kHeld, 0u);
    high.busy = true;
    const int64_t before = high.ran_ns;
    bench.Run(Millis(50));
    EXPECT_GE(static_cast<double>(high.ran_ns - before) / 5e7, 0.95)
        << "they have had all of the time before";
  }
}

// A process that is stopped while it wants something, or that permanently has something in flight, holds up the high
// band for no more than the floor.
TEST(TimeBook, AFloorThatNobodyUsesCostsNoMoreThanItIs) {
  for (const int64_t in_flight : {int64_t{0}, int64_t{50'000'000}}) {
    SCOPED_TRACE(in_flight);
    Bench bench;
    bench.book.Configure({.floor = 0.1});
    auto& high = bench.Start(bench.Tenant({.band = sched::Band::kHigh}));
    auto& stopped = bench.Start(bench.Tenant({}));
    stopped.gone = true;  // nobody runs it, and its page does not change
    stopped.pages.usage.time_wanted_ns = 100'000;
    stopped.pages.usage.time_in_flight_ns = in_flight;
    bench.Run(Seconds(1));
    EXPECT_GE(bench.Part(high, Seconds(1)), 0.77);
    EXPECT_LE(bench.Part(high, Seconds(1)), 0.95) << "the floor is tried";
  }
}

// A high tenant that is held for the floor when its priority changes is released at once.
TEST(TimeBook, NobodyIsHeldForTheFloorWithoutHighPriority) {
  Bench bench;
  bench.book.Configure({.floor = 0.5});
  auto* tenant = bench.Tenant({.band = sched::Band::kHigh});
  auto& high = bench.Start(tenant);
  bench.Start(bench.Tenant({}));
  const auto held = [&] { return (high.pages.limits.flags.load() & ipc::LimitsPage::kHeld) != 0; };
  for (int i = 0; i < 100 && !held(); ++i) bench.Run(Micros(100));
  ASSERT_TRUE(held());
  bench.book.Update(tenant, {}, bench.now, bench.changed);
  bench.Run(Millis(10));
  EXPECT_FALSE(held());
}

// A high tenant `times` times launches a command of 100 us and then nothing for `pause`. Returns when the others were
// let in after the last one.
Nanos GraceAfter(int times, Nanos pause) {
  Bench bench;
  auto& high = bench.Start(bench.Tenant({.band = sched::Band::kHigh}));
  auto& normal = bench.Start(bench.Tenant({}));
  normal.pages.usage.time_wanted_ns = 100'000;
  auto& usage = high.pages.usage;
  const auto look = [&](Nanos after) {
    bench.now += after;
    bench.Look();
    EXPECT_STREQ(bench.book.CheckInvariants(), nullptr);
    return (normal.pages.limits.flags.load() & ipc::LimitsPage::kClosed) != 0;
  };
  for (int i = 0; i < times; ++i) {
    usage.time_in_flight_ns = 100'000;
    EXPECT_TRUE(look(Nanos(0)));
    const Time ended = bench.now + Micros(100);
    usage.time_in_flight_ns = 0;
    usage.time_used_ns += 100'000;
    usage.time_ended_ns = ended.time_since_epoch().count();
    // The end is reported 20 us later.
    EXPECT_TRUE(look(Micros(120)));
    while (i == times - 1 && look(Micros(10))) {
    }
    if (i == times - 1) return bench.now - ended;
    bench.now = ended + pause;
  }
  return Nanos(0);
}

TEST(TimeBook, ThePausesOfTheHighBandAreGivenAwayAsSoonAsThatPays) {
  EXPECT_EQ(GraceAfter(1, Micros(500)), Micros(200));
  EXPECT_EQ(GraceAfter(20, Micros(500)), Micros(30));
  // A pause into which two changes of context do not fit is not given away.
  EXPECT_GT(GraceAfter(20, Micros(180)), Micros(180));
}

// The reported end is trusted only within the possible range.
TEST(TimeBook, WhenItWasDoneIsNoEarlierThanItWasSeenAtWork) {
  for (const int64_t said : {INT64_MIN, int64_t{1}, int64_t{0}, INT64_MAX}) {
    Bench bench;
    auto& high = bench.Start(bench.Tenant({.band = sched::Band::kHigh}));
    auto& normal = bench.Start(bench.Tenant({}));
    high.pages.usage.time_in_flight_ns = 100'000;
    bench.Look();
    bench.now += Micros(100);
    bench.Look();
    high.pages.usage.time_in_flight_ns = 0;
    high.pages.usage.time_used_ns = 100'000;
    high.pages.usage.time_ended_ns = said;
    bench.now += Micros(50);
    bench.Look();
    const Time seen = bench.now;
    while (normal.pages.limits.flags.load() & ipc::LimitsPage::kClosed) {
      bench.now += Micros(10);
      bench.Look();
    }
    EXPECT_GE(bench.now, seen + (said == 0 ? Micros(200) : Micros(150))) << said;
    EXPECT_LE(bench.now, seen + Micros(200)) << said;
  }
}

// The grace of a command that took longer than predicted, or that no look saw in flight, counts from its end, too.
TEST(TimeBook, TheGraceCountsFromTheEndWhateverWasPredicted) {
  for (const int64_t predicted : {0, 100'000, 300'000, 400'000}) {
    Bench bench;
    auto& high = bench.Start(bench.Tenant({.band = sched::Band::kHigh}));
    auto& normal = bench.Start(bench.Tenant({}));
    auto& usage = high.pages.usage;
    normal.pages.usage.time_wanted_ns = 100'000;
    bench.now += Millis(1);
    bench.Look();
    usage.time_in_flight_ns = predicted;
    bench.now += Millis(1);
    bench.Look();
    const Time ended = bench.now + Micros(300);
    usage.time_in_flight_ns = 0;
    usage.time_used_ns += 300'000;
    usage.time_ended_ns = ended.time_since_epoch().count();
    bench.now = ended + Micros(150);  // when the report is read
    do {
      bench.Look();
      ASSERT_STREQ(bench.book.CheckInvariants(), nullptr);
      bench.now += Micros(10);
    } while (normal.pages.limits.flags.load() & ipc::LimitsPage::kClosed);
    EXPECT_EQ(bench.now - Micros(10) - ended, Micros(200)) << predicted;
  }
}

TEST(TimeBook, WhatACapOfTheHighBandLeavesIsSeenWhenItBegins) {
  Bench bench;
  auto& high = bench.Start(bench.Tenant({.cap = 0.6, .band = sched::Band::kHigh}));
  auto& normal = bench.Start(bench.Tenant({.guarantee = 0.3}));
  const auto flags = [](const Bench::Process& process, uint32_t of) {
    return process.pages.limits.flags.load() & of;
  };
  auto& usage = high.pages.usage;
  normal.pages.usage.time_wanted_ns = 1'000'000;
  bench.now += Micros(300);  // a process that has just joined may be about to launch
  bench.Look();
  EXPECT_TRUE(flags(normal, ipc::LimitsPage::kBelow));
  EXPECT_FALSE(flags(high, ipc::LimitsPage::kBelow));
  EXPECT_GT(normal.time_left(), 0);  // which it may not use from now on

  // The high tenant uses all its saved-up credit, and queues, held by its cap, with 1.5 ms left to run.
  usage.time_wanted_ns = 1'000'000;
  int64_t granted = 0;
  for (int i = 0; i < 3; ++i) {
    bench.Look();
    granted = high.pages.limits.time_granted_ns;
    usage.time_in_flight_ns = granted;
    usage.time_ends_ns = (bench.now + Nanos(granted)).time_since_epoch().count();
  }
  ASSERT_EQ(granted, 8'000'000);  // a tenant with saved-up credit gets a whole grant
  EXPECT_TRUE(flags(normal, ipc::LimitsPage::kClosed));
  bench.now += Nanos(granted) - Micros(1500);
  bench.Look();
  ASSERT_TRUE(flags(normal, ipc::LimitsPage::kClosed));
  EXPECT_LE(bench.Look(), bench.now + Micros(1500)) << "its cap lets it go later than that";
  // When its work ends the other tenant is let in at once, without a wait for the grace.
  bench.now += Micros(1500);
  usage.time_used_ns = granted;
  usage.time_in_flight_ns = 0;
  bench.Look();
  EXPECT_FALSE(flags(normal, ipc::LimitsPage::kClosed));

  // When its cap allows it to go on, it waits for the other tenant's work in flight, for at most the length of a
  // grant.
  normal.pages.usage.time_in_flight_ns = 1'000'000;
  const auto until_done = [&](Nanos left) {
    normal.pages.usage.time_ends_ns = (bench.now + left).time_since_epoch().count();
  };
  Nanos waited{0};
  Time next{};
  while (!flags(normal, ipc::LimitsPage::kClosed) && waited < Millis(20)) {
    bench.now += Micros(50);
    waited += Micros(50);
    until_done(Micros(700));
    next = bench.Look();
  }
  EXPECT_GT(waited, Millis(1));
  EXPECT_LT(waited,
            Millis(2));  // it owed 3 ms and continues with 2.5 ms of credit: 9.2 ms after it began
  EXPECT_LE(high.time_left(), 0);
  EXPECT_LE(next, bench.now + Micros(20)) << "what it has in flight shows soon";
  bench.now += Micros(20);
  EXPECT_LE(bench.Look(), bench.now + Micros(700));
  EXPECT_LE(high.time_left(), 0);
  normal.pages.usage.time_used_ns = 1'000'000;
  normal.pages.usage.time_in_flight_ns = 0;
  bench.Look();
  EXPECT_GT(high.time_left(), 0);
  EXPECT_STREQ(bench.book.CheckInvariants(), nullptr);

  // A tenant that is gone holds nobody below it.
  bench.book.Leave(high.member, bench.now, bench.changed);
  bench.Look();
  EXPECT_FALSE(flags(normal, ipc::LimitsPage::kBelow));
}

TEST(TimeBook, WhoIsSuspendedGetsNothing) {
  Bench bench;
  TimeBook::Tenant* const tenant = bench.Tenant({});
  auto& a = bench.Start(tenant);
  auto& b = bench.Start(bench.Tenant({}));
  bench.Run(Millis(100));
  bench.book.Suspend(tenant, true, bench.now, bench.changed);
  const int64_t a_before = a.ran_ns, b_before = b.ran_ns;
  bench.Run(Millis(500));
  EXPECT_EQ(a.ran_ns, a_before);
  EXPECT_GE(static_cast<double>(b.ran_ns - b_before) / 5e8, 0.97);
  bench.book.Suspend(tenant, false, bench.now, bench.changed);
  bench.Run(Millis(500));
  EXPECT_GE(a.ran_ns - a_before, 200'000'000);
}

// Time that lapsed while a tenant was kept from using it counts as part of its share.
TEST(TimeBook, AfterALapseItsShareIsWhatItWas) {
  Bench bench;
  TimeBook::Tenant* const tenant = bench.Tenant({});
  auto& a = bench.Start(tenant);
  auto& b = bench.Start(bench.Tenant({}));
  bench.Run(Millis(100));
  bench.book.Suspend(tenant, true, bench.now, bench.changed);
  bench.Run(Millis(20));
  bench.book.Suspend(tenant, false, bench.now, bench.changed);
  bench.Run(Millis(100));
  const int64_t a_before = a.ran_ns, b_before = b.ran_ns;
  bench.Run(Seconds(1));
  EXPECT_NEAR(static_cast<double>(a.ran_ns - a_before) / 1e9, 0.5, 0.01);
  EXPECT_NEAR(static_cast<double>(b.ran_ns - b_before) / 1e9, 0.5, 0.01);
}

TEST(TimeBook, OneThatWasOfHighPriorityHasAnOrdinaryShareAfterwards) {
  Bench bench;
  TimeBook::Tenant* const tenant = bench.Tenant({.band = sched::Band::kHigh});
  auto& a = bench.Start(tenant);
  auto& b = bench.Start(bench.Tenant({}));
  bench.Run(Millis(500));
  bench.book.Update(tenant, {}, bench.now, bench.changed);
  bench.Run(Millis(100));
  const int64_t a_before = a.ran_ns, b_before = b.ran_ns;
  bench.Run(Seconds(1));
  EXPECT_NEAR(static_cast<double>(a.ran_ns - a_before) / 1e9, 0.5, 0.02);
  EXPECT_NEAR(static_cast<double>(b.ran_ns - b_before) / 1e9, 0.5, 0.02);
}

// A process that under-reports its use is granted no more than it reports, since the unreported part of its grants
// stays outstanding.
TEST(TimeBook, ALieSpendsTheGrantAndNoMore) {
  Bench bench;
  auto& liar = bench.Start(bench.Tenant({}));
  auto& honest = bench.Start(bench.Tenant({}));
  liar.lies = 90'000;
  bench.Run(Seconds(1));
  EXPECT_GE(honest.ran_ns, 0);
  // By its own counters it ran at most ten times its grants, all of it charged or lapsed.
  EXPECT_LE(liar.pages.usage.time_used_ns.load(), liar.pages.limits.time_granted_ns.load());
}

TEST(TimeBook, NonsenseInAPageBreaksNothing) {
  std::mt19937_64 random(7);
  Bench bench;
  auto& a = bench.Start(bench.Tenant({}));
  auto& b = bench.Start(bench.Tenant({}));
  for (int i = 0; i < 5000; ++i) {
    const auto any = static_cast<int64_t>(random());
    switch (random() % 4) {
      case 0:
        a.pages.usage.time_used_ns = any;
        break;
      case 1:
        a.pages.usage.time_returned_ns = any;
        break;
      case 2:
        a.pages.usage.time_in_flight_ns = any;
        break;
      default:
        a.pages.usage.time_wanted_ns = any;
        break;
    }
    bench.now += Micros(50);
    bench.Look();
    ASSERT_STREQ(bench.book.CheckInvariants(), nullptr) << i;
  }
  a.gone = true;
  bench.changed.Forget(a.pages.seat);
  bench.book.Leave(a.member, bench.now, bench.changed);
  const int64_t before = b.ran_ns;
  bench.Run(Seconds(1));
  EXPECT_GE(static_cast<double>(b.ran_ns - before) / 1e9, 0.95);
}

// It reports work in flight for the time `hold`, then reports that it used nothing, and gives the grant back.
TEST(TimeBook, WhoKeepsTheDeviceAndUsesNoneOfItPaysForThat) {
  for (const Nanos hold : {Millis(1), Millis(5), Millis(45), Millis(103), Millis(500)}) {
    Bench bench;
    auto& liar = bench.Start(bench.Tenant({.guarantee = 0.3}));
    auto& honest = bench.Start(bench.Tenant({.guarantee = 0.3}));
    liar.gone = true;
    ipc::UsagePage& usage = liar.pages.usage;
    usage.time_wanted_ns = 1;
    Time until = kNever;
    for (const Time end = bench.now + Seconds(4); bench.now < end; bench.Run(Micros(100))) {
      const int64_t unused = liar.pages.limits.time_granted_ns - usage.time_returned_ns;
      if (until == kNever && unused > 0) until = bench.now + hold;
      if (until == kNever) continue;
      usage.time_in_flight_ns = INT64_MAX;
      usage.time_ends_ns = (bench.now + Micros(300)).time_since_epoch().count();
      if (bench.now < until) continue;
      until = kNever;
      usage.time_in_flight_ns = 0;
      usage.time_returned_ns += unused;
    }
    EXPECT_GE(bench.Part(honest, Seconds(4)), 0.4) << hold.count();
  }
}

// It says that it has something in flight, all the time or as long as it has a grant, and uses a twentieth of that.
TEST(TimeBook, WhoKeepsTheDeviceAndUsesLittleOfItPaysForThat) {
  for (const double guarantee : {0.0, 0.3}) {
    for (const bool always : {false, true}) {
      Bench bench;
      auto& liar = bench.Start(bench.Tenant({.guarantee = guarantee}));
      auto& honest = bench.Start(bench.Tenant({}));
      liar.gone = true;
      ipc::UsagePage& usage = liar.pages.usage;
      usage.time_wanted_ns = 1;
      for (const Time end = bench.now + Seconds(4); bench.now < end; bench.Run(Micros(100))) {
        const bool has = liar.pages.limits.time_granted_ns > usage.time_used_ns;
        usage.time_in_flight_ns = has || always ? 4'000'000 : 0;
        usage.time_ends_ns = bench.now.time_since_epoch().count();
        if (has) usage.time_used_ns += 5000;
      }
      EXPECT_GE(bench.Part(honest, Seconds(4)), 0.3) << guarantee << always;
    }
  }
}

// What it kept from the others is charged to its guarantee if that is what it had the device for, whatever it said meanwhile.
TEST(TimeBook, WhoKeepsTheDeviceByItsGuaranteePaysByThat) {
  for (const bool uses : {false, true}) {
    Bench bench;
    TimeBook::Tenant* const tenant = bench.Tenant({.guarantee = 0.3});
    auto& liar = bench.Start(tenant);
    auto& honest = bench.Start(bench.Tenant({}));
    liar.gone = true;
    ipc::UsagePage& usage = liar.pages.usage;
    usage.time_wanted_ns = 1;
    Time until = kNever;
    for (const Time end = bench.now + Seconds(4); bench.now < end; bench.Run(Micros(100))) {
      const int64_t unused =
          liar.pages.limits.time_granted_ns - usage.time_used_ns - usage.time_returned_ns;
      if (until == kNever && unused > 0) until = bench.now + (uses ? Millis(4) : Millis(12));
      if (until == kNever) continue;
      usage.time_in_flight_ns = INT64_MAX;
      usage.time_ends_ns = (bench.now + Micros(300)).time_since_epoch().count();
      if (bench.now < until) continue;
      until = kNever;
      usage.time_in_flight_ns = 0;
      (uses ? usage.time_used_ns : usage.time_returned_ns) += unused;
    }
    EXPECT_GE(bench.Part(honest, Seconds(4)), 0.3) << uses;
    // Nor is that forgotten when it leaves.
    usage.time_in_flight_ns = 0;
    bench.Look();
    bench.book.Leave(liar.member, bench.now, bench.changed);
    EXPECT_GT(bench.book.ClearAt(*tenant, bench.now), bench.now) << uses;
  }
}

// Its use is reported at its end, when the next process has its grant already, and another process of the tenant has nothing in flight.
TEST(TimeBook, ALongCommandIsNoTimeInWhichItsTenantUsesNothing) {
  for (const bool has_another : {false, true}) {
    Bench bench;
    TimeBook::Tenant* const tenant = bench.Tenant({});
    if (has_another) bench.Start(tenant).busy = false;
    auto& busy = bench.Start(tenant);
    auto& other = bench.Start(bench.Tenant({}));
    busy.gone = true;  // its page is written here
    ipc::UsagePage& usage = busy.pages.usage;
    usage.time_wanted_ns = 50'000'000;
    Time ends{};
    for (const Time end = bench.now + Seconds(4); bench.now < end; bench.Run(Micros(100))) {
      if (ends != Time{} && bench.now >= ends) {
        ends = Time{};
        usage.time_in_flight_ns = 0;
        usage.time_used_ns += 50'000'000;
        bench.Look();
      }
      if (ends != Time{} || busy.pages.time_left() <= 0) continue;
      ends = bench.now + Millis(50);
      usage.time_in_flight_ns = 50'000'000;
      usage.time_ends_ns = ends.time_since_epoch().count();
    }
    EXPECT_NEAR(static_cast<double>(usage.time_used_ns) / 4e9, 0.5, 0.03) << has_another;
    EXPECT_NEAR(bench.Part(other, Seconds(4)), 0.5, 0.03) << has_another;
  }
}

TEST(TimeBook, NobodyPaysForATimeInWhichTheBrokerWasStopped) {
  TimeBookBench bench;
  auto& one = bench.Start(bench.Tenant({.guarantee = 0.4}));
  auto& two = bench.Start(bench.Tenant({.guarantee = 0.2, .cap = 0.5}));
  for (int round = 0; round < 20; ++round) {
    bench.Run(Millis(500) + Millis(1) * round);  // either may have the device at the end of it
    bench.now += Seconds(6);
    const int64_t ones = one.ran_ns, twos = two.ran_ns;
    bench.Run(Millis(200));
    EXPECT_GE(static_cast<double>(one.ran_ns - ones) / 200e6, 0.39) << round;
    EXPECT_GE(static_cast<double>(two.ran_ns - twos) / 200e6, 0.19) << round;
  }
}

// A high tenant whose cap allows it to run does not wait for one whose predictions did not come true.
TEST(TimeBook, WhatDidNotComeTrueHoldsUpNobodyOfHighPriority) {
  for (const Nanos hold : {Millis(10), Millis(45), Millis(95)}) {
    Bench bench;
    auto& liar = bench.Start(bench.Tenant({}));
    auto& high = bench.Start(bench.Tenant({.cap = 0.6, .band = sched::Band::kHigh}));
    liar.gone = true;
    ipc::UsagePage& usage = liar.pages.usage;
    usage.time_wanted_ns = 1;
    Time until = kNever, ran = bench.now;
    int64_t so_far = 0;
    Nanos longest{0};
    for (const Time end = bench.now + Seconds(4); bench.now < end; bench.Run(Micros(100))) {
      if (std::exchange(so_far, high.ran_ns) != high.ran_ns) ran = bench.now;
      if (bench.now > Time(Seconds(2))) longest = std::max(longest, bench.now - ran);
      const int64_t unused = liar.pages.limits.time_granted_ns - usage.time_returned_ns;
      if (until == kNever && unused > 0) until = bench.now + hold;
      if (until == kNever) continue;
      usage.time_in_flight_ns = std::max<int64_t>(0, (until - bench.now).count());
      usage.time_ends_ns = until.time_since_epoch().count();
      if (bench.now < until) continue;
      until = kNever;
      usage.time_in_flight_ns = 0;
      usage.time_returned_ns += unused;
    }
    EXPECT_GE(bench.Part(high, Seconds(4)), 0.57) << hold.count();
    EXPECT_LE(longest, Millis(10)) << hold.count();
  }
}

// A command of 50 ms with a grant of 4 ms: the device is busy with it until it ends.
TEST(TimeBook, ACommandLongerThanItsGrantIsChargedAsItBegins) {
  Bench bench;
  auto& a = bench.Start(bench.Tenant({}));
  auto& b = bench.Start(bench.Tenant({}));
  a.pages.usage.time_wanted_ns = 50'000'000;
  bench.Look();
  ASSERT_EQ(a.pages.time_left(), 4'000'000);
  const Time ends = bench.now + Millis(50);
  a.pages.usage.time_in_flight_ns = 50'000'000;
  a.pages.usage.time_ends_ns = ends.time_since_epoch().count();
  b.pages.usage.time_wanted_ns = 100'000;
  for (; bench.now < ends - Micros(100); bench.now += Micros(100)) {
    bench.Look();
    ASSERT_EQ(b.pages.time_left(), 0) << (ends - bench.now).count();
  }
  bench.now = bench.Look();
  EXPECT_GE(bench.now, ends - Micros(30));
  EXPECT_LE(bench.now, ends);
  bench.Look();
  EXPECT_EQ(b.pages.time_left(), 4'000'000);
  EXPECT_EQ(bench.book.CheckInvariants(), nullptr);
}

// If the cap refilled while the command runs, it would count less than the command takes, and the next wait would be
// too long.
TEST(TimeBook, ACapDoesNotFillUpBehindACommandLongerThanItsGrant) {
  Bench bench;
  auto& a = bench.Start(bench.Tenant({.cap = 0.3}));
  a.pages.usage.time_wanted_ns = 50'000'000;
  bench.Look();
  const Time begin = bench.now;
  a.pages.usage.time_in_flight_ns = 50'000'000;
  a.pages.usage.time_ends_ns = (begin + Millis(50)).time_since_epoch().count();
  bench.Look();
  bench.now += Millis(50);
  a.pages.usage.time_used_ns = 50'000'000;
  a.pages.usage.time_in_flight_ns = 0;
  const int64_t granted = 50'000'000;  // the use beyond its grant is not paid twice
  while (a.pages.limits.time_granted_ns <= granted && bench.now < begin + Seconds(1)) {
    bench.Look();
    bench.now += Micros(100);
  }
  // The cap has saved up 5 of the 50 ms, and lets it run again with 2.5 ms.
  EXPECT_NEAR(static_cast<double>((bench.now - begin).count()) / 1e6, (50 - 5 + 2.5) / 0.3, 1);
}

}  // namespace
}  // namespace gpushare::broker
