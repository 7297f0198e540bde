// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "quota/ledger.h"
#include "quota/source.h"

namespace gpushare::quota {
namespace {

// Waits until other threads have brought about the state.
void Until(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::yield();
}

TEST(ReserveBefore, IsGrantedAtOnceWhenItFits) {
  auto account = *Account::Create(100);
  const Grant grant = account->ReserveBefore(100, base::RealClock(), Time());
  EXPECT_TRUE(grant);
  EXPECT_EQ(grant.left, 0u);
}

TEST(ReserveBefore, IsRefusedAtTheDeadline) {
  auto account = *Account::Create(100);
  ASSERT_TRUE(account->Reserve(60));
  base::Clock& clock = base::RealClock();
  const Time deadline = clock.Now() + Millis(2);
  const Grant grant = account->ReserveBefore(50, clock, deadline);
  EXPECT_FALSE(grant);
  EXPECT_EQ(grant.left, 40u);
  EXPECT_GE(clock.Now(), deadline);
  EXPECT_EQ(account->charged(), 60u);
  EXPECT_EQ(account->Usage().denied, 1u);
  EXPECT_EQ(account->Usage().waiting, 0u);
}

TEST(ReserveBefore, IsRefusedAtOnceWhenItCanNeverFit) {
  auto parent = *Account::Create(100);
  auto child = *Account::Create(kUnlimited, parent.get());
  EXPECT_FALSE(parent->ReserveBefore(101, base::RealClock(), kNever));
  EXPECT_FALSE(child->ReserveBefore(101, base::RealClock(), kNever));
}

TEST(ReserveBefore, IsServedByAReleaseACancelAndALimit) {
  base::Clock& clock = base::RealClock();
  for (int way = 0; way < 3; ++way) {
    auto account = *Account::Create(100);
    ASSERT_TRUE(account->Reserve(80));
    account->SetLimit(99);
    std::thread waiter([&] { EXPECT_TRUE(account->ReserveBefore(20, clock, kNever)); });
    Until([&] { return account->Usage().waiting == 1; });
    if (way == 0) {
      account->Commit(80);
      account->Release(80);
    } else if (way == 1) {
      account->Cancel(80);
    } else {
      account->SetLimit(100);
    }
    waiter.join();
    EXPECT_EQ(account->charged(), way == 2 ? 100u : 20u);
  }
}

TEST(ReserveBefore, ALimitBelowTheRequestEndsTheWaitAndLetsThoseBehindIn) {
  base::Clock& clock = base::RealClock();
  auto account = *Account::Create(100);
  ASSERT_TRUE(account->Reserve(40));
  std::thread large([&] { EXPECT_FALSE(account->ReserveBefore(80, clock, kNever)); });
  Until([&] { return account->Usage().waiting == 1; });
  std::thread small([&] { EXPECT_TRUE(account->ReserveBefore(30, clock, kNever)); });
  Until([&] {
    return account->Usage().waiting == 2;
  });  // it queues behind the large request although it would fit
  account->SetLimit(75);
  large.join();
  small.join();
  EXPECT_EQ(account->charged(), 70u);
  EXPECT_EQ(account->Usage().denied, 1u);
}

TEST(ReserveBefore, AWaiterIsCalledAway) {
  base::Clock& clock = base::RealClock();
  auto account = *Account::Create(100);
  ASSERT_TRUE(account->Reserve(90));
  const auto ticket = std::make_shared<Ticket>();
  std::thread waiter([&] { EXPECT_FALSE(account->ReserveBefore(20, clock, kNever, ticket)); });
  std::thread behind([&] {
    Until([&] { return account->Usage().waiting == 1; });
    EXPECT_TRUE(account->ReserveBefore(10, clock, kNever));  // it fits once the other one is gone
  });
  Until([&] { return account->Usage().waiting == 2; });
  EXPECT_TRUE(account->CallAway(ticket, clock));
  EXPECT_FALSE(account->CallAway(ticket, clock));
  waiter.join();
  behind.join();
  EXPECT_EQ(account->charged(), 100u);
  EXPECT_EQ(account->Usage().waiting, 0u);
  EXPECT_EQ(account->Usage().denied, 0u);  // no request was denied
}

TEST(ReserveBefore, CalledAwayBeforeItCameOrAfterItsGrant) {
  base::Clock& clock = base::RealClock();
  auto account = *Account::Create(100);
  const auto early = std::make_shared<Ticket>();
  EXPECT_TRUE(account->CallAway(early, clock));
  EXPECT_FALSE(account->ReserveBefore(20, clock, kNever, early));
  EXPECT_EQ(account->charged(), 0u);
  const auto late = std::make_shared<Ticket>();
  EXPECT_TRUE(account->ReserveBefore(20, clock, kNever, late));
  EXPECT_FALSE(account->CallAway(late, clock));
  EXPECT_EQ(account->charged(), 20u);
}

TEST(ReserveBefore, ServesInTheOrderOfArrival) {
  base::Clock& clock = base::RealClock();
  auto account = *Account::Create(100);
  ASSERT_TRUE(account->Reserve(100));
  std::mutex mutex;
  std::vector<int> order;
  std::vector<std::thread> waiters;
  // The first wants much and the others little: they do not overtake it.
  for (int i = 0; i < 4; ++i) {
    const uint64_t bytes = i == 0 ? 90 : 10;
    waiters.emplace_back([&, i, bytes] {
      ASSERT_TRUE(account->ReserveBefore(bytes, clock, kNever));
      {
        const std::lock_guard lock(mutex);
        order.push_back(i);
      }
      account->Cancel(bytes);
    });
    Until([&] { return account->Usage().waiting == static_cast<uint64_t>(i + 1); });
  }
  account->Cancel(50);  // enough for the small ones only
  EXPECT_EQ(account->Usage().waiting, 4u);
  account->Cancel(40);  // now the large one fits, and no other
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(order.front(), 0);
  EXPECT_EQ(account->charged(), 10u);
}

TEST(ReserveBefore, WhoLooksKeepsItsPlace) {
  base::Clock& clock = base::RealClock();
  auto account = *Account::Create(100);
  ASSERT_TRUE(account->Reserve(90));
  std::atomic<int> looks{0};
  std::thread first([&] {
    const auto ticket = std::make_shared<Ticket>();
    EXPECT_TRUE(account->ReserveBefore(60, clock, kNever, ticket, [&] {
      ++looks;
      return clock.Now();
    }));
  });
  Until([&] { return account->Usage().waiting == 1; });
  std::thread second([&] { EXPECT_TRUE(account->ReserveBefore(60, clock, kNever)); });
  Until([&] { return account->Usage().waiting == 2; });
  const int before = looks;
  Until([&] { return looks > before + 2; });
  account->Cancel(90);
  first.join();
  EXPECT_EQ(account->Usage().waiting, 1u);
  account->Cancel(60);
  second.join();
}

TEST(ReserveBefore, WhoLooksMayReleaseWhatItWaitsForOrLeave) {
  base::Clock& clock = base::RealClock();
  auto account = *Account::Create(100);
  ASSERT_TRUE(account->Reserve(90));
  const auto throws = []() -> Time { throw std::bad_alloc(); };
  EXPECT_THROW(static_cast<void>(
                   account->ReserveBefore(60, clock, kNever, std::make_shared<Ticket>(), throws)),
               std::bad_alloc);
  EXPECT_EQ(account->Usage().waiting, 0u);
  const auto releases = [&] {
    account->Cancel(90);
    return kNever;
  };
  EXPECT_TRUE(account->ReserveBefore(60, clock, kNever, std::make_shared<Ticket>(), releases));
  EXPECT_EQ(account->charged(), 60u);
  const auto ticket = std::make_shared<Ticket>();
  EXPECT_FALSE(account->ReserveBefore(60, clock, kNever, ticket, [&] {
    EXPECT_TRUE(account->CallAway(ticket, clock));
    return kNever;
  }));
  EXPECT_EQ(account->charged(), 60u);
}

TEST(ReserveBefore, AWaiterThatGivesUpLetsThoseBehindItGo) {
  base::Clock& clock = base::RealClock();
  auto account = *Account::Create(100);
  ASSERT_TRUE(account->Reserve(50));
  std::thread large(
      [&] { EXPECT_FALSE(account->ReserveBefore(60, clock, clock.Now() + Millis(20))); });
  Until([&] { return account->Usage().waiting == 1; });
  std::thread small([&] { EXPECT_TRUE(account->ReserveBefore(50, clock, kNever)); });
  large.join();
  small.join();
  EXPECT_EQ(account->charged(), 100u);
}

TEST(ReserveBefore, AChildAtItsOwnLimitDoesNotHoldItsSiblings) {
  base::Clock& clock = base::RealClock();
  auto parent = *Account::Create(100);
  auto a = *Account::Create(40, parent.get());
  auto b = *Account::Create(100, parent.get());
  ASSERT_TRUE(a->Reserve(40));
  ASSERT_TRUE(b->Reserve(60));
  std::thread first([&] { EXPECT_TRUE(a->ReserveBefore(10, clock, kNever)); });
  Until([&] { return a->Usage().waiting == 1; });
  std::thread second([&] { EXPECT_TRUE(b->ReserveBefore(60, clock, kNever)); });
  Until([&] { return b->Usage().waiting == 1; });
  b->Cancel(60);  // fits b; a is still at its own limit
  second.join();
  EXPECT_EQ(a->Usage().waiting, 1u);
  a->Cancel(40);
  first.join();
  EXPECT_EQ(parent->charged(), 70u);
}

// Nests waits of one thread: each wait begins inside the previous one, and the innermost one runs an action.
class NestedClock final : public base::Clock {
 public:
  Time Now() override { return Time{}; }
  base::WaitResult Wait(const std::atomic<uint32_t>&, uint32_t, Time, Nanos) override {
    in_wait();
    return base::WaitResult::kWoken;
  }
  void Wake(const std::atomic<uint32_t>&, int) override { ++wakes; }
  std::unique_ptr<base::ClockThread> StartThread(std::string, std::function<void()>) override {
    return nullptr;
  }

