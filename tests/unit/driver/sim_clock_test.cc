// SPDX-License-Identifier: Apache-2.0
#include "driver/sim_clock.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <new>
#include <string>
#include <vector>

#include "driver/driver.h"

namespace gpushare::driver {
namespace {

class SimClockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto driver = Driver::Open({.path = "sim", .simulation = "clock=virtual"});
    ASSERT_TRUE(driver.ok()) << driver.status();
    driver_ = *std::move(driver);
    enter_ = Look<decltype(&gpushare_sim_thread_enter)>("gpushare_sim_thread_enter");
    leave_ = Look<decltype(&gpushare_sim_thread_leave)>("gpushare_sim_thread_leave");
    spend_ = Look<decltype(&gpushare_sim_spend)>("gpushare_sim_spend");
  }
  void TearDown() override {
    EXPECT_EQ(Look<decltype(&gpushare_sim_reset)>("gpushare_sim_reset")(), 0);
  }
  template <typename Function>
  Function Look(const char* name) {
    return reinterpret_cast<Function>(driver_->Symbol(name));
  }
  base::Clock& clock() { return driver_->clock(); }

  std::unique_ptr<Driver> driver_;
  decltype(&gpushare_sim_thread_enter) enter_ = nullptr;
  decltype(&gpushare_sim_thread_leave) leave_ = nullptr;
  decltype(&gpushare_sim_spend) spend_ = nullptr;
};

TEST_F(SimClockTest, TimePassesOnlyWhenSpent) {
  enter_("test");
  const Time start = clock().Now();
  EXPECT_EQ(clock().Now(), start);
  spend_(1234);
  EXPECT_EQ(clock().Now() - start, Nanos(1234));
  leave_();
}

TEST_F(SimClockTest, AnHourOfSleepTakesNoTime) {
  const auto real_start = std::chrono::steady_clock::now();
  enter_("test");
  const Time start = clock().Now();
  clock().SleepUntil(start + Seconds(3600));
  const Nanos slept = clock().Now() - start;
  leave_();
  EXPECT_GE(slept, Seconds(3600));
  EXPECT_LT(slept, Seconds(3600) + Millis(1));
  EXPECT_LT(std::chrono::steady_clock::now() - real_start, std::chrono::seconds(60));
}

TEST_F(SimClockTest, WaitReturnsAtTheDeadlineOrWhenTheWordHasChanged) {
  enter_("test");
  const std::atomic<uint32_t> word{5};
  const Time deadline = clock().Now() + Micros(100);
  EXPECT_EQ(clock().Wait(word, 5, deadline, Nanos(0)), base::WaitResult::kDeadline);
  EXPECT_GE(clock().Now(), deadline);
  const Time now = clock().Now();
  EXPECT_EQ(clock().Wait(word, 4, kNever, Nanos(0)), base::WaitResult::kWoken);
  EXPECT_LT(clock().Now() - now, Micros(1));
  leave_();
}

