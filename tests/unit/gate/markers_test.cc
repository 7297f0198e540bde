// SPDX-License-Identifier: Apache-2.0
// Markers where a context of somebody else is current.
#include "meter/markers.h"

#include <gtest/gtest.h>

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
    // What was current still is.
    driver::Context current = nullptr;
    ASSERT_EQ(driver.CurrentContext(&current), Result::kSuccess);
    EXPECT_EQ(current, foreign);
    ASSERT_EQ(driver.PopContext(), Result::kSuccess);
    EXPECT_EQ(driver.RecordEvent(event, stream), Result::kSuccess);
    EXPECT_EQ(driver.SynchronizeEvent(event), Result::kSuccess);
    pool.Give(event);
  }
  // On a thread without a context it is the same.
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

}  // namespace
}  // namespace gpushare::meter
