// SPDX-License-Identifier: Apache-2.0
#include "meter/outlook.h"

#include <gtest/gtest.h>

#include <vector>

#include "meter/replay.h"

namespace gpushare::meter {
namespace {

constexpr int kSms = 100;
constexpr double kUs = 1e3;

Outlook::Command Kernel(double us, int groups) { return {.length = us * kUs, .groups = groups}; }

// Line 0 is the line of the new command. Line 1 is the one whose delay is limited, and goes first.
Outlook Of(std::vector<Outlook::Command> kept, bool ends = true) {
  Outlook outlook(kSms, 0);
  outlook.Add();
  outlook.Add() = {.kept = true, .priority = -1, .ahead = std::move(kept), .ends = ends};
  return outlook;
}

TEST(Outlook, WhatFitsBesideDelaysNothing) {
  const Outlook::Delay delay = Of({Kernel(50, 40), Kernel(50, 40)}).Of(Kernel(80, 60));
  EXPECT_TRUE(delay.known);
  EXPECT_EQ(delay.kept, 0);
  EXPECT_EQ(delay.starts, 0);
  EXPECT_EQ(delay.ends, 80 * kUs);
}

TEST(Outlook, AWideOneWaitsForWhatIsLeftOfIt) {
  Outlook outlook = Of({Kernel(30, 40), Kernel(40, 100), Kernel(100, 10)});
  EXPECT_EQ(outlook.Of(Kernel(30, 60)).kept, 0);
  EXPECT_EQ(outlook.Of(Kernel(45, 60)).kept, 15 * kUs);
  EXPECT_EQ(outlook.Of(Kernel(70, 60)).kept, 40 * kUs);
}

TEST(Outlook, WhatIsLaunchedLaterBeginsLater) {
  Outlook::Command command = Kernel(20, 60);
  command.not_before = 75 * kUs;
  const Outlook::Delay delay = Of({Kernel(30, 40), Kernel(40, 100), Kernel(100, 10)}).Of(command);
  EXPECT_EQ(delay.starts, 75 * kUs);
  EXPECT_EQ(delay.kept, 0);
}

// 120 groups on 60 SMs take two waves; the second begins when the first ends.
TEST(Outlook, WavesAreRunOneAfterTheOther) {
  const Outlook::Delay delay = Of({Kernel(200, 40)}).Of(Kernel(80, 120));
  EXPECT_EQ(delay.ends, 80 * kUs);
  EXPECT_EQ(delay.kept, 0);
}

TEST(Outlook, WhatComesBehindAllThatIsKnownMayWantTheDeviceAtOnce) {
  Outlook outlook = Of({Kernel(30, 40)});
  EXPECT_EQ(outlook.Of(Kernel(25, 60)).kept, 0);
  EXPECT_EQ(outlook.Of(Kernel(50, 60)).kept, 20 * kUs);
  EXPECT_EQ(outlook.Of(Kernel(50, 100)).kept, 50 * kUs);  // it begins behind the known commands
}

TEST(Outlook, BesideSomethingUnknownNothingIsKnown) {
  Outlook outlook = Of({Kernel(30, 40), Kernel(30, 40)}, /*ends=*/false);
  EXPECT_TRUE(outlook.Of(Kernel(50, 60)).known);
  EXPECT_FALSE(outlook.Of(Kernel(70, 60)).known);
  EXPECT_FALSE(
      Of({}).Of(Kernel(1, 1)).known);  // the line runs something that is not in the books yet
  Outlook own(kSms, 0);
  own.Add() = {.ends = false};
  own.Add() = {.kept = true, .ahead = {Kernel(30, 40)}};
  EXPECT_FALSE(own.Of(Kernel(1, 1)).known);
}

// During a marker its stream holds no SMs, so a waiting wide command gets all of them.
TEST(Outlook, AMarkersMomentLetsAWideOneIn) {
  const std::vector<Outlook::Command> without = {Kernel(30, 80), Kernel(30, 80), Kernel(30, 80)};
  const std::vector<Outlook::Command> with = {
      Kernel(30, 80), {.length = 1 * kUs}, Kernel(30, 80), Kernel(30, 80)};
  Outlook::Command wide = Kernel(20, 200);  // 10 us each; 20 of them begin at once
  // Ten turns of 20 groups: the last one ends 10 us after all known commands.
  EXPECT_EQ(Of(without).Of(wide).kept, 10 * kUs);
  EXPECT_EQ(Of(with).Of(wide).kept, 9 * kUs);
}

TEST(Outlook, ItIsLaunchedBehindItsOwn) {
  Outlook outlook(kSms, 0);
  outlook.Add() = {.running = {{20 * kUs, 60}}, .ahead = {Kernel(10, 60), {.length = 1 * kUs}}};
  outlook.Add() = {.kept = true, .priority = -1, .ahead = {Kernel(50, 40), Kernel(50, 100)}};
  const Outlook::Delay delay = outlook.Of(Kernel(30, 60));
  EXPECT_EQ(delay.starts, 31 * kUs);
  EXPECT_EQ(delay.kept, 11 * kUs);
}

TEST(Outlook, OfEqualPriorityTheElderGoesFirst) {
  Outlook outlook(kSms, 0);
  outlook.Add();
  outlook.Add() = {.kept = true, .running = {{10 * kUs, 100}}, .ahead = {Kernel(50, 100)}};
  // The new command has waited for longer than the second command of line 1.
  EXPECT_EQ(outlook.Of(Kernel(30, 60)).kept, 30 * kUs);
}

TEST(Outlook, SeveralAreKeptEachByItself) {
  Outlook outlook(kSms, 0);
  outlook.Add();
  outlook.Add() = {.kept = true, .priority = -1, .ahead = {Kernel(100, 10)}};
  outlook.Add() = {.kept = true, .priority = -1, .ahead = {Kernel(20, 10), Kernel(50, 90)}};
  EXPECT_EQ(outlook.Of(Kernel(20, 80)).kept, 0);
  EXPECT_EQ(outlook.Of(Kernel(35, 80)).kept, 15 * kUs);
}

TEST(Outlook, SaysWhenTheKeptOnesAreDone) {
  Outlook outlook = Of({Kernel(30, 40), Kernel(40, 100), Kernel(10, 10), Kernel(10, 10)});
  EXPECT_EQ(outlook.KeptEnds(35 * kUs, 2), (std::vector<double>{70 * kUs, 80 * kUs}));
  EXPECT_EQ(outlook.KeptEnds(85 * kUs, 8), (std::vector<double>{90 * kUs}));
}

// ---- An outlook from the replay's books

Replay::Command Sure(double us, double footprint) {
  return {.entry = 0,
          .cost_ns = static_cast<float>(us * kUs),
          .footprint = static_cast<float>(footprint),
          .sure = true};
}
bool First(uint32_t tenant) { return tenant == 0; }

TEST(Outlook, TheReplayTellsWhatItKnows) {
  Replay replay(kSms);
  const auto service = replay.AddStream(0, -1), job = replay.AddStream(1, 0);
  replay.Append(service, Sure(30, 0.4), Nanos(0));
  replay.Boundary(service);
  replay.Append(service, Sure(40, 1), Nanos(0));
  Outlook outlook;
  ASSERT_TRUE(replay.Look(job, First, 64, 1 * kUs, outlook));
  EXPECT_EQ(outlook.Of(Kernel(41, 60)).kept, 10 * kUs);
  EXPECT_EQ(outlook.KeptEnds(0, 8), (std::vector<double>{30 * kUs, 31 * kUs, 71 * kUs}));
  // The outlook advances with the replay.
  replay.Complete(service, Micros(33), Micros(34), Replay::End::kStamped);
  ASSERT_TRUE(replay.Look(job, First, 64, 1 * kUs, outlook));
  EXPECT_EQ(outlook.KeptEnds(0, 8), (std::vector<double>{74 * kUs}));
}

TEST(Outlook, WhatHasBegunIsInIt) {
  Replay replay(kSms);
  const auto service = replay.AddStream(0, -1), job = replay.AddStream(1, 0);
  const auto other = replay.AddStream(2, 0);
  replay.Append(service, Sure(90, 0.4), Nanos(0));
  replay.Append(service, Sure(50, 1), Nanos(0));
  replay.Append(other, Sure(20, 0.1), Nanos(0));
  replay.Boundary(other);
  replay.Complete(other, Micros(20));
  Outlook outlook;
  ASSERT_TRUE(replay.Look(job, First, 64, 1 * kUs, outlook));
  EXPECT_EQ(outlook.KeptEnds(0, 8), (std::vector<double>{90 * kUs, 140 * kUs}));
}

TEST(Outlook, WhatIsNotSureIsNotLookedBeyond) {
  Replay replay(kSms);
  const auto service = replay.AddStream(0, -1), job = replay.AddStream(1, 0);
  replay.Append(service, Sure(30, 0.4), Nanos(0));
  Replay::Command guess = Sure(30, 0.4);
  guess.sure = false;
  replay.Append(service, guess, Nanos(0));
  Outlook outlook;
  ASSERT_TRUE(replay.Look(job, First, 64, 0, outlook));
  EXPECT_TRUE(outlook.Of(Kernel(29, 60)).known);
  EXPECT_FALSE(outlook.Of(Kernel(31, 60)).known);
  // The same holds beyond the maximum number of commands.
  Outlook near;
  ASSERT_TRUE(replay.Look(job, First, 1, 0, near));
  EXPECT_FALSE(near.Of(Kernel(31, 60)).known);
}

TEST(Outlook, BesideALeaseNothingIsSaid) {
  Replay replay(kSms);
  const auto service = replay.AddStream(0, -1), job = replay.AddStream(1, 0);
  replay.Append(service, Sure(30, 0.4), Nanos(0));
  Outlook outlook;
  ASSERT_TRUE(replay.Look(job, First, 64, 0, outlook));
  replay.Append(job, {.entry = 0, .cost_ns = 5e4f, .footprint = 1, .opaque = true}, Nanos(0));
  EXPECT_FALSE(replay.Look(job, First, 64, 0, outlook));
}

TEST(Outlook, TheReplayTellsHowLongWhatWasLetInWasBeside) {
  Replay replay(kSms);
  const auto service = replay.AddStream(0, -1), job = replay.AddStream(1, 0);
  const auto batch = [&](bool beside) {
    const Nanos from = replay.now();
    replay.Append(service, Sure(30, 0.4), from);
    replay.Append(service, Sure(40, 1), from);
    replay.Boundary(service);
    Replay::Command let_in = Sure(50, 0.6);
    let_in.beside = beside;
    replay.Append(job, let_in, from);
    replay.Boundary(job);
    replay.Complete(job, from + Micros(50));
    return replay.Complete(service, from + Micros(90));
  };
  EXPECT_EQ(batch(false).beside_ns, 0);
  EXPECT_NEAR(batch(true).beside_ns, 50 * kUs, 1);  // it waited for 20 us of this
  EXPECT_EQ(batch(false).beside_ns, 0);
  // Removing the command's stream ends its time beside the service.
  Replay::Command let_in = Sure(50, 0.6);
  let_in.beside = true;
  replay.Append(job, let_in, replay.now());
  replay.RemoveStream(job);
  const Nanos from = replay.now();
  replay.Append(service, Sure(30, 0.4), from);
  replay.Boundary(service);
  EXPECT_EQ(replay.Complete(service, from + Micros(30)).beside_ns, 0);
}

}  // namespace
}  // namespace gpushare::meter
