// SPDX-License-Identifier: Apache-2.0
#include "meter/replay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>
#include <vector>

namespace gpushare::meter {
namespace {

constexpr Nanos Us(int64_t us) { return Micros(us); }
Replay::Command Kernel(double us, double footprint) {
  return {.entry = 0,
          .cost_ns = static_cast<float>(us * 1000),
          .footprint = static_cast<float>(footprint)};
}

Replay::Command Lease(double us) {
  return {.entry = 0, .cost_ns = static_cast<float>(us * 1e3), .footprint = 1, .opaque = true};
}

TEST(Replay, AloneABatchTakesTheTimeBetweenItsMarkers) {
  Replay replay(100);
  const auto s = replay.AddStream(0, 0);
  replay.Boundary(s);
  replay.Complete(s, Us(10));  // the start marker
  replay.Append(s, Kernel(50, 1), Nanos(0));
  replay.Append(s, Kernel(30, 1), Nanos(0));
  replay.Boundary(s);
  const Replay::Batch batch = replay.Complete(s, Us(100));
  EXPECT_NEAR(batch.used_ns, 90'000, 1);
  EXPECT_NEAR(batch.ratio, 90.0 / 80.0, 0.001);
  EXPECT_TRUE(batch.alone);
  EXPECT_EQ(batch.commands.size(), 2u);
}

TEST(Replay, TimeBeforeTheStartMarkerIsNobodys) {
  Replay replay(100);
  const auto s = replay.AddStream(0, 0);
  replay.Boundary(s);
  replay.Append(s, Kernel(50, 1), Nanos(0));
  replay.Boundary(s);
  EXPECT_EQ(replay.Complete(s, Us(1000)).used_ns, 0);
  EXPECT_NEAR(replay.Complete(s, Us(1050)).used_ns, 50'000, 1);
}

TEST(Replay, CommandsStartNotBeforeTheyWereLaunched) {
  Replay replay(100);
  const auto s = replay.AddStream(0, 0);
  replay.Append(s, Kernel(20, 1), Us(500));
  replay.Boundary(s);
  EXPECT_NEAR(replay.Complete(s, Us(520)).used_ns, 20'000, 1);
}

TEST(Replay, SerialKernelsOfTwoTenantsAreToldApart) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  replay.Append(a, Kernel(100, 2), Nanos(0));
  replay.Boundary(a);
  replay.Append(b, Kernel(300, 2), Nanos(0));
  replay.Boundary(b);
  const Replay::Batch first = replay.Complete(a, Us(110));
  const Replay::Batch second = replay.Complete(b, Us(400));
  EXPECT_NEAR(first.used_ns, 110'000, 1);
  EXPECT_NEAR(second.used_ns, 290'000, 1);
  EXPECT_NEAR(second.ratio, 290.0 / 300.0, 0.01);
}

TEST(Replay, OverlappingKernelsShareBySmsHeld) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  replay.Append(a, Kernel(100, 0.25), Nanos(0));
  replay.Boundary(a);
  replay.Append(b, Kernel(100, 0.75), Nanos(0));
  replay.Boundary(b);
  const Replay::Batch first = replay.Complete(a, Us(100));
  const Replay::Batch second = replay.Complete(b, Us(100));
  EXPECT_NEAR(first.used_ns, 25'000, 1);
  EXPECT_NEAR(second.used_ns, 75'000, 1);
  EXPECT_FALSE(first.alone);
  EXPECT_NEAR(first.ratio, 1, 0.001);  // it was not slowed down
}

TEST(Replay, WavesLeaveSmsToOthersInTheirTail) {
  // 150 groups on 100 SMs: two waves of 50 us. Beside the second wave 50 SMs are free.
  Replay replay(100);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  replay.Append(a, Kernel(100, 1.5), Nanos(0));
  replay.Boundary(a);
  replay.Append(b, Kernel(50, 0.5), Nanos(0));
  replay.Boundary(b);
  const Replay::Batch first = replay.Complete(a, Us(100));
  const Replay::Batch second = replay.Complete(b, Us(100));
  EXPECT_NEAR(first.used_ns, 75'000, 1);
  EXPECT_NEAR(second.used_ns, 25'000, 1);
}

TEST(Replay, AMarkerPinsAKernelThatWasPredictedTooShort) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  replay.Append(a, Kernel(10, 1), Nanos(0));  // really takes 100 us
  replay.Boundary(a);
  replay.Append(b, Kernel(50, 1), Nanos(0));
  replay.Boundary(b);
  const Replay::Batch first = replay.Complete(a, Us(100));
  const Replay::Batch second = replay.Complete(b, Us(150));
  EXPECT_NEAR(first.used_ns, 100'000, 1);
  EXPECT_NEAR(first.ratio, 10, 0.1);
  EXPECT_NEAR(second.used_ns, 50'000, 1);
}

// If it stayed at the width of its last wave, 0.2, the learnt cost would be a fifth of the real one.
TEST(Replay, ACommandOfSeveralWavesThatWasPredictedTooShortGoesOnAtItsFullWidth) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  replay.Append(a, Kernel(20, 3.2), Nanos(0));  // really takes 1 ms
  replay.Boundary(a);
  replay.Append(b, Kernel(10, 0.5), Us(30));  // waits for the other's last wave
  replay.Boundary(b);
  const Replay::Batch first = replay.Complete(a, Us(1000));
  const Replay::Batch second = replay.Complete(b, Us(1010));
  EXPECT_NEAR(first.ratio, 1000.0 / 20, 2);
  EXPECT_NEAR(first.used_ns, 1'000'000, 10);
  EXPECT_TRUE(first.alone);
  EXPECT_NEAR(second.used_ns, 10'000, 10);
  EXPECT_NEAR(second.ratio, 1, 0.01);
}

// Its last wave leaves SMs to another command, which keeps them when the first one turns out to run longer.
TEST(Replay, WhatOthersHoldIsNotTakenFromThem) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  replay.Append(a, Kernel(100, 1.5), Nanos(0));  // really takes 200 us
  replay.Boundary(a);
  replay.Append(b, Kernel(150, 0.5),
                Us(10));  // runs from 50 us on, beside the second wave of the other command
  replay.Boundary(b);
  const Replay::Batch first = replay.Complete(a, Us(200));
  const Replay::Batch second = replay.Complete(b, Us(200));
  EXPECT_NEAR(first.used_ns, 50'000 + 75'000, 10);
  EXPECT_NEAR(second.used_ns, 75'000, 10);
}

// The device ran b's giant before a's last short command; meanwhile the model keeps a's command on the device.
TEST(Replay, AGiantThatTheModelNeverRanTakesTheTimeOfWhoeverIsOverdue) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  for (int i = 0; i < 5; ++i) replay.Append(a, Kernel(3, 1), Nanos(0));
  replay.Boundary(a);
  replay.Append(b, Kernel(1600, 1), Us(20));
  replay.Boundary(b);
  const Replay::Batch giant = replay.Complete(b, Us(2015));
  const Replay::Batch small = replay.Complete(a, Us(2018));
  EXPECT_NEAR(giant.used_ns, 1'995'000, 1'000);
  EXPECT_NEAR(giant.ratio, 1995.0 / 1600, 0.01);
  EXPECT_NEAR(giant.used_ns + small.used_ns, 2'018'000, 1);
}

// A smaller misprediction counts as a misprediction: the time of an overdue command is charged to its own tenant.
TEST(Replay, ATurnThatIsMerelyShorterThanPredictedIsNotTakenOver) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  replay.Append(a, Kernel(40, 1), Nanos(0));  // really takes 60 us
  replay.Boundary(a);
  replay.Append(b, Kernel(40, 1), Nanos(0));  // really takes 20 us
  replay.Boundary(b);
  EXPECT_NEAR(replay.Complete(a, Us(60)).used_ns, 60'000, 1);
  EXPECT_NEAR(replay.Complete(b, Us(80)).used_ns, 20'000, 1);
}

TEST(Replay, ALateMarkerBoundsTheCostFromAbove) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0);
  for (int i = 0; i < 10; ++i) replay.Append(a, Kernel(10, 1), Nanos(0));
  replay.Boundary(a);
  const Replay::Batch batch = replay.Complete(a, Us(20), Us(20), Replay::End::kBefore);
  EXPECT_TRUE(batch.learnable);
  EXPECT_NEAR(batch.ratio, 0.2, 0.01);
  replay.Append(a, Kernel(10, 1), Us(20));
  replay.Boundary(a);
  EXPECT_FALSE(replay.Complete(a, Us(100), Us(100), Replay::End::kBefore).learnable);
}

// If the offset between the clocks of host and device is estimated too large, every launch seems to come after its
// end. The launch is charged all the same. It only teaches that it took no longer than the time since the last
// marker.
TEST(Replay, WhatEndedBeforeItWasLaunchedIsChargedAllTheSame) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0);
  replay.Boundary(a);
  replay.Complete(a, Us(10), Us(11), Replay::End::kBefore);
  replay.Append(a, Kernel(2, 1), Us(500));
  replay.Boundary(a);
  Replay::Batch batch = replay.Complete(a, Us(20), Us(21), Replay::End::kBefore);
  EXPECT_NEAR(batch.used_ns, 2000, 1);
  EXPECT_FALSE(batch.learnable);
  replay.Append(a, Kernel(40, 1), Us(500));
  replay.Boundary(a);
  batch = replay.Complete(a, Us(29), Us(30), Replay::End::kBefore);
  EXPECT_NEAR(batch.used_ns, 8000, 1);
  EXPECT_TRUE(batch.learnable);
  EXPECT_NEAR(batch.ratio, 8.0 / 40, 1e-6);
}

// Likewise when the model lets it begin a moment before its marker.
TEST(Replay, WhatTheModelHardlySawIsChargedByPrediction) {
  for (const Nanos seen : {Nanos(0), Nanos(1), Nanos(300)}) {
    SCOPED_TRACE(seen.count());
    Replay replay(100);
    const auto a = replay.AddStream(0, 0);
    replay.Boundary(a);
    replay.Complete(a, Us(10), Us(11), Replay::End::kBefore);
    for (int i = 0; i < 4; ++i) replay.Append(a, Kernel(2, 1), Us(40) - seen);
    replay.Boundary(a);
    const Replay::Batch batch = replay.Complete(a, Us(40), Us(41), Replay::End::kBefore);
    EXPECT_NEAR(batch.used_ns, 8000, 1);
    EXPECT_TRUE(batch.guessed);
    EXPECT_FALSE(batch.learnable);  // 29 us since the last marker say nothing about a batch of 8 us
    EXPECT_FALSE(batch.alone);
  }
}

// A launch that the driver refused seems to end before it was launched too, but took no time.
TEST(Replay, WhatWasRefusedIsNotCharged) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0);
  Replay::Command graph = Kernel(10, 1);
  graph.entry = 3;
  graph.parts = 2;
  for (int i = 0; i < 4; ++i) replay.Append(a, graph, Us(500));
  replay.Append(a, Kernel(7, 1), Us(500));
  replay.Refuse(a, 3);  // refuses the second of the two
  replay.Boundary(a);
  Replay::Batch batch = replay.Complete(a, Us(100), Us(100), Replay::End::kBefore);
  EXPECT_NEAR(batch.used_ns, 27'000, 1);
  // The model has run a part of this one.
  replay.Append(a, graph, Us(100));
  replay.Append(a, graph, Us(100));
  replay.Boundary(a);
  replay.UsedSoFar(a, Us(111));
  replay.Refuse(a, 3);
  batch = replay.Complete(a, Us(111), Us(111), Replay::End::kBefore);
  EXPECT_EQ(batch.predicted_ns, 0);
  EXPECT_FALSE(batch.guessed);
  // The marker of this one is late.
  replay.Append(a, Kernel(10, 1), Us(111));
  replay.Refuse(a, 0);
  replay.Boundary(a);
  batch = replay.Complete(a, Us(150));
  EXPECT_EQ(batch.predicted_ns, 0);
  EXPECT_NEAR(batch.used_ns, 39'000, 1);
  EXPECT_TRUE(std::isfinite(batch.ratio));
}

// A kernel of 90 us in two and a half waves takes longer than that by its marker. Its last wave leaves room for two
// commands on half of the device, of another tenant or its own. Used() returns the charge for these.
struct BesideALateOne {
  uint32_t parts = 2, tenant = 1;
  bool guess = false;
  double Used(double part_us, Nanos late, Nanos ended) const {
    Replay replay(100);
    const auto a = replay.AddStream(0, 0), b = replay.AddStream(tenant, 0);
    Replay::Command kernel = Kernel(90, 2.5);
    kernel.guess = guess;
    replay.Append(a, kernel, Nanos(0));
    replay.Boundary(a);
    Replay::Command part = Kernel(part_us, 0.5);
    part.parts = parts;
    replay.Append(b, part, Us(85));
    replay.Append(b, part, Us(85));
    replay.Boundary(b);
    const double first = replay.Complete(a, late).used_ns;
    const double second = replay.Complete(b, ended).used_ns;
    EXPECT_NEAR(first + second, static_cast<double>(ended.count()), 1);  // no time is lost
    return second;
  }
};

TEST(Replay, OneThatIsLateLeavesTheRestToAnothersGraph) {
  // They hold half of the device from 85 us to 115 us, then all of it.
  EXPECT_NEAR(BesideALateOne().Used(20, Us(115), Us(135)), 15'000 + 20'000, 1);
  // If the two are not parts of a graph, the late kernel takes over the SMs of the first one from 105 us on.
  EXPECT_NEAR(BesideALateOne{.parts = 1}.Used(20, Us(115), Us(135)), 10'000 + 20'000, 1);
  EXPECT_NEAR(BesideALateOne{.tenant = 0}.Used(20, Us(115), Us(135)), 10'000 + 20'000, 1);
}

TEST(Replay, WhatIsVeryLateRunsAtItsFullWidthAgain) {
  // They hold half of the device from 85 us to 117 us, when the kernel is late by 0.3 of its cost, and on to 135 us,
  // when the first part ends. Then the late kernel has the whole device, and the second part has the time after it.
  EXPECT_NEAR(BesideALateOne().Used(50, Us(160), Us(185)), 25'000 + 25'000, 1);
}

// A tenth of the time that a stream has used may be attributed to waiting for another tenant's graph.
TEST(Replay, WhatIsVeryLateMayHaveWaitedForAnothersGraph) {
  const auto used = [](Replay::Command late, double before_us, Nanos graph_from) {
    Replay replay(100);
    const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
    replay.Append(a, Kernel(before_us, 1), Nanos(0));
    replay.Boundary(a);
    replay.Complete(a, Us(static_cast<int64_t>(before_us)));
    replay.Append(a, late, Nanos(0));
    replay.Boundary(a);
    Replay::Command part = Kernel(50, 0.5);
    part.parts = 2;
    replay.Append(b, part, graph_from);
    replay.Append(b, part, graph_from);
    replay.Boundary(b);
    const Nanos ended = Us(static_cast<int64_t>(before_us)) + Us(200);
    const Replay::Batch batch = replay.Complete(a, ended);
    EXPECT_NEAR(batch.ratio, 2, 1e-6);  // it counts as late, whoever is charged
    return batch.used_ns;
  };
  Replay::Command late = Kernel(100, 1);
  // 10 us of the 70 us after 130 us.
  EXPECT_NEAR(used(late, 100, Nanos(0)), 190'000, 1);
  EXPECT_NEAR(used(late, 200, Nanos(0)), 180'000, 1);
  // The graph has not begun.
  EXPECT_NEAR(used(late, 100, Millis(1)), 200'000, 1);
  // The cost of the late command varies.
  late.guess = true;
  EXPECT_NEAR(used(late, 100, Nanos(0)), 200'000, 1);
}

// A graph that is late too holds no SMs beside the kernel once it has used the time that it takes alone.
TEST(Replay, NobodyIsChargedForMuchMoreThanAGraphTakesAlone) {
  // Half of the device from 85 us to 145 us, and all of it from 1000 us on.
  EXPECT_NEAR(BesideALateOne().Used(15, Us(1000), Us(1010)), 30'000 + 10'000, 2);
}

// A kernel with one block more than there are SMs, which takes 100 times as long as predicted: its last wave does not
// tell how it goes on.
TEST(Replay, AVeryLateOneOfSeveralWavesIsChargedAndLearntBesideAGraph) {
  Replay replay(132);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  replay.Append(a, Kernel(100, 133.0f / 132), Nanos(0));
  replay.Boundary(a);
  Replay::Command part = Kernel(60, 53.0f / 132);
  part.parts = 4;
  for (int i = 0; i < 4; ++i) replay.Append(b, part, Nanos(0));
  replay.Boundary(b);
  const Replay::Batch late = replay.Complete(a, Millis(10));
  const Replay::Batch graph = replay.Complete(b, Us(10'200));
  EXPECT_GT(late.used_ns, 9.7e6);
  EXPECT_GT(late.ratio, 90);
  EXPECT_LT(late.ratio, 102);
  EXPECT_LT(graph.used_ns, 1.1 * 240e3 + 200e3);  // the second term is the time from 10 ms on
  EXPECT_NEAR(late.used_ns + graph.used_ns, 10.2e6, 1);
}

// Time that was charged to others is not charged again.
TEST(Replay, WhatItDidNotSeeIsChargedOnlyForTimeThatNobodyElseHad) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  replay.Append(b, Kernel(94, 1), Nanos(0));
  replay.Boundary(b);
  replay.Append(a, Kernel(20, 1), Us(500));
  replay.Boundary(a);
  EXPECT_NEAR(replay.Complete(b, Us(94)).used_ns, 94'000, 1);
  EXPECT_NEAR(replay.Complete(a, Us(100), Us(100), Replay::End::kBefore).used_ns, 6000, 1);
}

// In the model it waited behind other work for longer than it takes, which does not mean that its launch time is
// wrong.
TEST(Replay, WhatStoodBehindOthersIsNotGuessed) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  replay.Append(b, Kernel(100, 1), Nanos(0));
  replay.Boundary(b);
  replay.Append(a, Kernel(20, 1), Us(10));
  replay.Boundary(a);
  const Replay::Batch batch = replay.Complete(a, Us(60), Us(60), Replay::End::kBefore);
  EXPECT_FALSE(batch.guessed);
  EXPECT_EQ(batch.used_ns, 0);
}

TEST(Replay, AStreamThatComesLaterIsNotTakenToHaveRunBefore) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0);
  replay.Boundary(a);
  replay.Complete(a, Us(100));
  const auto b = replay.AddStream(1, 0);
  replay.Append(b, Kernel(50, 1), Us(900));
  replay.Boundary(b);
  EXPECT_NEAR(replay.Complete(b, Us(110), Us(111), Replay::End::kBefore).used_ns, 10'000, 1);
}

// A marker for which the driver does not report the time of completion is no lower bound for a later batch.
TEST(Replay, AMarkerWithoutAStampBoundsNothing) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0);
  replay.Boundary(a);
  replay.Complete(a, Us(10));
  replay.Boundary(a);
  replay.Complete(a, Us(38), Us(90), Replay::End::kUnknown);
  replay.Append(a, Kernel(20, 1), Us(500));
  replay.Boundary(a);
  const Replay::Batch batch = replay.Complete(a, Us(40), Us(41), Replay::End::kBefore);
  EXPECT_NEAR(batch.used_ns, 20'000, 1);
}

// Kernels that are shorter than a launch, on one stream and then on another: when the markers are recorded, the first
// stream has long been idle.
TEST(Replay, WhatWasFoundIdleHeldNobodyUp) {
  for (const bool told_at_once : {true, false}) {
    Replay replay(100);
    const auto a = replay.AddStream(0, 0), b = replay.AddStream(0, 0);
    for (int i = 0; i < 10; ++i) replay.Append(a, Kernel(3, 1), Us(4 * i));
    for (int i = 10; i < 20; ++i) replay.Append(b, Kernel(3, 1), Us(4 * i));
    replay.Boundary(a);
    replay.Boundary(b);
    if (!told_at_once) replay.UsedSoFar(b, Us(60));
    replay.Stamped(a, /*found_idle=*/true);
    replay.Stamped(b, /*found_idle=*/false);
    const Replay::Batch first = replay.Complete(a, Us(78), Us(79), Replay::End::kBefore);
    EXPECT_NEAR(first.used_ns, 30'000, 1);
    EXPECT_FALSE(first.guessed);
    EXPECT_FALSE(first.learnable);
    const Replay::Batch second = replay.Complete(b, Us(79), Us(80), Replay::End::kStamped);
    // Time that the model had already run past before it was told is charged to nobody, but no more than that.
    EXPECT_NEAR(second.used_ns, told_at_once ? 30'000 : 19'000, 1000);
  }
}

// The two boundaries are separate: the first found its stream idle, the second is behind running work.
TEST(Replay, WhatIsToldOfOneMarkerIsNotOfTheNext) {
  Replay replay(100);
  const auto s = replay.AddStream(0, 0);
  replay.Append(s, Kernel(10, 1), Us(0));
  replay.Boundary(s);
  replay.Append(s, Kernel(10, 1), Us(100));
  replay.Boundary(s);
  replay.Stamped(s, /*found_idle=*/true);
  replay.Stamped(s, /*found_idle=*/false);
  EXPECT_NEAR(replay.Complete(s, Us(50), Us(51), Replay::End::kBefore).used_ns, 10'000, 1);
  const Replay::Batch second = replay.Complete(s, Us(130));
  EXPECT_NEAR(second.used_ns, 30'000, 1);
  EXPECT_NEAR(second.ratio, 3, 0.01);
}

// As above, but the model ran past the batches' predicted ends while their markers were still being recorded.
TEST(Replay, WhatMayHaveEndedHoldsNobodyUp) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(0, 0);
  for (int i = 0; i < 10; ++i) replay.Append(a, Kernel(3, 1), Us(4 * i));
  for (int i = 10; i < 20; ++i) replay.Append(b, Kernel(3, 1), Us(4 * i));
  replay.Boundary(a, /*holds=*/false);
  replay.Boundary(b, /*holds=*/false);
  replay.UsedSoFar(b, Us(60));
  replay.Stamped(a, /*found_idle=*/true);
  replay.Stamped(b, /*found_idle=*/false);
  EXPECT_NEAR(replay.Complete(a, Us(78), Us(79), Replay::End::kBefore).used_ns, 30'000, 1);
  EXPECT_NEAR(replay.Complete(b, Us(79)).used_ns, 30'000, 1);
}

// The batch was taken to have ended as predicted, and has not.
TEST(Replay, WhatIsFoundToHoldRunsOn) {
  for (const int commands : {1, 2}) {
    for (const bool stamped : {false, true}) {
      SCOPED_TRACE(commands + 2 * stamped);
      Replay replay(100);
      const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
      replay.Append(a, Kernel(10, 0.5), Nanos(0));
      for (int i = 1; i < commands; ++i) replay.Append(a, Kernel(10, 0.5), Nanos(0));
      replay.Boundary(a, /*holds=*/false);
      const double predicted = 10'000.0 * commands;
      EXPECT_NEAR(replay.UsedSoFar(a, Us(30)), predicted, 1);
      if (stamped) {
        replay.Stamped(a, /*found_idle=*/false);
      } else {
        replay.Holds(a);
        replay.Holds(a);
        EXPECT_EQ(replay.Overrun(a), Us(30 - 10 * commands));
      }
      replay.Append(b, Kernel(20, 0.5), Us(30));
      replay.Boundary(b);
      // From then on it holds its SMs beside the other.
      EXPECT_NEAR(replay.Complete(b, Us(50)).used_ns, 10'000, 1);
      const Replay::Batch batch = replay.Complete(a, Us(50));
      EXPECT_NEAR(batch.used_ns, predicted + 10'000, 1);
      EXPECT_TRUE(batch.learnable);
      EXPECT_NEAR(batch.ratio, (predicted + 20'000) / predicted, 0.01);
      EXPECT_EQ(batch.commands.size(), static_cast<size_t>(commands));
    }
  }
}

// The time from a launch to its marker bounds a command, and clocks are not exact.
TEST(Replay, ABoundThatIsHardlyBelowThePredictionIsNotLearnt) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0);
  Nanos now(0);
  for (const auto& [bound, learnt] :
       {std::pair{Nanos(9500), false}, std::pair{Nanos(8500), true}}) {
    replay.Append(a, Kernel(10, 1), now);
    replay.Boundary(a);
    now += bound;
    EXPECT_EQ(replay.Complete(a, now, now, Replay::End::kBefore).learnable, learnt);
  }
}

TEST(Replay, OpaqueWorkHasWhatKnownWorkLeavesIt) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0), lease = replay.AddStream(1, 0);
  replay.Append(lease, Lease(500), Nanos(0));
  replay.Boundary(lease);
  for (int i = 0; i < 3; ++i) replay.Append(a, Kernel(200, 1), Us(10));
  replay.Boundary(a);
  // On the device the kernels of both alternate.
  const Replay::Batch known = replay.Complete(a, Us(900));
  const Replay::Batch opaque = replay.Complete(lease, Us(1000));
  EXPECT_NEAR(known.used_ns, 600'000, 1);
  EXPECT_FALSE(known.learnable);
  EXPECT_NEAR(opaque.used_ns, 400'000, 1);
}

// The lease's last kernel ran before the known one, which the model had run already.
// Its SMs are nobody's in the model: that it ended before its marker does not say that it took nothing.
TEST(Replay, OpaqueWorkTeachesNothingWhenItsMarkerFoundTheStreamIdle) {
  Replay replay(100);
  const auto graph = replay.AddStream(1, 0);
  replay.Append(graph, Lease(100), Us(0));
  replay.Boundary(graph);
  const Replay::Batch batch = replay.Complete(graph, Us(60), Us(60), Replay::End::kBefore);
  EXPECT_NEAR(batch.used_ns, 60'000, 1);
  EXPECT_FALSE(batch.learnable) << batch.ratio;
}

TEST(Replay, TimeAfterItsMarkerIsOwedToTheOpaqueWork) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0), lease = replay.AddStream(1, 0);
  replay.Append(lease, Lease(200), Nanos(0));
  replay.Boundary(lease);
  replay.Append(a, Kernel(200, 1), Nanos(0));
  replay.Boundary(a);
  double opaque = replay.Complete(lease, Us(200)).used_ns;
  EXPECT_NEAR(replay.Complete(a, Us(400)).used_ns, 200'000, 1);
  replay.Append(lease, Lease(100), Us(400));
  replay.Boundary(lease);
  opaque += replay.Complete(lease, Us(500)).used_ns;
  EXPECT_NEAR(opaque, 300'000, 1);
}

TEST(Replay, SeveralOpaqueOnesSplitByTheirCosts) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  replay.Append(a, Lease(300), Nanos(0));
  replay.Boundary(a);
  replay.Append(b, Lease(100), Nanos(0));
  replay.Boundary(b);
  EXPECT_NEAR(replay.Complete(a, Us(400)).used_ns, 300'000, 1);
  EXPECT_NEAR(replay.Complete(b, Us(400)).used_ns, 100'000, 1);
}

TEST(Replay, HigherPriorityGoesFirst) {
  Replay replay(100);
  const auto low = replay.AddStream(0, 1), high = replay.AddStream(1, 0);
  replay.Append(low, Kernel(100, 1), Us(10));
  replay.Boundary(low);
  replay.Append(high, Kernel(40, 1), Us(10));
  replay.Boundary(high);
  EXPECT_NEAR(replay.Complete(high, Us(50)).used_ns, 40'000, 1);
  EXPECT_NEAR(replay.Complete(low, Us(150)).used_ns, 100'000, 1);
}

// A command with a greater level goes before commands on streams of the same priority, but waits for blocks that have
// begun.
TEST(Replay, ACommandOfAGreaterLevelGoesFirst) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0), c = replay.AddStream(2, 0);
  replay.Append(a, Kernel(30, 1), Nanos(0));  // has already begun
  replay.Boundary(a);
  replay.Append(b, Kernel(100, 1), Us(10));
  replay.Boundary(b);
  Replay::Command first = Kernel(40, 1);
  first.level = 1;
  replay.Append(c, first, Us(20));
  replay.Boundary(c);
  EXPECT_NEAR(replay.Complete(a, Us(30)).used_ns, 30'000, 1);
  EXPECT_NEAR(replay.Complete(c, Us(70)).used_ns, 40'000, 1);
  EXPECT_NEAR(replay.Complete(b, Us(170)).used_ns, 100'000, 1);
}

// In the model b ends before c arrives. On the device b ends after c, and b's marker has not completed yet. The model
// looks for such markers when something begins or ends and when somebody asks.
TEST(Replay, WhoIsLateBehindAGreaterPriorityHasWaitedForIt) {
  for (const bool greater : {false, true}) {
    SCOPED_TRACE(greater);
    Replay replay(100);
    const auto b = replay.AddStream(0, 0), c = replay.AddStream(1, greater ? -1 : 0);
    replay.Append(b, Kernel(50, 1), Nanos(0));
    replay.Boundary(b);
    replay.Append(c, Kernel(100, 1), Us(60));
    replay.Boundary(c);
    replay.UsedSoFar(b, Us(80));
    const Replay::Batch ended = replay.Complete(c, Us(160));
    const Replay::Batch late = replay.Complete(b, Us(210));
    if (greater) {
      EXPECT_NEAR(ended.used_ns, 80'000, 1);
      EXPECT_NEAR(late.used_ns, 130'000, 1);
    } else {
      EXPECT_NEAR(late.used_ns + ended.used_ns, 210'000, 1);
      EXPECT_GT(late.used_ns, 150'000);  // it is assumed to have run on
    }
  }
}

// If it is late by less than commands of one key differ, it is assumed to have run on.
TEST(Replay, WhoIsHardlyLateRunsOnBehindAGreaterPriority) {
  Replay replay(100);
  const auto b = replay.AddStream(0, 0), c = replay.AddStream(1, -1);
  replay.Append(b, Kernel(100, 1), Nanos(0));  // really takes 105 us
  replay.Boundary(b);
  replay.Append(c, Kernel(50, 1), Us(102));
  replay.Boundary(c);
  EXPECT_NEAR(replay.Complete(b, Us(105)).used_ns, 105'000, 1);
  EXPECT_NEAR(replay.Complete(c, Us(155)).used_ns, 50'000, 1);
}

TEST(Replay, AbandonedWorkEndsByPredictionAndHoldsNobodyUp) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  replay.Append(a, Kernel(30, 1), Nanos(0));
  replay.Abandon(a);
  replay.Append(b, Kernel(50, 1), Nanos(0));
  replay.Boundary(b);
  EXPECT_NEAR(replay.Complete(b, Us(80)).used_ns, 50'000, 1);
}

TEST(Replay, ARemovedStreamReleasesTheDevice) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  replay.Append(a, Kernel(1000, 1), Nanos(0));
  replay.Boundary(a);
  replay.Append(b, Kernel(10, 1), Nanos(0));
  replay.Boundary(b);
  replay.Boundary(b);
  EXPECT_EQ(replay.Complete(b, Us(5)).used_ns, 0);
  replay.RemoveStream(a);
  EXPECT_NEAR(replay.Complete(b, Us(15)).used_ns, 0, 1);
}

// A copy that repeats the recorded calls gives the same answers.
TEST(Replay, ACopyThatIsToldTheSameSaysTheSame) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  replay.Append(a, Kernel(30, 2.5), Nanos(0));
  replay.Boundary(a);
  std::vector<Replay::Call> calls;
  calls.reserve(200);
  const Replay before = replay.Copy();
  replay.Record(&calls);
  std::vector<double> used;
  Nanos now(0);
  for (int i = 0; i < 10; ++i) {
    replay.Append(b, Kernel(20 + i, 0.4), now);
    replay.Append(b, Kernel(5, 1.2), now);
    replay.Boundary(b);
    replay.Append(a, Kernel(40 - i, 0.7), now);
    replay.Boundary(a, /*holds=*/false);
    now += Us(35);
    if (i % 2 == 0) replay.Holds(a);
    used.push_back(replay.Complete(a, now).used_ns);
    replay.UsedSoFar(b, now + Us(5));
    now += Us(20);
    replay.Stamped(b, i % 3 == 0);
    used.push_back(replay.Complete(b, now, now, Replay::End::kBefore).used_ns);
  }
  const auto c = replay.AddStream(2, 0);
  replay.Append(c, Kernel(20, 1), now);
  replay.Refuse(c, 0);
  replay.Boundary(c);
  replay.DropBoundary(c);
  replay.Abandon(c);
  used.push_back(replay.Complete(a, now + Us(50)).used_ns);
  replay.RemoveStream(c);
  replay.Record(nullptr);
  EXPECT_FALSE(calls.empty());
  Replay copy = before.Copy();
  std::vector<double> again;
  for (const Replay::Call& call : calls) {
    const std::optional<Replay::Batch> batch = copy.Repeat(call);
    if (batch.has_value()) again.push_back(batch->used_ns);
  }
  EXPECT_EQ(again, used);
  EXPECT_EQ(copy.now(), replay.now());
  // Calls that do not fit into the vector are not recorded.
  calls.resize(calls.capacity());
  replay.Record(&calls);
  replay.Boundary(a);
  EXPECT_EQ(calls.size(), calls.capacity());
}

TEST(Replay, SaysHowMuchLaterThanInTheModelABatchHasEnded) {
  Replay replay(100);
  const auto a = replay.AddStream(0, 0);
  replay.Append(a, Kernel(30, 1), Nanos(0));
  replay.Boundary(a);
  EXPECT_NEAR(replay.Complete(a, Us(42)).late_ns, 12'000, 1);
  replay.Append(a, Kernel(30, 1), Us(42));
  replay.Append(a, Kernel(20, 1), Us(42));
  replay.Boundary(a);
  EXPECT_NEAR(replay.Complete(a, Us(62)).late_ns, -30'000, 1);
}

TEST(Replay, PropertyChargesNeverExceedElapsedTime) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(random); };
    Replay replay(80);
    const int tenants = pick(1, 6);
    std::vector<Replay::StreamId> streams;
    std::vector<int> open(static_cast<size_t>(tenants));
    for (int i = 0; i < tenants; ++i)
      streams.push_back(
          replay.AddStream(static_cast<uint32_t>(i), seed % 2 == 0 ? 0 : pick(-2, 0)));
    double charged = 0;
    Nanos now(0);
    for (int step = 0; step < 2000; ++step) {
      const size_t i = static_cast<size_t>(pick(0, tenants - 1));
      switch (pick(0, 3)) {
        case 0:
        case 1: {
          Replay::Command command =
              pick(0, 9) == 0 ? Lease(pick(1, 400)) : Kernel(pick(1, 400), pick(1, 300) / 100.0);
          if (seed % 3 == 0) command.level = pick(0, 1);
          replay.Append(streams[i], command, now + Us(pick(-50, 50)));
          break;
        }
        case 2:
          if (pick(0, 2) == 0) replay.Holds(streams[i]);
          replay.Boundary(streams[i], /*holds=*/pick(0, 1) == 0);
          ++open[i];
          break;
        default:
          if (open[i] == 0) break;
          now += Us(pick(0, 200));
          charged += replay
                         .Complete(streams[i], now, now + Nanos(pick(0, 1000)),
                                   pick(0, 2) == 0 ? Replay::End::kBefore : Replay::End::kStamped)
                         .used_ns;
          --open[i];
      }
      ASSERT_EQ(replay.pending(streams[i]), open[i]);
    }
    EXPECT_LE(charged, static_cast<double>(now.count()) + 1);
  }
}

}  // namespace
}  // namespace gpushare::meter
