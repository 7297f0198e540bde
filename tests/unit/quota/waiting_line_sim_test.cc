// SPDX-License-Identifier: Apache-2.0
// Waits for memory on the virtual clock: exact to the nanosecond, and the same in every run.
#include <gtest/gtest.h>

#include <iterator>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "driver/driver.h"
#include "gpushare/testing/sim.h"
#include "quota/ledger.h"
#include "tests/contract/failing_memory.h"

namespace gpushare::quota {
namespace {

class VirtualWait : public ::testing::Test {
 protected:
  void SetUp() override { Start("clock=virtual"); }
  void TearDown() override { Stop(); }

  void Start(const std::string& simulation) {
    auto driver = driver::Driver::Open({.path = "sim", .simulation = simulation});
    ASSERT_TRUE(driver.ok()) << driver.status();
    driver_ = *std::move(driver);
    const auto enter = reinterpret_cast<decltype(&gpushare_sim_thread_enter)>(
        driver_->Symbol("gpushare_sim_thread_enter"));
    ASSERT_EQ(enter("test"), 0);
  }
  void Stop() {
    reinterpret_cast<decltype(&gpushare_sim_thread_leave)>(
        driver_->Symbol("gpushare_sim_thread_leave"))();
    EXPECT_EQ(
        reinterpret_cast<decltype(&gpushare_sim_reset)>(driver_->Symbol("gpushare_sim_reset"))(),
        0);
  }
  // The time from a release until a waiter that has slept for `asleep` continues.
  Nanos ServedAfter(Nanos asleep) {
    auto account = *Account::Create(100);
    EXPECT_TRUE(account->Reserve(100));
    Time served{};
    const auto waiter = clock().StartThread("waiter", [&] {
      EXPECT_TRUE(account->ReserveBefore(30, clock(), kNever));
      served = clock().Now();
    });
    clock().SleepUntil(clock().Now() + asleep);
    EXPECT_EQ(account->Usage().waiting, 1u);
    const Time freed = clock().Now();
    account->Cancel(100);
    waiter->Join();
    return served - freed;
  }
  base::Clock& clock() { return driver_->clock(); }

