// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>

#include "client/copy_share.h"
#include "client/gpu_session.h"
#include "client/link_share.h"
#include "tests/unit/client/fake_broker.h"

namespace gpushare::client {
namespace {

using gate::CopyState;

constexpr auto kTo = gate::CopyDirection::kHostToDevice, kFrom = gate::CopyDirection::kDeviceToHost;
constexpr uint64_t kRate = 1'000'000'000;

TEST(CopyShare, WhatWasGrantedIsThereOnce) {
  CopyShare share;
  EXPECT_FALSE(share.Look({.granted = 0, .rate = kRate}, Time()));
  EXPECT_EQ(share.Await(), 1u);
  EXPECT_TRUE(share.Look({.granted = 100, .rate = kRate}, Time()));
  share.Charge(100);
  EXPECT_FALSE(share.Look({.granted = 100, .rate = kRate}, Time()));
  share.Charge(6);
  EXPECT_EQ(share.Await(), 107u);                                    // the debt and one byte
  EXPECT_FALSE(share.Look({.granted = 50, .rate = kRate}, Time()));  // nonsense
  EXPECT_FALSE(share.Look({.granted = 106, .rate = kRate}, Time()));
  EXPECT_TRUE(share.Look({.granted = 107, .rate = kRate}, Time()));
  share.Charge(1'000);
  share.Charge(-1'000);
  EXPECT_TRUE(share.Look({.granted = 107, .rate = kRate}, Time()));
  // Whatever figures a broker writes.
  EXPECT_TRUE(share.Look({.granted = UINT64_MAX, .rate = kRate}, Time()));
  share.Charge(CopyShare::kMost + 1);
  EXPECT_EQ(share.Await(), UINT64_MAX);
  // A new session keeps the debt of the previous one.
  share.Lift({.granted = UINT64_MAX});
  share.Charge(5);
  share.Begin();
  EXPECT_FALSE(share.Look({.granted = 5, .rate = kRate}, Time()));
  EXPECT_TRUE(share.Look({.granted = 6, .rate = kRate}, Time()));
}

TEST(CopyShare, WhatComesWhileNobodyWaitsIsBounded) {
  CopyShare share;
  share.Look({.granted = UINT64_MAX / 2, .rate = kRate}, Time());
  share.Charge(10'000'000);  // 10 ms at the limit
  EXPECT_FALSE(share.Look({.granted = UINT64_MAX / 2, .rate = kRate}, Time()));
  // Credit that was there stays, and credit that a thread waits for is not cut.
  share.Await();
  EXPECT_TRUE(share.Look({.granted = UINT64_MAX / 2 + 30'000'000, .rate = kRate}, Time()));
  share.Unawait();
  EXPECT_TRUE(share.Look({.granted = UINT64_MAX / 2 + 40'000'000, .rate = kRate}, Time()));
  share.Charge(29'999'999);
  EXPECT_TRUE(share.Look({.granted = UINT64_MAX / 2 + 40'000'000, .rate = kRate}, Time()));
  share.Charge(1);
  EXPECT_FALSE(share.Look({.granted = UINT64_MAX / 2 + 40'000'000, .rate = kRate}, Time()));
}

TEST(CopyShare, GoesOnByTheClockWithoutABroker) {
  const CopyShare::Limits limits{.granted = 5, .rate = kRate};
  CopyShare share;
  const Time begin(Seconds(1));
  share.Lose(limits, /*goes_on=*/true, begin);
  share.Charge(5);  // the broker's last figures count
  EXPECT_FALSE(share.Look(limits, begin));
  share.Charge(999);
  EXPECT_EQ(share.LookBy(limits, begin), begin + Nanos(1001));
  share.Charge(-999);
  int64_t sum = 0;
  for (int i = 1; i <= 1000; ++i) {
    for (const Time now = begin + Nanos(i * 999'999); share.Look(limits, now); sum += 1000) {
      share.Charge(1000);
    }
  }
  EXPECT_NEAR(static_cast<double>(sum), 1e9, 4e3);
  // Credit that is not used in time is not saved up.
  EXPECT_TRUE(share.Look(limits, Time(Seconds(60))));
  share.Charge(10'001'000);
  EXPECT_FALSE(share.Look(limits, Time(Seconds(60))));
  share.Lose(limits, /*goes_on=*/false, Time(Seconds(60)));
  EXPECT_FALSE(share.Look(limits, Time(Seconds(70))));
  EXPECT_EQ(share.LookBy(limits, Time(Seconds(70))), kNever);
}

class CopiesTest : public GpuSessionTest {
 protected:
  void Limits(uint64_t rate) {
    broker.said().copy_rate[0] = rate;
    broker.Wake();
    gpu->Look(clock.now);
  }
  uint64_t wanted() const { return broker.used().copy_wanted[0]; }
};

TEST_F(CopiesTest, AsksOnceForWhatIsMissing) {
  EXPECT_FALSE(gpu->LimitsCopies(kTo));
  EXPECT_EQ(gpu->Copies(kTo, clock.now), CopyState::kUnlimited);
  gpu->ChargeCopy(kTo, 1000);  // leaves no debt
  Limits(1'000'000);
  EXPECT_TRUE(gpu->LimitsCopies(kTo));
  EXPECT_FALSE(gpu->LimitsCopies(kFrom));
  broker.rung();
  EXPECT_EQ(gpu->Copies(kTo, clock.now), CopyState::kUsedUp);
  EXPECT_EQ(gpu->Copies(kFrom, clock.now), CopyState::kUnlimited);
  gpu->ChargeCopy(kTo, 9);
  gpu->AwaitCopies(kTo, clock.now);
  EXPECT_TRUE(broker.rung());
  gpu->AwaitCopies(kTo, clock.now);
  EXPECT_FALSE(broker.rung());
  EXPECT_EQ(wanted(), 10u);
  EXPECT_EQ(broker.used().copy_wanted[1], 0u);
  // The engine is told of new credit.
  int told = 0;
  gpu->SetOnTime([&] { ++told; });
  broker.said().copy_granted[0] = 4096;
  broker.Wake();
  gpu->Look(clock.now);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(gpu->Copies(kTo, clock.now), CopyState::kOpen);
  gpu->ChargeCopy(kTo, 4096);
  gpu->AwaitCopies(kTo, clock.now);
  EXPECT_TRUE(broker.rung());
  EXPECT_EQ(wanted(), 4106u);
  EXPECT_EQ(broker.used().copy_used[0], 4105u);  // its tenant owes 9 of these if it ends now
}

TEST_F(CopiesTest, WantsLessWhenLessIsMissingAndNothingWhenNobodyWaits) {
  Limits(1'000'000);
  gpu->ChargeCopy(kTo, 999);
  gpu->AwaitCopies(kTo, clock.now);
  EXPECT_EQ(wanted(), 1000u);
  gpu->ChargeCopy(kTo, -900);  // the driver refused it
  gpu->AwaitCopies(kTo, clock.now);
  EXPECT_EQ(wanted(), 100u);
  gpu->NobodyAwaitsCopies(kTo);
  EXPECT_EQ(wanted(), 0u);
  broker.rung();
  gpu->AwaitCopies(kTo, clock.now);
  EXPECT_EQ(wanted(), 100u);
  EXPECT_TRUE(broker.rung());
  // A grant that arrives during the report is seen at once.
  broker.said().copy_granted[0] = 100;
  EXPECT_EQ(gpu->AwaitCopies(kTo, clock.now), clock.now);
}

TEST_F(CopiesTest, AreHeldWhileTheTenantIsSuspended) {
  int told = 0;
  gpu->SetOnTime([&] { ++told; });
  broker.said().flags = ipc::LimitsPage::kSuspended;
  broker.Wake();
  gpu->Look(clock.now);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(gpu->Copies(kTo, clock.now), CopyState::kSuspended);  // although they have no limit
  EXPECT_EQ(gpu->Copies(kFrom, clock.now), CopyState::kSuspended);
  broker.said().flags = 0;
  broker.Wake();
  gpu->Look(clock.now);
  EXPECT_EQ(told, 2);
  EXPECT_EQ(gpu->Copies(kTo, clock.now), CopyState::kUnlimited);
}

TEST_F(CopiesTest, WhetherSomebodyGoesFirstIsTheBrokersWord) {
  EXPECT_FALSE(gpu->OthersGoFirst());
  for (const bool below : {true, false}) {
    broker.said().flags = below ? uint32_t{ipc::LimitsPage::kBelow} : 0u;
    broker.Wake();
    gpu->Look(clock.now);
    EXPECT_EQ(gpu->OthersGoFirst(), below);
    EXPECT_EQ(gpu->Copies(kTo, clock.now), CopyState::kUnlimited);
  }
}

TEST_F(CopiesTest, ABrokersEndIsNotTheirs) {
  Limits(1'000'000);
  gpu->AwaitCopies(kTo, clock.now);
  int told = 0;
  gpu->SetOnTime([&] { ++told; });
  gpu->Lose(/*goes_on=*/true);
  EXPECT_EQ(told, 1);
  clock.now += Millis(5);
  EXPECT_EQ(gpu->Copies(kTo, clock.now), CopyState::kOpen);
  gpu->ChargeCopy(kTo, 5002);
  EXPECT_EQ(gpu->Copies(kTo, clock.now), CopyState::kUsedUp);
  const BrokerPages next;
  next.said().copy_rate[0] = 1'000'000;
  gpu->Resume(next.ForProcess());
  EXPECT_TRUE(gpu->LimitsCopies(kTo));
  gpu->AwaitCopies(kTo, clock.now);
  EXPECT_EQ(next.used().copy_wanted[0], 3u);
  EXPECT_TRUE(next.rung());
  next.said().copy_granted[0] = 3;
  EXPECT_EQ(gpu->Copies(kTo, clock.now), CopyState::kOpen);
}

TEST_F(CopiesTest, NobodyLooksOftenForABrokerThatWillNotCome) {
  Limits(1'000'000);
  gpu->Lose(/*goes_on=*/false, /*for_good=*/true);
  EXPECT_EQ(gpu->AwaitCopies(kTo, clock.now), kNever);
  int looks = 0;
  for (const Time end = clock.now + Seconds(10); clock.now < end; ++looks) {
    clock.now = gpu->Look(clock.now);
  }
  EXPECT_LT(looks, 100);
}

constexpr uint64_t kPieceOfLink = 4 << 20;

TEST(LinkShare, GivesWhatWasGrantedAndAsksAhead) {
  LinkShare share;
  Time now{Seconds(1)};
  EXPECT_TRUE(
      share.Take(kPieceOfLink, 10, /*force=*/false, now).open);  // begins while any are left
  EXPECT_FALSE(share.Take(kPieceOfLink, 10, false, now).open);
  EXPECT_EQ(share.given(), kPieceOfLink);
  EXPECT_GT(share.wanted(), kPieceOfLink);
  share.Done(kPieceOfLink - 1);
  share.Done(UINT64_MAX);
  EXPECT_EQ(share.done(), share.given());
  // What has waited for too long is given, and owed.
  EXPECT_TRUE(share.Take(kPieceOfLink, 10, /*force=*/true, now).open);
  EXPECT_FALSE(share.Take(kPieceOfLink, 2 * kPieceOfLink, false, now).open);
  EXPECT_TRUE(share.Take(kPieceOfLink, 2 * kPieceOfLink + 1, false, now).open);
}

TEST(LinkShare, CallsTheBrokerWhenItCopiesMuchOrWaitsForLong) {
  LinkShare share;
  Time now{Seconds(1)};
  const auto rings = [&](uint64_t bytes, uint64_t granted) {
    return share.Take(bytes, granted, false, now).ring;
  };
  EXPECT_FALSE(rings(LinkShare::kSayBytes - 1, ipc::LimitsPage::kLinkUnbound));
  EXPECT_TRUE(rings(1, ipc::LimitsPage::kLinkUnbound));
  EXPECT_FALSE(rings(LinkShare::kSayBytes, ipc::LimitsPage::kLinkUnbound));
  now += LinkShare::kSay;
  EXPECT_TRUE(rings(1, ipc::LimitsPage::kLinkUnbound));
  EXPECT_EQ(share.wanted(), 0u);
  EXPECT_FALSE(rings(1, 1));
  now += LinkShare::kAskAgain;
  EXPECT_TRUE(rings(1, 1));
  EXPECT_FALSE(rings(1, 1));
}

TEST_F(CopiesTest, WhoSharesTheLinkIsTheBrokersWord) {
  using gate::LinkState;
  const auto says = [&](uint64_t granted) {
    broker.said().link_granted[0] = broker.said().link_granted[1] = granted;
    broker.Wake();
    gpu->Look(clock.now);
  };
  EXPECT_EQ(gpu->Link(kTo), LinkState::kFree);
  says(ipc::LimitsPage::kLinkUnbound);
  EXPECT_EQ(gpu->Link(kTo), LinkState::kShared);
  EXPECT_TRUE(gpu->TakeLink(kTo, kPieceOfLink, false, clock.now));
  EXPECT_EQ(broker.used().link_given[0], kPieceOfLink);
  says(kPieceOfLink);
  EXPECT_EQ(gpu->Link(kTo), LinkState::kBound);
  EXPECT_FALSE(gpu->TakeLink(kTo, kPieceOfLink, false, clock.now));
  EXPECT_GT(broker.used().link_wanted[0], kPieceOfLink);
  EXPECT_TRUE(gpu->TakeLink(kFrom, kPieceOfLink, false, clock.now));
  gpu->LinkDone(kTo, kPieceOfLink);
  EXPECT_EQ(broker.used().link_done[0], kPieceOfLink);
  EXPECT_EQ(gpu->LinkWindow(kTo), 0u);
  broker.said().link_window[0] = 7;
  EXPECT_EQ(gpu->LinkWindow(kTo), 7u);
  EXPECT_EQ(gpu->LinkWindow(kFrom), 0u);
  // Without a broker nobody divides it, and the next one hears of what was given before.
  gpu->Lose(/*goes_on=*/true);
  EXPECT_TRUE(gpu->TakeLink(kTo, kPieceOfLink, false, clock.now));
  EXPECT_EQ(gpu->Link(kTo), LinkState::kShared);
  EXPECT_EQ(gpu->LinkWindow(kTo), 0u);
}

}  // namespace
}  // namespace gpushare::client
