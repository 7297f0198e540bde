// SPDX-License-Identifier: Apache-2.0
// Markers while a context of the program is current.
#include "meter/markers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "driver/driver.h"
#include "tests/support/sim_control.h"

namespace gpushare::meter {
namespace {

using driver::Result;

TEST(EventPool, EventsAreOfThePoolsContextWhicheverIsCurrent) {
  absl::StatusOr<std::unique_ptr<driver::Driver>> opened = driver::Driver::Open({.path = "sim"});
  ASSERT_TRUE(opened.ok()) << opened.status();
  driver::Driver& driver = **opened;
  const testing::SimControl sim(driver);
  ASSERT_TRUE(sim.Restart(driver, "devices=2").ok());
  sim.thread_enter("test");
  const driver::Context own = *driver.RetainPrimaryContext(0);
  const driver::Context foreign = *driver.RetainPrimaryContext(1);
  ASSERT_EQ(driver.PushContext(own), Result::kSuccess);
  driver::Stream stream = nullptr;
  ASSERT_EQ(driver.CreateStream(&stream, 0), Result::kSuccess);
  {
    EventPool pool(driver, own);
    ASSERT_EQ(driver.PushContext(foreign), Result::kSuccess);
    driver::Event event = nullptr;
    ASSERT_EQ(pool.Take(&event), Result::kSuccess);
    // The current context is unchanged.
    driver::Context current = nullptr;
    ASSERT_EQ(driver.CurrentContext(&current), Result::kSuccess);
    EXPECT_EQ(current, foreign);
    ASSERT_EQ(driver.PopContext(), Result::kSuccess);
    EXPECT_EQ(driver.RecordEvent(event, stream), Result::kSuccess);
    EXPECT_EQ(driver.SynchronizeEvent(event), Result::kSuccess);
    pool.Give(event);
  }
  // The same holds on a thread without a context.
  ASSERT_EQ(driver.PopContext(), Result::kSuccess);
  {
    EventPool pool(driver, own);
    driver::Event event = nullptr;
    ASSERT_EQ(pool.Take(&event), Result::kSuccess);
    ASSERT_EQ(driver.PushContext(own), Result::kSuccess);
    EXPECT_EQ(driver.RecordEvent(event, stream), Result::kSuccess);
    ASSERT_EQ(driver.PopContext(), Result::kSuccess);
    pool.Give(event);
  }
  EXPECT_EQ(driver.ReleasePrimaryContext(0), Result::kSuccess);
  EXPECT_EQ(driver.ReleasePrimaryContext(1), Result::kSuccess);
  sim.thread_leave();
}

// An hour of markers of another context only: without a new reference the driver's floats would by then be coarse to
// a quarter of a millisecond.
TEST(TimeLine, StampsOfOtherContextsStayFine) {
  absl::StatusOr<std::unique_ptr<driver::Driver>> opened = driver::Driver::Open({.path = "sim"});
  ASSERT_TRUE(opened.ok()) << opened.status();
  driver::Driver& driver = **opened;
  const testing::SimControl sim(driver);
  ASSERT_TRUE(sim.Restart(driver, "devices=1").ok());
  sim.thread_enter("test");
  const driver::Context own = *driver.RetainPrimaryContext(0);
  driver::Context foreign = nullptr;
  ASSERT_EQ(driver.CreateContext(&foreign, 0), Result::kSuccess);
  ASSERT_EQ(driver.PushContext(foreign), Result::kSuccess);
  driver::Stream stream = nullptr;
  ASSERT_EQ(driver.CreateStream(&stream, 0), Result::kSuccess);
  ASSERT_EQ(driver.PopContext(), Result::kSuccess);
  ASSERT_EQ(driver.PushContext(own), Result::kSuccess);
  {
    EventPool pool(driver, own), others(driver, foreign);
    absl::StatusOr<std::unique_ptr<TimeLine>> made = TimeLine::Create(driver, pool);
    ASSERT_TRUE(made.ok()) << made.status();
    std::atomic<uint32_t> never{0};
    const auto stamp = [&] {
      driver::Event event = nullptr;
      EXPECT_EQ(others.Take(&event), Result::kSuccess);
      EXPECT_EQ(driver.PushContext(foreign), Result::kSuccess);
      EXPECT_EQ(driver.RecordEvent(event, stream), Result::kSuccess);
      EXPECT_EQ(driver.SynchronizeEvent(event), Result::kSuccess);
      EXPECT_EQ(driver.PopContext(), Result::kSuccess);
      return *(*made)->Stamp(event, &others);
    };
    Nanos last = stamp();
    for (int i = 0; i < 3600; ++i) {
      driver.clock().Wait(never, 0, driver.clock().Now() + Seconds(1), Nanos(0));
      last = stamp();
    }
    driver.clock().Wait(never, 0, driver.clock().Now() + Micros(40), Nanos(0));
    const Nanos later = stamp() - last;
    EXPECT_GE(later, Micros(40));
    EXPECT_LE(later, Micros(80));
    ASSERT_EQ(driver.DestroyContext(foreign), Result::kSuccess);
  }
  EXPECT_EQ(driver.PopContext(), Result::kSuccess);
  EXPECT_EQ(driver.ReleasePrimaryContext(0), Result::kSuccess);
  sim.thread_leave();
}

}  // namespace
}  // namespace gpushare::meter