  std::unique_ptr<driver::Driver> driver_;
};

TEST_F(VirtualWait, EndsAtTheDeadline) {
  auto account = *Account::Create(100);
  ASSERT_TRUE(account->Reserve(60));
  const Time deadline = clock().Now() + Seconds(5);
  EXPECT_FALSE(account->ReserveBefore(50, clock(), deadline));
  EXPECT_GE(clock().Now(), deadline);
  EXPECT_LT(clock().Now(), deadline + Millis(1));
}

// The difference is the machine's time to wake a thread: 20 us for a sleeping one, as declared.
TEST_F(VirtualWait, IsServedWhenMemoryIsFree) {
  EXPECT_LE(ServedAfter(Micros(10)), Micros(20));
  EXPECT_LE(ServedAfter(Millis(50)), Micros(20));
  Stop();
  Start("clock=virtual,wake_spin=0,wake_sleep=0");
  EXPECT_EQ(ServedAfter(Micros(10)), Nanos(0));
  EXPECT_EQ(ServedAfter(Millis(50)), Nanos(0));
}

// Four threads with different sizes share an account that only fits the largest one. All are served in the order of
// arrival, and two runs agree on every moment.
TEST_F(VirtualWait, IsServedInTurn) {
  const auto play = [&] {
    auto account = *Account::Create(100);
    const Time start = clock().Now();
    std::vector<std::pair<int, int64_t>> served;
    std::vector<std::unique_ptr<base::ClockThread>> threads;
    for (int i = 0; i < 4; ++i) {
      threads.push_back(clock().StartThread("tenant" + std::to_string(i), [&, i] {
        const auto bytes = static_cast<uint64_t>(100 - 10 * i);
        for (int round = 0; round < 20; ++round) {
          ASSERT_TRUE(account->ReserveBefore(bytes, clock(), kNever));
          served.emplace_back(i, (clock().Now() - start).count());
          account->Commit(bytes);
          clock().SleepUntil(clock().Now() + Micros(100));
          account->Release(bytes);
        }
      }));
    }
    for (const auto& thread : threads) thread->Join();
    EXPECT_EQ(account->charged(), 0u);
    EXPECT_EQ(account->Usage().peak, 100u);
    return served;
  };
  const auto first = play();
  ASSERT_EQ(first.size(), 80u);
  // Each waits for the other three, so no thread is served twice in a row, except at the end.
  for (size_t i = 1; i < 60; ++i) EXPECT_NE(first[i].first, first[i - 1].first) << i;
  EXPECT_EQ(play(), first);
}

// Random waits, releases, limit changes and cancellations of three children of an account, compared with the rule
// itself: in the order of arrival, except that accounts whose oldest wait does not fit are passed over.
TEST_F(VirtualWait, IsServedByTheRuleWhateverHappens) {
  constexpr size_t kChildren = 3;
  struct Waiter {
    size_t child;
    uint64_t bytes;
    std::shared_ptr<Ticket> ticket;
    char is = 'w', should = 'w';  // waiting, granted, refused, or released after a grant
  };
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    const auto any = [&](size_t n) { return static_cast<size_t>(random()) % n; };
    auto parent = *Account::Create(100);
    std::vector<std::unique_ptr<Account>> children;
    uint64_t limits[kChildren], held[kChildren] = {};
    for (uint64_t& limit : limits) {
      children.push_back(*Account::Create(60, parent.get()));
      limit = 60;
    }
    std::list<Waiter> all;
    std::vector<std::unique_ptr<base::ClockThread>> threads;
    const auto serve = [&] {
      bool blocked[kChildren] = {};
      for (Waiter& one : all) {
        if (one.should != 'w') continue;
        if (one.bytes > limits[one.child]) {
          one.should = 'r';
        } else if (!blocked[one.child]) {
          const bool fits = held[one.child] + one.bytes <= limits[one.child] &&
                            held[0] + held[1] + held[2] + one.bytes <= 100;
          blocked[one.child] = !fits;
          if (fits) held[one.child] += one.bytes, one.should = 'g';
        }
      }
    };
    for (int step = 0; step < 120; ++step) {
      const size_t what = any(10);
      const size_t child = any(kChildren);
      Waiter* one = nullptr;
      if (!all.empty()) one = &*std::next(all.begin(), static_cast<ptrdiff_t>(any(all.size())));
      if (what < 5) {
        all.push_back({child, 1 + any(50), std::make_shared<Ticket>()});
        Waiter& mine = all.back();
        if (mine.bytes > limits[child]) mine.should = 'r';
        threads.push_back(clock().StartThread("waiter", [&, &mine = mine] {
          const bool granted = static_cast<bool>(
              children[mine.child]->ReserveBefore(mine.bytes, clock(), kNever, mine.ticket));
          mine.is = granted ? 'g' : 'r';
        }));
      } else if (what < 8 && one != nullptr && one->is == 'g') {
        one->is = one->should = 'd';
        held[one->child] -= one->bytes;
        children[one->child]->Cancel(one->bytes);
      } else if (what == 8 && one != nullptr && one->is == 'w') {
        EXPECT_TRUE(children[one->child]->CallAway(one->ticket, clock()));
        one->should = 'r';
      } else if (what == 9) {
        limits[child] = 20 + any(60);
        children[child]->SetLimit(limits[child]);
      }
      serve();
      clock().SleepUntil(clock().Now() + Millis(1));
      for (const Waiter& each : all) {
        ASSERT_EQ(each.is, each.should) << seed << ": step " << step << ", " << each.bytes;
      }
      for (size_t i = 0; i < kChildren; ++i) ASSERT_EQ(children[i]->charged(), held[i]);
    }
    for (Waiter& one : all) {
      if (one.is == 'w') static_cast<void>(children[one.child]->CallAway(one.ticket, clock()));
    }
    for (const auto& thread : threads) thread->Join();
    EXPECT_FALSE(parent->has_waiters());
  }
}

// Serving waiters needs no host memory: each waiter brings its own, and continues at once.
TEST_F(VirtualWait, IsServedWhereTheHostHasNoMemoryLeft) {
  auto account = *Account::Create(100);
  ASSERT_TRUE(account->Reserve(100));
  std::vector<std::unique_ptr<base::ClockThread>> waiters;
  std::vector<Time> served(3);
  for (Time& when : served) {
    waiters.push_back(clock().StartThread("waiter", [&] {
      EXPECT_TRUE(account->ReserveBefore(30, clock(), kNever));
      when = clock().Now();
    }));
  }
  clock().SleepUntil(clock().Now() + Millis(1));
  ASSERT_EQ(account->Usage().waiting, 3u);
  const Time freed = clock().Now();
  {
    const work::FailingMemory none;
    EXPECT_NO_THROW(account->Cancel(100));
  }
  for (const auto& waiter : waiters) waiter->Join();
  for (const Time when : served) EXPECT_LE(when - freed, Micros(20));  // the time of a wake-up
  EXPECT_EQ(account->Usage().waiting, 0u);
  EXPECT_EQ(account->charged(), 90u);
}

}  // namespace
}  // namespace gpushare::quota
