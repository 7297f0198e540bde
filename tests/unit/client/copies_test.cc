// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>

#include "client/copy_share.h"
#include "client/gpu_session.h"
#include "tests/unit/client/fake_broker.h"

namespace gpushare::client {
namespace {

constexpr auto kTo = gate::CopyDirection::kHostToDevice, kFrom = gate::CopyDirection::kDeviceToHost;

TEST(CopyShare, HandsOutWhatWasGrantedOnce) {
  CopyShare share;
  EXPECT_EQ(share.Take({.granted = 100}, Time()), 100u);
  EXPECT_EQ(share.Take({.granted = 100}, Time()), 0u);
  EXPECT_EQ(share.Want(7), 107u);
  EXPECT_EQ(share.Take({.granted = 50}, Time()), 0u);  // nonsense
  EXPECT_EQ(share.Take({.granted = 130}, Time()), 30u);
  EXPECT_LE(share.Take({.granted = UINT64_MAX}, Time()), CopyShare::kMost);
  EXPECT_EQ(share.Want(7), UINT64_MAX);
  share.Begin();
  EXPECT_EQ(share.Take({.granted = 20}, Time()), 20u);
}

TEST(CopyShare, GoesOnByTheClockWithoutABroker) {
  const CopyShare::Limits limits{.granted = 5, .rate = 1'000'000'000};
  CopyShare share;
  share.Lose(/*goes_on=*/true, Time(Seconds(1)));
  EXPECT_EQ(share.Take(limits, Time(Seconds(1))), 0u);
  EXPECT_EQ(share.LookBy(limits, 1000, Time(Seconds(1))), Time(Seconds(1) + Nanos(1001)));
  uint64_t sum = 0;
  for (int i = 1; i <= 1000; ++i) {
    sum += share.Take(limits, Time(Seconds(1) + Nanos(i * 999'999)));
  }
  EXPECT_NEAR(static_cast<double>(sum), 1e9, 2e3);
  // What was not taken in time is not saved up.
  EXPECT_EQ(share.Take(limits, Time(Seconds(60))), 10'000'000u);
  share.Lose(/*goes_on=*/false, Time(Seconds(60)));
  EXPECT_EQ(share.Take(limits, Time(Seconds(70))), 0u);
  EXPECT_EQ(share.LookBy(limits, 1, Time(Seconds(70))), kNever);
}

class CopiesTest : public GpuSessionTest {};

TEST_F(CopiesTest, AsksOnceForWhatIsMissing) {
  Has(UINT64_MAX);
  EXPECT_FALSE(gpu->LimitsCopies(kTo));
  broker.said().copy_rate[0] = 1'000'000;
  broker.Wake();
  gpu->Look(clock.now);
  EXPECT_TRUE(gpu->LimitsCopies(kTo));
  EXPECT_FALSE(gpu->LimitsCopies(kFrom));
  broker.rung();
  EXPECT_EQ(gpu->TakeCopyBytes(kTo, clock.now), 0u);
  gpu->WantCopyBytes(kTo, 10, clock.now);
  EXPECT_TRUE(broker.rung());
  gpu->WantCopyBytes(kTo, 10, clock.now);
  EXPECT_FALSE(broker.rung());
  EXPECT_EQ(broker.used().copy_wanted[0], 10u);
  EXPECT_EQ(broker.used().copy_wanted[1], 0u);
  // The engine hears of what comes.
  int told = 0;
  gpu->SetOnTime([&] { ++told; });
  broker.said().copy_granted[0] = 4096;
  broker.Wake();
  gpu->Look(clock.now);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(gpu->TakeCopyBytes(kTo, clock.now), 4096u);
  gpu->WantCopyBytes(kTo, 1, clock.now);
  EXPECT_TRUE(broker.rung());
  EXPECT_EQ(broker.used().copy_wanted[0], 4097u);
}

TEST_F(CopiesTest, ABrokersEndIsNotTheirs) {
  broker.said().copy_rate[0] = 1'000'000;
  Has(UINT64_MAX);
  gpu->Look(clock.now);
  gpu->WantCopyBytes(kTo, 1, clock.now);
  int told = 0;
  gpu->SetOnTime([&] { ++told; });
  gpu->Lose(/*goes_on=*/true);
  EXPECT_EQ(told, 1);
  clock.now += Millis(5);
  EXPECT_EQ(gpu->TakeCopyBytes(kTo, clock.now), 5000u);
  BrokerPages next;
  next.said().copy_granted[0] = 77;
  gpu->Resume(next.ForProcess());
  EXPECT_FALSE(gpu->LimitsCopies(kTo));  // by the new one's word
  EXPECT_EQ(gpu->TakeCopyBytes(kTo, clock.now), 77u);
  gpu->WantCopyBytes(kTo, 3, clock.now);
  EXPECT_EQ(next.used().copy_wanted[0], 80u);
  EXPECT_TRUE(next.rung());
}

}  // namespace
}  // namespace gpushare::client
