// SPDX-License-Identifier: Apache-2.0
// A broker that disappears, and a successor.
#include <gtest/gtest.h>

#include "tests/unit/client/fake_broker.h"

namespace gpushare::client {
namespace {

using LossTest = GpuSessionTest;

TEST_F(LossTest, MemoryStaysAtWhatWasGranted) {
  Has(UINT64_MAX);
  ASSERT_TRUE(Allocate(10 * kMiB));
  gpu->Lose(/*goes_on=*/true);
  const Time before = clock.now;
  EXPECT_TRUE(Allocate(6 * kMiB));
  EXPECT_FALSE(Allocate(1));
  EXPECT_EQ(clock.now, before);
  EXPECT_EQ(gpu->Limit(), 1024 * kMiB);
  EXPECT_EQ(gpu->Left(), 0u);
}

TEST_F(LossTest, WhoWaitsForAnAnswerIsToldAtOnce) {
  clock.others = [this] { gpu->Lose(/*goes_on=*/true); };
  broker.said().wake = 5;
  EXPECT_FALSE(Allocate(kMiB));
}

TEST_F(LossTest, ItsLastAnswerCounts) {
  clock.others = [this] {
    broker.Answer(16 * kMiB);
    gpu->Lose(/*goes_on=*/true);
  };
  EXPECT_TRUE(Allocate(kMiB));
}

TEST_F(LossTest, TheEngineHearsOfItAndGoesOnAtItsGuarantee) {
  int told = 0;
  gpu->SetOnTime([&] { ++told; });
  broker.said().guarantee_ppm = 250'000;
  broker.said().flags = ipc::LimitsPage::kClosed;
  gpu->Lose(/*goes_on=*/true);
  EXPECT_EQ(told, 1);
  broker.rung();
  const auto answer = Tell(Nanos(0), Nanos(0), Micros(100));
  EXPECT_FALSE(answer.open);
  clock.now = answer.look_by;
  EXPECT_TRUE(Tell(Nanos(0), Nanos(0), Micros(100)).open);
  EXPECT_FALSE(broker.rung());
}

TEST_F(LossTest, ToTheNextBrokerItSaysWhatItHolds) {
  Has(UINT64_MAX);
  ASSERT_TRUE(Allocate(10 * kMiB));
  broker.said().time_granted_ns = 1'000'000;
  Tell(Millis(1), Nanos(0), Nanos(0));
  gpu->Lose(/*goes_on=*/true);
  int told = 0;
  gpu->SetOnTime([&] { ++told; });

  const BrokerPages next;
  next.said().memory_limit = 512 * kMiB;
  uint64_t wanted = 0;
  clock.others = [&] {
    if (!next.rung()) return;
    EXPECT_EQ(account->limit(), 0u);  // no more until the new broker has granted it
    wanted = next.used().memory_wanted.load();
    next.Answer(wanted);
  };
  gpu->Resume(next.ForProcess());
  EXPECT_EQ(wanted, 10 * kMiB);
  EXPECT_EQ(next.used().memory_charged.load(), 10 * kMiB);
  EXPECT_EQ(account->limit(), 10 * kMiB);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(gpu->Limit(), 512 * kMiB);
  // The new session starts with zero device time.
  EXPECT_FALSE(Tell(Millis(1), Nanos(0), Micros(1)).open);
  EXPECT_EQ(next.used().time_used_ns.load(), 0);
  next.said().time_granted_ns = 1000;
  EXPECT_TRUE(Tell(Millis(1), Nanos(0), Micros(1)).open);
  // The old broker's page is ignored from now on.
  broker.said().memory_granted = UINT64_MAX;
  broker.Answer(UINT64_MAX);
  gpu->Look(clock.now);
  EXPECT_EQ(account->limit(), 10 * kMiB);
}

// Use that the last broker has seen was counted there, which matters if it is the same broker.
TEST_F(LossTest, TheNextBrokerIsToldWhatTheLastHasNotSeen) {
  Has(UINT64_MAX);
  uint64_t launches = 5;
  gpu->SetFigures([&] { return GpuSession::Figures{.launches = launches}; });
  gpu->Look(clock.now);
  EXPECT_EQ(broker.used().launches.load(), 5u);
  gpu->Lose(/*goes_on=*/true);
  launches = 7;
  gpu->Look(clock.now += Seconds(1));
  const BrokerPages next;
  gpu->Resume(next.ForProcess());
  launches = 8;
  gpu->Look(clock.now += Seconds(1));
  EXPECT_EQ(next.used().launches.load(), 3u);
  gpu->SetFigures(nullptr);
}

// The connection exists but calls have no effect, as with a stopped broker.
TEST_F(LossTest, ABrokerThatIsSilentIsLostUntilItIsHeardAgain) {
  Has(UINT64_MAX);
  ASSERT_TRUE(Allocate(10 * kMiB));
  clock.others = [] {};
  int told = 0;
  broker.said().guarantee_ppm = 250'000;
  broker.said().grant_ns = 2'000'000;
  broker.said().beat = 7;
  gpu->Look(clock.now);
  gpu->SetOnTime([&] { ++told; });
  EXPECT_FALSE(Tell(Nanos(0), Nanos(0), Micros(100)).open);
  EXPECT_TRUE(broker.rung());
  clock.now += Silence::kLongest - Nanos(1);
  gpu->Look(clock.now);
  EXPECT_EQ(told, 0);
  EXPECT_FALSE(Tell(Nanos(0), Nanos(0), Micros(100)).open);
  clock.now += Nanos(1);
  gpu->Look(clock.now);
  EXPECT_EQ(told, 1);
  const auto answer = Tell(Nanos(0), Nanos(0), Micros(100));
  clock.now = answer.look_by;
  EXPECT_TRUE(Tell(Nanos(0), Nanos(0), Micros(100)).open);
  // No thread waits for an answer, and granted memory is available.
  const Time before = clock.now;
  EXPECT_TRUE(Allocate(6 * kMiB));
  EXPECT_FALSE(Allocate(1));
  EXPECT_EQ(clock.now, before);
  // The process keeps calling until the broker answers.
  broker.rung();
  clock.now += Millis(1);
  gpu->Look(clock.now);
  EXPECT_TRUE(broker.rung());
  broker.said().beat = 8;
  gpu->Look(clock.now);
  EXPECT_EQ(told, 2);
  EXPECT_FALSE(Tell(Micros(100), Nanos(0), Micros(100)).open);
  EXPECT_EQ(broker.used().time_used_ns.load(), 0);  // paced by the clock, and not from a grant
  broker.said().time_granted_ns = 1'000'000;
  EXPECT_TRUE(Tell(Micros(100), Nanos(0), Micros(100)).open);
  Has(UINT64_MAX);
  EXPECT_TRUE(Allocate(16 * kMiB));
  gpu->SetOnTime(nullptr);
}

TEST_F(LossTest, ABrokerThatIsHeardIsNotSilent) {
  broker.said().guarantee_ppm = 250'000;
  for (int i = 0; i < 100; ++i) {
    broker.said().beat.fetch_add(1);
    gpu->Look(clock.now);
    EXPECT_FALSE(Tell(Nanos(0), Nanos(0), Micros(100)).open);
    clock.now += Millis(100);
  }
}

// Neither an older broker without a beat nor one that is not called counts as silent.
TEST_F(LossTest, WhereThereIsNoBeatNothingIsSilent) {
  broker.said().guarantee_ppm = 250'000;
  gpu->Look(clock.now);
  EXPECT_FALSE(Tell(Nanos(0), Nanos(0), Micros(100)).open);
  clock.now += Seconds(100);
  gpu->Look(clock.now);
  EXPECT_FALSE(Tell(Nanos(0), Nanos(0), Micros(100)).open);
  Tell(Nanos(0), Nanos(0), Nanos(0));
  broker.said().beat = 1;
  for (int i = 0; i < 3; ++i) gpu->Look(clock.now += Seconds(100));
  EXPECT_FALSE(Tell(Nanos(0), Nanos(0), Micros(100)).open);
}

// A silent broker that ends counts as ended.
TEST_F(LossTest, ASilentBrokerMayEnd) {
  broker.said().guarantee_ppm = 250'000;
  broker.said().beat = 1;
  gpu->Look(clock.now);
  Tell(Nanos(0), Nanos(0), Micros(100));
  gpu->Look(clock.now += Silence::kLongest);
  clock.now += Millis(1);
  ASSERT_TRUE(Tell(Nanos(0), Nanos(0), Micros(100)).open);
  gpu->Lose(/*goes_on=*/false, /*for_good=*/true);
  broker.said().beat = 2;
  gpu->Look(clock.now += Seconds(1));
  clock.now += Seconds(1);
  EXPECT_FALSE(Tell(Micros(250), Nanos(0), Micros(100)).open);
}

// A thread that waits for the device learns that nothing will come. While the process looks for a successor, nobody
// can know that.
TEST_F(LossTest, WhoIsEvictedIsToldSo) {
  broker.said().time_granted_ns = 4'000'000;
  EXPECT_FALSE(Tell(Nanos(0), Nanos(0), Micros(100)).ended);
  gpu->Lose(/*goes_on=*/false);
  EXPECT_FALSE(Tell(Millis(5), Nanos(0), Micros(100)).ended);
  gpu->Lose(/*goes_on=*/false, /*for_good=*/true);
  const gate::Supply::Answer answer = Tell(Millis(5), Nanos(0), Micros(100));
  EXPECT_TRUE(answer.ended);
  EXPECT_FALSE(answer.open);
}

// A request that the last broker did not answer is sent to the next one, with the time that is left.
TEST_F(LossTest, WhoAskedTheLastBrokerAsksTheNext) {
  const BrokerPages next;
  next.said().memory_limit = 1024 * kMiB;
  bool met = false;
  clock.others = [&] {
    if (next.rung()) next.Answer(next.used().memory_wanted.load());
    if (!broker.rung() || std::exchange(met, true)) return;
    const Time now = clock.now;
    gpu->Lose(/*goes_on=*/true);
    gpu->Resume(next.ForProcess());
    clock.now = now;  // all at once
    broker.Wake();
  };
  EXPECT_TRUE(Allocate(10 * kMiB));
  EXPECT_EQ(account->limit(), 16 * kMiB);
}

TEST_F(LossTest, TheNextBrokerMayGrantLessThanIsHeld) {
  Has(UINT64_MAX);
  ASSERT_TRUE(Allocate(10 * kMiB));
  gpu->Lose(/*goes_on=*/true);
  const BrokerPages next;
  next.said().memory_limit = 4 * kMiB;
  clock.others = [&] {
    if (next.rung()) next.Answer(4 * kMiB);
  };
  gpu->Resume(next.ForProcess());
  EXPECT_EQ(account->limit(), 4 * kMiB);
  EXPECT_EQ(account->charged(), 10 * kMiB);
  EXPECT_FALSE(Allocate(1));
}

TEST_F(LossTest, ANextBrokerThatSaysNothingGrantsNothing) {
  Has(UINT64_MAX);
  ASSERT_TRUE(Allocate(10 * kMiB));
  gpu->Lose(/*goes_on=*/true);
  clock.others = [] {};
  const BrokerPages next;
  const Time before = clock.now;
  gpu->Resume(next.ForProcess());
  EXPECT_EQ(clock.now - before, GpuSession::kLongestAnswer);
  EXPECT_EQ(account->limit(), 0u);
}

}  // namespace
}  // namespace gpushare::client