  std::function<void()> in_wait;
  int wakes = 0;
};

// Counts how often waiters are looked at.
class CountingSource final : public Source {
 public:
  bool GetRoom(Account&, uint64_t, Time) override { return false; }
  uint64_t Limit() const override {
    ++looks;
    return 100;
  }
  uint64_t Left() const override { return 0; }

  mutable int looks = 0;
};

TEST(ReserveBefore, ManyWhoWaitCostNobodyWhoIsServed) {
  constexpr int kWaiters = 500;
  auto account = *Account::Create(100);
  const auto source = std::make_shared<CountingSource>();
  account->SetSource(source);
  ASSERT_TRUE(account->Reserve(100));
  NestedClock clock;
  int waiting = 0, most_looks = 0;
  clock.in_wait = [&] {
    if (++waiting < kWaiters) {
      EXPECT_TRUE(account->ReserveBefore(10, clock, kNever));
      return;
    }
    EXPECT_EQ(account->Usage().waiting, 500u);
    for (int i = 0; i < kWaiters; ++i) {
      const int before = source->looks;
      account->Cancel(10);
      most_looks = std::max(most_looks, source->looks - before);
    }
  };
  EXPECT_TRUE(account->ReserveBefore(10, clock, kNever));
  EXPECT_EQ(clock.wakes, kWaiters);
  EXPECT_LE(most_looks, 2);  // the one that is served and the next one
  EXPECT_EQ(account->charged(), 100u);
  EXPECT_EQ(account->Usage().waiting, 0u);
}

TEST(ReserveBefore, NobodyIsForgottenUnderLoad) {
  base::Clock& clock = base::RealClock();
  auto account = *Account::Create(100);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const auto bytes = static_cast<uint64_t>(30 + 20 * i);
      for (int round = 0; round < 500; ++round) {
        ASSERT_TRUE(account->ReserveBefore(bytes, clock, kNever));
        account->Commit(bytes);
        account->Release(bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(account->charged(), 0u);
  EXPECT_LE(account->Usage().peak, 100u);
  EXPECT_TRUE(account->CheckInvariants().ok());
}

}  // namespace
}  // namespace gpushare::quota