// Another process's store wakes no thread on the virtual clock, so the wait polls as time passes.
TEST_F(SimClockTest, AWordOfAnotherProcessIsLookedAt) {
  void* const memory =
      mmap(nullptr, sizeof(uint32_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& word = *new (memory) std::atomic<uint32_t>(0);
  enter_("test");
  const Time start = clock().Now();
  EXPECT_EQ(clock().WaitShared(word, 0, start + Micros(100)), base::WaitResult::kDeadline);
  EXPECT_GE(clock().Now(), start + Micros(100));
  EXPECT_LT(clock().Now(), start + Micros(101));
  const pid_t other = fork();
  if (other == 0) {
    word.store(1);
    _exit(0);
  }
  EXPECT_EQ(clock().WaitShared(word, 0, kNever), base::WaitResult::kWoken);
  EXPECT_EQ(word.load(), 1u);
  leave_();
  EXPECT_EQ(waitpid(other, nullptr, 0), other);
  EXPECT_EQ(munmap(memory, sizeof(uint32_t)), 0);
}

TEST_F(SimClockTest, AWordOfThisProcessIsSeenWithinTheIntervalOfLooking) {
  enter_("test");
  std::atomic<uint32_t> word{0};
  Time woken;
  const auto waiter = clock().StartThread("waiter", [&] {
    clock().WaitShared(word, 0, kNever);
    woken = clock().Now();
  });
  clock().SleepUntil(clock().Now() + Micros(50));
  word.store(1);  // without Wake()
  const Time changed = clock().Now();
  waiter->Join();
  leave_();
  EXPECT_GT(clock().LookEvery(), Nanos(0));
  EXPECT_LE(woken - changed, clock().LookEvery() + Micros(1));
}

TEST_F(SimClockTest, AWakeWithinTheSpinTimeIsCheaper) {
  enter_("test");
  std::vector<Nanos> delays;
  for (const Nanos spin : {Micros(200), Nanos(0)}) {
    std::atomic<uint32_t> word{0};
    Time woken;
    const auto waiter = clock().StartThread("waiter", [&] {
      while (word.load() == 0) clock().Wait(word, 0, kNever, spin);
      woken = clock().Now();
    });
    clock().SleepUntil(clock().Now() + Micros(50));
    word.store(1);
    const Time wake = clock().Now();
    clock().Wake(word, 1);
    waiter->Join();
    delays.push_back(woken - wake);
  }
  leave_();
  EXPECT_LT(delays[0], Micros(2));
  EXPECT_GT(delays[1], Micros(10));
}

TEST_F(SimClockTest, JoinReturnsWhenTheThreadHasEnded) {
  enter_("test");
  bool ran = false;
  const Time start = clock().Now();
  const auto thread = clock().StartThread("worker", [&] {
    spend_(5'000'000);
    ran = true;
  });
  thread->Join();
  EXPECT_TRUE(ran);
  EXPECT_GE(clock().Now() - start, Millis(5));
  EXPECT_LT(clock().Now() - start, Millis(6));
  leave_();
}

TEST_F(SimClockTest, AThreadThatIsNotRegisteredCanJoin) {
  bool ran = false;
  auto thread = clock().StartThread("worker", [&] {
    clock().SleepUntil(clock().Now() + Millis(5));
    ran = true;
  });
  thread->Join();
  EXPECT_TRUE(ran);
}

TEST_F(SimClockTest, TheDestructorJoins) {
  bool ran = false;
  {
    const auto thread = clock().StartThread("worker", [&] { ran = true; });
  }
  EXPECT_TRUE(ran);
}

// Threads that pass a word back and forth do so at the same times in every run.
TEST_F(SimClockTest, TheSameRunHasTheSameTimes) {
  const auto play = [&] {
    enter_("test");
    const Time start = clock().Now();
    std::atomic<uint32_t> turn{0};
    std::vector<int64_t> times;
    std::vector<std::unique_ptr<base::ClockThread>> threads;
    for (uint32_t me = 0; me < 3; ++me) {
      threads.push_back(clock().StartThread("player" + std::to_string(me), [&, me] {
        for (int round = 0; round < 50; ++round) {
          for (uint32_t now = turn.load(); now % 3 != me; now = turn.load()) {
            clock().Wait(turn, now, kNever, Micros(10));
          }
          spend_(100 + 77 * me);
          times.push_back((clock().Now() - start).count());
          turn.fetch_add(1);
          clock().Wake(turn, 3);
        }
      }));
    }
    for (const auto& thread : threads) thread->Join();
    times.push_back((clock().Now() - start).count());
    leave_();
    return times;
  };
  const std::vector<int64_t> first = play();
  ASSERT_EQ(first.size(), 151u);
  for (int run = 0; run < 5; ++run) EXPECT_EQ(play(), first);
}

}  // namespace
}  // namespace gpushare::driver
