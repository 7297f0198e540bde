// SPDX-License-Identifier: Apache-2.0
// Where an account's memory comes from.
#include <gtest/gtest.h>

#include "tests/unit/client/fake_broker.h"

namespace gpushare::client {
namespace {

using MemoryTest = GpuSessionTest;

TEST_F(MemoryTest, BeginsWithWhatTheBrokerGaveAtOnce) {
  EXPECT_EQ(account->limit(), 0u);
  broker.said().memory_granted = 5;
  const GpuSession other(clock, std::make_shared<const ForkMark>(*ForkMark::Create()), kDevice,
                         broker.ForProcess(), "", true);
  const auto held = *quota::Account::Create(0);
  HolderOfOne of_held(*held);
  const_cast<GpuSession&>(other).SetHolder(&of_held);
  EXPECT_EQ(held->limit(), 5u);
}

TEST_F(MemoryTest, ComesInPiecesOfTheShare) {
  Has(UINT64_MAX);
  ASSERT_TRUE(Allocate(kMiB));
  EXPECT_EQ(account->limit(), 16 * kMiB);  // a 64th of the quota
  EXPECT_EQ(broker.used().memory_charged.load(), 0u);
  for (int i = 0; i < 15; ++i) ASSERT_TRUE(Allocate(kMiB));
  EXPECT_EQ(answers, 1);
  ASSERT_TRUE(Allocate(100 * kMiB));
  EXPECT_EQ(account->limit(), 128 * kMiB);
  EXPECT_EQ(broker.used().memory_charged.load(), 16 * kMiB);
}

TEST_F(MemoryTest, NeverAsksBeyondTheLimit) {
  Has(UINT64_MAX);
  ASSERT_TRUE(Allocate(1023 * kMiB));
  EXPECT_EQ(broker.used().memory_wanted.load(), 1024 * kMiB);
  ASSERT_TRUE(Allocate(kMiB));
  const uint32_t asked = broker.used().memory_asked.load();
  EXPECT_FALSE(Allocate(1));
  EXPECT_FALSE(Allocate(UINT64_MAX));
  EXPECT_EQ(broker.used().memory_asked.load(), asked);  // another request would be in vain
}

TEST_F(MemoryTest, OfAShareWithoutALimitItIsPiecesOfTheDevice) {
  broker.said().memory_limit = UINT64_MAX;
  Has(UINT64_MAX);
  ASSERT_TRUE(Allocate(kMiB));
  EXPECT_EQ(account->limit(), 128 * kMiB);
  EXPECT_FALSE(Allocate(UINT64_MAX));
}

TEST_F(MemoryTest, WhatIsNeededMayBeHadWhereAPieceIsNot) {
  clock.others = [this] {  // grants all or nothing
    if (!broker.rung()) return;
    const uint64_t wanted = broker.used().memory_wanted.load();
    broker.Answer(wanted <= 10 * kMiB ? wanted : account->limit());
  };
  EXPECT_TRUE(Allocate(10 * kMiB));
  EXPECT_EQ(account->limit(), 10 * kMiB);
  EXPECT_FALSE(Allocate(1));
}

TEST_F(MemoryTest, ARefusalIsAnAnswer) {
  Has(0);
  const Time before = clock.now;
  EXPECT_FALSE(Allocate(kMiB));
  EXPECT_EQ(clock.now, before);
}

TEST_F(MemoryTest, WithoutAnAnswerItIsRefusedInTheEnd) {
  const Time before = clock.now;
  EXPECT_FALSE(Allocate(kMiB));
  EXPECT_EQ(clock.now - before, GpuSession::kLongestAnswer);
  // A late answer counts too.
  broker.Answer(16 * kMiB);
  gpu->Look(clock.now);
  EXPECT_EQ(account->limit(), 16 * kMiB);
}

TEST_F(MemoryTest, WithADeadlineThatHasPassedItAsksAndDoesNotWait) {
  clock.others = [] { FAIL() << "it waits"; };
  EXPECT_FALSE(gpu->GetRoom(*account, kMiB, clock.now));
  EXPECT_TRUE(broker.rung());
  EXPECT_FALSE(gpu->GetRoom(*account, kMiB, clock.now));
  EXPECT_EQ(broker.used().memory_asked.load(), 1u);  // still the same request
  broker.Answer(16 * kMiB);
  gpu->Look(clock.now);
  EXPECT_TRUE(gpu->GetRoom(*account, kMiB, clock.now));
}

TEST_F(MemoryTest, ADrainingTenantGetsNoMore) {
  Has(UINT64_MAX);
  ASSERT_TRUE(Allocate(kMiB));
  broker.said().flags = ipc::LimitsPage::kDraining;
  EXPECT_TRUE(Allocate(15 * kMiB));  // it has this much already
  EXPECT_FALSE(Allocate(kMiB));
  EXPECT_EQ(answers, 1);
}

TEST_F(MemoryTest, WhatProgramsSee) {
  Has(UINT64_MAX);
  broker.said().memory_others = 300 * kMiB;
  ASSERT_TRUE(Allocate(kMiB));
  EXPECT_EQ(gpu->Limit(), 1024 * kMiB);
  EXPECT_EQ(gpu->Left(), 723 * kMiB);
  broker.said().memory_others = UINT64_MAX;
  EXPECT_EQ(gpu->Left(), 0u);
}

TEST_F(MemoryTest, WhatIsNotUsedIsGivenBackWhenItIsRecalled) {
  Has(UINT64_MAX);
  ASSERT_TRUE(Allocate(20 * kMiB));
  ASSERT_EQ(account->limit(), 32 * kMiB);
  broker.rung();
  const auto recall = [this](uint32_t number, uint64_t to) {
    broker.said().memory_recall_to = to;
    broker.said().memory_recall = number;
    broker.Wake();
    gpu->Look(clock.now);
  };
  recall(1, 24 * kMiB);
  EXPECT_EQ(account->limit(), 24 * kMiB);
  EXPECT_EQ(broker.used().memory_recalled.load(), 1u);
  EXPECT_EQ(broker.used().memory_kept.load(), 24 * kMiB);
  EXPECT_TRUE(broker.rung());
  broker.said().memory_granted = 24 * kMiB;
  recall(2, 0);  // memory in use stays
  EXPECT_EQ(broker.used().memory_kept.load(), 20 * kMiB);
  EXPECT_EQ(account->limit(), 20 * kMiB);
  broker.said().memory_granted = 20 * kMiB;
  recall(3, UINT64_MAX);  // gives nothing back
  EXPECT_EQ(broker.used().memory_kept.load(), 20 * kMiB);
  EXPECT_EQ(broker.used().memory_recalled.load(), 3u);
  EXPECT_EQ(account->limit(), 20 * kMiB);
  broker.rung();
  gpu->Look(clock.now);
  EXPECT_FALSE(broker.rung());  // each recall is answered once
}

// Both sides count with the smaller figure until both have seen it.
TEST_F(MemoryTest, BeforeTheBrokerHasSeenWhatWasGivenBackItIsNotTakenAgain) {
  Has(UINT64_MAX);
  ASSERT_TRUE(Allocate(kMiB));
  broker.said().memory_recall = 1;  // recalls everything
  gpu->Look(clock.now);
  EXPECT_EQ(account->limit(), kMiB);
  ASSERT_EQ(broker.said().memory_granted.load(), 16 * kMiB);
  broker.said().time_granted_ns = 1;
  broker.Wake();
  gpu->Look(clock.now);
  EXPECT_EQ(account->limit(), kMiB);
}

TEST_F(MemoryTest, AnAnswerGivenWithoutHavingSeenARecallsIsNotTaken) {
  Has(UINT64_MAX);
  ASSERT_TRUE(Allocate(kMiB));
  ASSERT_FALSE(gpu->GetRoom(*account, 20 * kMiB, clock.now));
  const uint32_t asked = broker.used().memory_asked.load();
  broker.said().memory_recall = 1;
  gpu->Look(clock.now);
  EXPECT_EQ(account->limit(), kMiB);
  // The broker answers at the same moment, from books in which 16 MiB are still granted.
  broker.said().memory_granted = 32 * kMiB;
  broker.said().memory_answered = asked;
  gpu->Look(clock.now);
  EXPECT_EQ(account->limit(), kMiB);
  // The broker sees the answer to the recall, and with it the new number of the request.
  EXPECT_NE(broker.used().memory_asked.load(), asked);
  broker.Answer(32 * kMiB);
  gpu->Look(clock.now);
  EXPECT_EQ(account->limit(), 32 * kMiB);
}

TEST_F(MemoryTest, WhatThePageSaysIsTheMost) {
  Has(UINT64_MAX);
  ASSERT_TRUE(Allocate(kMiB));
  broker.said().memory_granted = 4 * kMiB;
  broker.Wake();
  gpu->Look(clock.now);
  EXPECT_EQ(account->limit(), 4 * kMiB);
}

TEST_F(MemoryTest, TheBrokerSeesWhatIsCharged) {
  Has(UINT64_MAX);
  gpu->SetFigures(
      [] { return GpuSession::Figures{.launches = 7, .waits = 3, .throttled = Micros(5)}; });
  ASSERT_TRUE(Allocate(kMiB));
  EXPECT_FALSE(account->Reserve(UINT64_MAX));
  Time next = gpu->Look(clock.now);
  EXPECT_GE(next - clock.now, GpuSession::kPublishEvery);
  EXPECT_EQ(broker.used().memory_charged.load(), kMiB);
  EXPECT_EQ(broker.used().memory_peak.load(), kMiB);
  EXPECT_EQ(broker.used().allocations_denied.load(), 1u);
  EXPECT_EQ(broker.used().launches.load(), 7u);
  EXPECT_EQ(broker.used().waits.load(), 3u);
  EXPECT_EQ(broker.used().throttled_ns.load(), 5000);
  // It publishes not before `next`, and ever more rarely while nothing changes.
  ASSERT_TRUE(Allocate(kMiB));
  gpu->Look(next - Nanos(1));
  EXPECT_EQ(broker.used().memory_charged.load(), kMiB);
  gpu->Look(next);
  EXPECT_EQ(broker.used().memory_charged.load(), 2 * kMiB);
  Nanos pause{0};
  for (int i = 0; i < 10; ++i) {
    clock.now = next;
    next = gpu->Look(clock.now);
    EXPECT_GE(next - clock.now, pause);
    pause = next - clock.now;
  }
  EXPECT_EQ(pause, Millis(160));
}

// Counters continue when a GPU is closed and opened again. A session that ends has reported everything.
TEST_F(MemoryTest, WhatWasCountedBeforeAGpuWasClosedStaysCounted) {
  Has(UINT64_MAX);
  const auto counted = [](uint64_t launches) {
    return [launches] {
      return GpuSession::Figures{.launches = launches,
                                 .waits = launches / 2,
                                 .throttled = Micros(static_cast<int64_t>(launches))};
    };
  };
  const auto said = [&] { return broker.used().launches.load(); };
  gpu->SetFigures(counted(8));
  EXPECT_FALSE(account->Reserve(UINT64_MAX));
  gpu->Look(clock.now);
  gpu->SetFigures(nullptr);
  gpu->SetHolder(nullptr);
  gpu->Look(clock.now += Seconds(1));
  EXPECT_EQ(said(), 8u);
  EXPECT_EQ(broker.used().allocations_denied.load(), 1u);
  const auto next = *quota::Account::Create(0);
  HolderOfOne of_next(*next);
  gpu->SetHolder(&of_next);
  gpu->SetFigures(counted(6));
  EXPECT_FALSE(next->Reserve(1));
  EXPECT_FALSE(next->Reserve(1));
  gpu->SetFigures(nullptr);  // ends before the next look
  gpu->SetHolder(nullptr);
  gpu->GiveAllBack();
  EXPECT_EQ(said(), 14u);
  EXPECT_EQ(broker.used().waits.load(), 7u);
  EXPECT_EQ(broker.used().throttled_ns.load(), 14'000);
  EXPECT_EQ(broker.used().allocations_denied.load(), 3u);
}

}  // namespace
}  // namespace gpushare::client
