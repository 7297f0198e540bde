// SPDX-License-Identifier: Apache-2.0
#include "client/gpu_session.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/client/fake_broker.h"
#include "tests/unit/ipc/child.h"

namespace gpushare::client {
namespace {

TEST_F(GpuSessionTest, TimeIsAskedForAndSpent) {
  EXPECT_FALSE(Tell(Nanos(0), Nanos(0), Micros(10)).open);
  EXPECT_TRUE(broker.rung());
  EXPECT_EQ(broker.used().time_wanted_ns.load(), 10'000);
  broker.said().grant_ns = 2'000'000;
  broker.said().time_granted_ns = 2'000'000;
  EXPECT_TRUE(Tell(Micros(10), Micros(10), Nanos(0)).open);
  EXPECT_FALSE(broker.rung());
  EXPECT_EQ(broker.used().time_in_flight_ns.load(), 10'000);
  EXPECT_EQ(broker.used().time_used_ns.load(), 0);
  EXPECT_TRUE(Tell(Micros(10), Nanos(0), Nanos(0)).open);
  EXPECT_EQ(broker.used().time_used_ns.load(), 10'000);
  clock.now += Millis(1);
  EXPECT_FALSE(Tell(Micros(10), Nanos(0), Nanos(0)).open);
  EXPECT_EQ(broker.used().time_returned_ns.load(), 1'990'000);
  EXPECT_TRUE(broker.rung());
}

TEST_F(GpuSessionTest, TheEngineHearsOfWhatHasChanged) {
  int told = 0;
  gpu->SetOnTime([&] { ++told; });
  gpu->Look(clock.now);
  told = 0;
  gpu->Look(clock.now);
  EXPECT_EQ(told, 0);
  for (const auto& change : std::vector<std::function<void()>>{
           [this] { broker.said().time_granted_ns = 5; },
           [this] { broker.said().flags = ipc::LimitsPage::kClosed; },
           [this] { broker.said().flags = ipc::LimitsPage::kSuspended; },
           [this] { broker.said().flags = ipc::LimitsPage::kBypass; },
           [this] { broker.said().flags = 0; }}) {
    change();
    broker.Wake();
    gpu->Look(clock.now);
    EXPECT_EQ(std::exchange(told, 0), 1);
    gpu->Look(clock.now);
    EXPECT_EQ(told, 0);
  }
  gpu->SetOnTime(nullptr);
  broker.said().time_granted_ns = 6;
  gpu->Look(clock.now);
  EXPECT_EQ(told, 0);
}

TEST_F(GpuSessionTest, WhatHasChangedSinceTheLastLookIsNotSleptOver) {
  gpu->Look(clock.now);
  broker.Wake();
  const Time before = clock.now;
  gpu->Await(clock.now + Seconds(1));
  EXPECT_EQ(clock.now, before);
  gpu->Look(clock.now);
  gpu->Await(clock.now + Seconds(1));
  EXPECT_EQ(clock.now, before + Seconds(1));
}

TEST_F(GpuSessionTest, AForkedChildIsAnsweredNo) {
  Has(UINT64_MAX);
  ASSERT_TRUE(Allocate(kMiB));
  broker.said().time_granted_ns = 1'000'000;
  ipc::Child child([this] {
    const bool no = !Tell(Nanos(0), Nanos(0), Micros(1)).open &&
                    !gpu->GetRoom(*account, 100 * kMiB, kNever) && gpu->Limit() == 0 &&
                    gpu->Left() == 0 && gpu->Look(clock.now) == kNever;
    gpu->Nudge();
    gpu->Await(kNever);
    gpu.reset();
    return no;
  });
  EXPECT_TRUE(child.Wait());
  EXPECT_TRUE(Tell(Nanos(0), Nanos(0), Micros(1)).open);
  EXPECT_EQ(gpu->Limit(), 1024 * kMiB);
}

// The process goes on, whatever a broker writes.
TEST_F(GpuSessionTest, NonsenseOnThePagesIsSurvived) {
  std::mt19937_64 random(11);
  const auto any = [&] { return random() % 3 == 0 ? UINT64_MAX : random() >> (random() % 64); };
  const auto scribble = [&] {
    ipc::LimitsPage& page = broker.said();
    page.flags = static_cast<uint32_t>(any()) & (random() % 2 == 0 ? 0 : UINT32_MAX);
    page.time_granted_ns = static_cast<int64_t>(any());
    page.grant_ns = static_cast<int64_t>(any());
    page.guarantee_ppm = static_cast<uint32_t>(any());
    page.memory_granted = any();
    page.memory_answered =
        random() % 2 == 0 ? broker.used().memory_asked.load() : static_cast<uint32_t>(any());
    page.memory_recall = static_cast<uint32_t>(any());
    page.memory_recall_to = any();
    page.memory_limit = any();
    page.memory_others = any();
    for (int way : {0, 1}) page.copy_granted[way] = any(), page.copy_rate[way] = any();
    page.wake = static_cast<uint32_t>(any());
  };
  clock.others = scribble;
  for (int i = 0; i < 3000; ++i) {
    scribble();
    clock.now += Nanos(static_cast<int64_t>(random() % 3'000'000));
    Tell(Micros(i), Micros(static_cast<int64_t>(random() % 9)), Micros(i % 3));
    gpu->GetRoom(*account, any(), random() % 2 == 0 ? kNever : clock.now);
    gpu->Look(clock.now);
    gpu->Left();
    for (const auto way :
         {gate::CopyDirection::kHostToDevice, gate::CopyDirection::kDeviceToHost}) {
      gpu->Copies(way, clock.now);
      gpu->ChargeCopy(way, static_cast<int64_t>(any() % (uint64_t{1} << 48)));
      gpu->AwaitCopies(way, clock.now);
      if (i % 3 == 0) gpu->NobodyAwaitsCopies(way);
    }
    if (i % 100 == 50) gpu->Lose(i % 200 == 50);
    if (i % 100 == 99) gpu->Resume(broker.ForProcess());
  }
}

}  // namespace
}  // namespace gpushare::client
