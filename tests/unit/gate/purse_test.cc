// SPDX-License-Identifier: Apache-2.0
// Credit in one thread's pocket: that thread spends it without an atomic operation while others add, take and fetch
// credit, and none is lost or counted twice.
#include "gate/purse.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "base/process_barrier.h"
#include "base/sync.h"
#include "tests/support/forbidden_call.h"

namespace gpushare::gate {
namespace {

// While this object lives, the calling thread runs on the first or the second of the processors that the program may
// use.
class OnProcessor {
 public:
  explicit OnProcessor(int which) {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && found_ < 2; ++i) {
      if (CPU_ISSET(i, &before_) && found_++ == which) CPU_SET(i, &one);
    }
    if (found_ == 2) sched_setaffinity(0, sizeof one, &one);
  }
  ~OnProcessor() { sched_setaffinity(0, sizeof before_, &before_); }
  OnProcessor(const OnProcessor&) = delete;
  OnProcessor& operator=(const OnProcessor&) = delete;

  bool there_are_two() const { return found_ == 2; }

 private:
  cpu_set_t before_;
  int found_ = 0;
};

class PurseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!base::HasProcessBarrier()) GTEST_SKIP() << "the kernel has no membarrier()";
  }
  Pocket* Asked() {
    const base::MutexLock lock(&mutex_);
    return purse_.Asked();
  }
  Pocket* GetPocket() {
    for (int i = 0; i < 1 << 15; ++i) {
      if (Pocket* const pocket = Asked(); pocket != nullptr) return pocket;
    }
    return nullptr;
  }
  // Runs `what` on another thread, under the lock.
  template <typename What>
  void OfAnother(const What& what) {
    std::thread([&] {
      const base::MutexLock lock(&mutex_);
      what();
    }).join();
  }
  static uint64_t Charge(uint64_t ns) { return ns << TenantPage::kLaunchBits; }
  uint64_t Credit() { return TenantPage::CreditOf(purse_.Look()); }
  uint32_t Launches() { return TenantPage::LaunchOf(purse_.Look()); }

  base::Mutex mutex_;
  TenantPage page_;
  Purse purse_{page_, mutex_};
};

TEST_F(PurseTest, WhoAsksAloneGetsThePocket) {
  page_.Add(100);
  uint32_t launch = 0;
  ASSERT_TRUE(page_.Spend(10, &launch));
  EXPECT_EQ(Asked(), nullptr);  // asking once is not enough
  Pocket* const pocket = GetPocket();
  ASSERT_NE(pocket, nullptr);
  EXPECT_EQ(purse_.holder(), pocket);
  EXPECT_EQ(Credit(), 90u);
  EXPECT_EQ(Launches(), 1u);
  EXPECT_FALSE(page_.Spend(1, &launch));  // for other threads there is no credit
  uint64_t word = 0;
  EXPECT_TRUE(pocket->Spend(Charge(30), &word));
  EXPECT_EQ(TenantPage::LaunchOf(word), 1u);
  EXPECT_FALSE(pocket->Spend(Charge(61), &word));
  EXPECT_TRUE(pocket->Spend(Charge(60), &word));
  EXPECT_EQ(TenantPage::LaunchOf(word), 2u);
  EXPECT_EQ(purse_.Look(), 3u);
  purse_.Add(7);
  EXPECT_TRUE(purse_.Spend(5, &launch));
  EXPECT_EQ(launch, 3u);
  EXPECT_EQ(purse_.TakeAll(), 2u);
  EXPECT_FALSE(pocket->Spend(Charge(1), &word));
  EXPECT_EQ(GetPocket(), pocket);  // the thread keeps it
}

// The holder of the credit has the current list of prices, by a number that no earlier list had.
TEST_F(PurseTest, PricesAreNewWhereTheCreditIs) {
  EXPECT_EQ(no_pocket.prices, 0u);
  page_.Add(100);
  purse_.PricesChanged();
  Pocket* const pocket = GetPocket();
  ASSERT_NE(pocket, nullptr);
  std::vector<uint64_t> had = {0, pocket->prices};
  const auto is_new = [&] {
    const uint64_t now = pocket->prices;
    const bool is = std::find(had.begin(), had.end(), now) == had.end();
    had.push_back(now);
    return is;
  };
  EXPECT_NE(had[0], had[1]);
  purse_.Add(5);
  EXPECT_EQ(pocket->prices, had.back());
  purse_.PricesChanged();
  EXPECT_TRUE(is_new());
  // Meanwhile the credit is elsewhere: the pocket does not get the change, and the old list pays for nothing.
  OfAnother([&] { purse_.Share(); });
  purse_.PricesChanged();
  EXPECT_EQ(pocket->prices, had.back());
  uint64_t word = 0;
  EXPECT_FALSE(pocket->Spend(Charge(1), &word));
  ASSERT_EQ(GetPocket(), pocket);
  EXPECT_TRUE(is_new());
  EXPECT_EQ(no_pocket.prices, 0u);
}

TEST_F(PurseTest, AnotherThreadFetchesWhatIsThere) {
  page_.Add(100);
  Pocket* const pocket = GetPocket();
  ASSERT_NE(pocket, nullptr);
  uint64_t word = 0;
  ASSERT_TRUE(pocket->Spend(Charge(30), &word));
  uint32_t launch = 0;
  std::thread([&] {
    const base::MutexLock lock(&mutex_);
    EXPECT_TRUE(purse_.Spend(20, &launch));
  }).join();
  EXPECT_EQ(launch, 1u);
  EXPECT_EQ(purse_.holder(), nullptr);
  EXPECT_FALSE(pocket->Spend(Charge(1), &word));
  EXPECT_EQ(Credit(), 50u);
  ASSERT_TRUE(page_.Spend(50, &launch));
  EXPECT_EQ(launch, 2u);
  // It takes longer to get the credit back, and then it is in the same pocket.
  for (int i = 0; i < 7; ++i) EXPECT_EQ(Asked(), nullptr);
  EXPECT_EQ(Asked(), pocket);
  EXPECT_EQ(Launches(), 3u);
}

TEST_F(PurseTest, WhatOthersDidIsForgottenByWhoKeepsItForLong) {
  const auto asks = [&] {
    int times = 1;
    while (Asked() == nullptr && times < 1 << 15) ++times;
    return times;
  };
  const auto fetched = [&] {
    std::thread([&] {
      const base::MutexLock lock(&mutex_);
      purse_.Share();
    }).join();
  };
  const int at_first = asks();
  for (int i = 1; i <= 6; ++i) {
    fetched();
    EXPECT_EQ(asks(), at_first << i);
  }
  // The thread keeps it for as many asks as it took to get it, which halves the number once.
  for (int i = 0; i < at_first << 6; ++i) EXPECT_NE(Asked(), nullptr);
  fetched();
  EXPECT_EQ(asks(), at_first << 6);
  for (int i = 0; i < at_first << 10; ++i) EXPECT_NE(Asked(), nullptr);
  fetched();
  EXPECT_EQ(asks(), at_first << 1);
}

// The counter of all credit ever added has 40 bits.
TEST_F(PurseTest, WhatIsGivenInAllHasNoBound) {
  constexpr uint64_t kMuch = TenantPage::kMostCredit / 3;
  Pocket* const pocket = GetPocket();
  ASSERT_NE(pocket, nullptr);
  uint64_t word = 0;
  for (int i = 0; i < 100; ++i) {
    const base::MutexLock lock(&mutex_);
    purse_.Add(kMuch);
    ASSERT_TRUE(pocket->Spend(Charge(kMuch), &word)) << i;
    ASSERT_EQ(TenantPage::LaunchOf(word), static_cast<uint32_t>(i));
  }
  EXPECT_EQ(Credit(), 0u);
  // Another thread adds credit, without touching what the first has spent.
  for (int i = 0; i < 5; ++i) {
    std::thread([&] {
      const base::MutexLock lock(&mutex_);
      purse_.Add(kMuch);
    }).join();
    const base::MutexLock lock(&mutex_);
    uint32_t launch = 0;
    ASSERT_TRUE(purse_.Spend(kMuch, &launch)) << i;
    ASSERT_EQ(launch, static_cast<uint32_t>(100 + i));
  }
}

TEST_F(PurseTest, TheLeastChargeIsANanosecond) {
  page_.set_charge_factor(0.01);
  EXPECT_EQ(page_.ChargeNs(100), 1u);  // a hundredth has no finite binary representation
  EXPECT_EQ(page_.ChargeNs(1), 1u);
  page_.set_charge_factor(1);
  EXPECT_EQ(page_.ChargeNs(1), 1u);
  EXPECT_EQ(page_.ChargeNs(12345), 12345u);
}

// After sixteen million launches the numbers begin again.
TEST_F(PurseTest, NumbersBeginAgain) {
  page_.credit = (uint64_t{50} << TenantPage::kLaunchBits) | TenantPage::kLaunchMask;
  Pocket* const pocket = GetPocket();
  ASSERT_NE(pocket, nullptr);
  uint64_t word = 0;
  ASSERT_TRUE(pocket->Spend(
      Charge(50), &word));  // spends all of it; the carried nanosecond does not prevent this
  EXPECT_EQ(TenantPage::LaunchOf(word), TenantPage::kLaunchMask);
  EXPECT_EQ(purse_.Look(), 0u);
  purse_.Add(20);
  ASSERT_TRUE(pocket->Spend(Charge(10), &word));
  EXPECT_EQ(TenantPage::LaunchOf(word), 0u);
  EXPECT_EQ(purse_.TakeAll(), 9u);
  purse_.Add(20);
  ASSERT_TRUE(pocket->Spend(Charge(20), &word));
}

// The same launch while another thread takes everything: the carried nanosecond cannot be taken.
TEST_F(PurseTest, NumbersBeginAgainWhileAllIsTaken) {
  constexpr uint64_t kCredit = 50;
  constexpr int kRounds = 10'000;
  Pocket* const pocket = GetPocket();
  ASSERT_NE(pocket, nullptr);
  std::atomic<int> begun{0}, ended{0};
  // Both threads have to be at work at the same time.
  const auto await = [](const std::atomic<int>& round, int which) {
    for (int n = 0; round.load(std::memory_order_acquire) < which; ++n) {
      if (n > 2000) std::this_thread::yield();
    }
  };
  std::thread other([&] {
    const OnProcessor second(1);
    for (int i = 1; i <= kRounds; ++i) {
      await(begun, i);
      const base::MutexLock lock(&mutex_);
      const uint64_t taken = purse_.TakeAll();
      EXPECT_TRUE(taken == 0 || taken == kCredit) << taken;
      ended.store(i, std::memory_order_release);
    }
  });
  const OnProcessor first(0);
  std::mt19937 random(3);
  for (int i = 1; i <= kRounds; ++i) {
    pocket->spent = TenantPage::kLaunchMask;
    pocket->limit = Charge(kCredit) | TenantPage::kLaunchMask;
    begun.store(i, std::memory_order_release);
    for (uint64_t n = random() % 2000; n > 0; --n)
      std::atomic_signal_fence(std::memory_order_seq_cst);
    uint64_t word = 0;
    pocket->Spend(Charge(kCredit), &word);
    await(ended, i);
  }
  other.join();
  EXPECT_EQ(Credit(), 0u);
  if (!first.there_are_two()) GTEST_SKIP() << "one processor: they took turns";
}

// When a filter forbids the barrier later on, the thread loses its pocket, since others would have to wait for the
// barrier to fetch its credit.
TEST_F(PurseTest, WithoutABarrierThereIsNoPocket) {
  enum Found : int { kAsItShould, kNoFilter, kKept, kWrong, kGotOne };
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    page_.Add(100);
    Pocket* const pocket = GetPocket();
    if (!gpushare::testing::Forbid(SYS_membarrier)) _exit(kNoFilter);
    base::ProcessBarrier();
    uint32_t launch = 1;
    {
      const base::MutexLock lock(&mutex_);
      if (!purse_.Spend(10, &launch)) _exit(kWrong);
    }
    uint64_t word = 0;
    if (purse_.holder() != nullptr || pocket->Spend(Charge(1), &word)) _exit(kKept);
    if (launch != 0 || Credit() != 90 || !page_.Spend(90, &launch) || launch != 1) _exit(kWrong);
    _exit(GetPocket() != nullptr ? kGotOne : kAsItShould);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == kNoFilter) GTEST_SKIP() << "no filters of system calls here";
  EXPECT_EQ(WEXITSTATUS(status), kAsItShould);
}

// The counter of spent credit has 40 bits: this spends two minutes of device time twenty times.
TEST_F(PurseTest, ItsSumDoesNotRunOver) {
  Pocket* const pocket = GetPocket();
  ASSERT_NE(pocket, nullptr);
  constexpr uint64_t kGrant = 120'000'000'000;
  for (int i = 0; i < 20; ++i) {
    purse_.Add(kGrant);
    uint64_t word = 0;
    ASSERT_TRUE(pocket->Spend(Charge(kGrant - 5), &word)) << i;
    ASSERT_EQ(TenantPage::LaunchOf(word), static_cast<uint32_t>(i));
    ASSERT_EQ(Asked(), pocket);
    ASSERT_EQ(purse_.TakeAll(), 5u);
  }
}

// The steps of Pocket::Spend() with another thread in between: the store came too late, or was seen.
TEST_F(PurseTest, WhatIsTakenOutMeanwhile) {
  Pocket* const pocket = GetPocket();
  ASSERT_NE(pocket, nullptr);
  const auto store = [&](uint64_t ns) {
    const uint64_t before = pocket->spent;
    pocket->spent = before + Charge(ns) + 1;
    return before;
  };
  // Too late: the launch is not paid, and never counted.
  purse_.Add(100);
  OfAnother([&] { EXPECT_EQ(purse_.TakeAll(), 100u); });
  uint64_t before = store(30);
  EXPECT_EQ(purse_.Look(), 0u);
  OfAnother([&] { EXPECT_EQ(purse_.TakeAll(), 0u); });
  EXPECT_FALSE(purse_.Claim(*pocket, before));
  EXPECT_EQ(purse_.Look(), 0u);
  // Seen: the launch is paid.
  purse_.Add(100);
  before = store(30);
  OfAnother([&] { EXPECT_EQ(purse_.TakeAll(), 70u); });
  EXPECT_TRUE(purse_.Claim(*pocket, before));
  EXPECT_EQ(purse_.Look(), 1u);
  // Too late, but paid by credit added since; with less credit it would not be.
  purse_.Add(100);
  OfAnother([&] { EXPECT_EQ(purse_.TakeAll(), 100u); });
  before = store(30);
  purse_.Add(29);
  EXPECT_EQ(Credit(), 29u);
  EXPECT_EQ(Launches(), 1u);
  purse_.Add(21);
  EXPECT_TRUE(purse_.Claim(*pocket, before));
  EXPECT_EQ(Credit(), 20u);
  EXPECT_EQ(Launches(), 2u);
  // Too late, and another thread has fetched the credit: the launch number belongs to that thread.
  OfAnother([&] { EXPECT_EQ(purse_.TakeAll(), 20u); });
  before = store(30);
  purse_.Add(10);
  uint32_t launch = 0;
  OfAnother([&] { EXPECT_TRUE(purse_.Spend(10, &launch)); });
  EXPECT_EQ(launch, 2u);
  EXPECT_EQ(purse_.holder(), nullptr);
  EXPECT_FALSE(purse_.Claim(*pocket, before));
  EXPECT_EQ(purse_.Look(), 3u);
}

// One thread spends from its pocket; another adds and takes credit, and fetches all of it from time to time. Each
// launch number occurs once, and no nanosecond is lost or gained.
TEST_F(PurseTest, NothingIsSpentTwiceOrLost) {
  constexpr int kMost = 1 << 22;
  auto numbers = std::make_unique<std::vector<std::atomic<uint8_t>>>(kMost);
  std::atomic<bool> done{false};
  std::atomic<uint64_t> spent{0}, launches{0}, by_pocket{0}, tries{0};
  // Does not use an atomic read-modify-write operation, which would hide late stores.
  const auto numbered = [&](uint32_t number) {
    if (number >= kMost) return;
    std::atomic<uint8_t>& times = (*numbers)[number];
    times.store(static_cast<uint8_t>(times.load(std::memory_order_relaxed) + 1),
                std::memory_order_relaxed);
  };
  const auto launched = [&](uint32_t number, uint64_t ns) {
    spent += ns;
    ++launches;
    numbered(number);
  };
  std::thread owner([&] {
    std::mt19937 random(1);
    Pocket* pocket = &no_pocket;
    uint64_t of_mine = 0, mine = 0;
    for (uint64_t tried = 1; !done; ++tried) {
      tries.store(tried, std::memory_order_relaxed);
      if (tried % 4096 == 0) std::this_thread::yield();  // both may have one processor
      // The other thread may be without a processor for long, and launches are numbered modulo 2^24.
      if (mine + launches >= kMost - 100) {
        std::this_thread::yield();
        continue;
      }
      const uint64_t ns = 1 + random() % 4;
      uint64_t word;
      if (pocket->Spend(Charge(ns), &word)) {
        of_mine += ns;
        by_pocket.store(++mine, std::memory_order_relaxed);
        numbered(TenantPage::LaunchOf(word));
      } else if (page_.SpendCharge(Charge(ns), &word)) {
        launched(TenantPage::LaunchOf(word), ns);
      } else if (Pocket* const asked = Asked(); asked != nullptr) {
        pocket = asked;
      }
    }
    spent += of_mine;
    launches += mine;
  });
  uint64_t added = 0, taken = 0;
  std::mt19937 random(2);
  for (int i = 0; (i < 5000 || by_pocket < 50'000) && i < 100'000; ++i) {
    // The owner may be without a processor.
    for (const uint64_t tried = tries; tries == tried;) std::this_thread::yield();
    {
      const base::MutexLock lock(&mutex_);
      const uint32_t what = random() % 8;
      const bool stops = what < 3 && purse_.StopSpending();
      if (stops && what < 2) base::ProcessBarrier();
      if (what == 2) {
        purse_.LetSpend();
      } else if (what < 5) {
        taken += purse_.TakeAll();
      } else {
        const uint64_t ns = random() % 200000;
        purse_.Add(ns);
        added += ns;
      }
      EXPECT_LT(Credit(), uint64_t{1} << 30);
      if (i % 1000 == 999 && i < 5000) {
        uint32_t launch = 0;
        const uint64_t ns = 1 + random() % 9;
        if (purse_.Spend(ns, &launch)) launched(launch, ns);
      }
    }
    // Waits for a varying time, to meet the owner at any of its steps.
    for (uint64_t n = random() % 300; n > 0; --n)
      std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  done = true;
  owner.join();
  EXPECT_GT(by_pocket, 1000u);
  EXPECT_EQ(spent + taken + Credit(), added);
  EXPECT_EQ(Launches(), launches & TenantPage::kLaunchMask);
  for (uint64_t i = 0; i < std::min<uint64_t>(launches, kMost); ++i) {
    ASSERT_EQ((*numbers)[i], 1) << "the launch numbered " << i;
  }
}

// Taking from several pockets at once: the steps of Pocket::Spend() between those of the thread that takes.
TEST_F(PurseTest, WhatIsStoppedIsTakenOrThereAsItWas) {
  Pocket* const pocket = GetPocket();
  ASSERT_NE(pocket, nullptr);
  uint64_t word = 0;
  EXPECT_FALSE(purse_.StopSpending());                      // a thread need not stop its own pocket
  OfAnother([&] { EXPECT_FALSE(purse_.StopSpending()); });  // there is no credit
  purse_.Add(100);
  OfAnother([&] {
    EXPECT_TRUE(purse_.StopSpending());
    purse_.LetSpend();
    purse_.LetSpend();  // the second call has no effect
    EXPECT_EQ(Credit(), 100u);
  });
  EXPECT_TRUE(pocket->Spend(Charge(10), &word));
  OfAnother([&] {
    EXPECT_TRUE(purse_.StopSpending());
    base::ProcessBarrier();
    EXPECT_EQ(purse_.TakeAll(), 90u);
  });
  EXPECT_FALSE(pocket->Spend(Charge(1), &word));
  EXPECT_EQ(purse_.Look(), 1u);
  // Between the two looks at the limit: a launch stored before the barrier is paid, and learns so, whether the rest
  // is taken...
  purse_.Add(100);
  uint64_t before = pocket->spent;
  OfAnother([&] {
    EXPECT_TRUE(purse_.StopSpending());
    pocket->spent = before + Charge(30) + 1;
    base::ProcessBarrier();
    EXPECT_EQ(purse_.TakeAll(), 70u);
  });
  EXPECT_TRUE(purse_.Claim(*pocket, before));
  // ... or not.
  purse_.Add(100);
  before = pocket->spent;
  OfAnother([&] {
    EXPECT_TRUE(purse_.StopSpending());
    pocket->spent = before + Charge(30) + 1;
    purse_.LetSpend();
  });
  EXPECT_TRUE(purse_.Claim(*pocket, before));
  EXPECT_EQ(Credit(), 70u);
  EXPECT_EQ(Launches(), 3u);
  // Stored after the pocket was read: the launch is not paid, and never counted.
  OfAnother([&] {
    EXPECT_TRUE(purse_.StopSpending());
    base::ProcessBarrier();
    EXPECT_EQ(purse_.TakeAll(), 70u);
  });
  before = pocket->spent;
  pocket->spent = before + Charge(30) + 1;
  EXPECT_FALSE(purse_.Claim(*pocket, before));
  EXPECT_EQ(purse_.Look(), 3u);
  // No barrier is needed for a thread that has ended.
  purse_.Add(100);
  pocket->Leave();
  OfAnother([&] {
    EXPECT_FALSE(purse_.StopSpending());
    EXPECT_EQ(purse_.TakeAll(), 100u);
  });
}

// All threads live until the end, so that each has its own identity.
TEST_F(PurseTest, WhatThreadsLeaveOthersGet) {
  constexpr int kThreads = 200;
  std::vector<std::thread> threads;
  std::atomic<int> turn{0};
  page_.Add(1000);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      while (turn.load() < t) std::this_thread::yield();
      // Any thread gets the credit of an abandoned pocket at once.
      uint32_t launch = 0;
      {
        const base::MutexLock lock(&mutex_);
        EXPECT_TRUE(purse_.Spend(1, &launch));
      }
      int times = 0;
      Pocket* pocket = nullptr;
      while (pocket == nullptr && times < 100) {
        pocket = Asked();
        ++times;
      }
      EXPECT_LE(times, 4) << t;
      EXPECT_NE(pocket, nullptr) << t;
      uint64_t word = 0;
      if (pocket != nullptr) {
        EXPECT_TRUE(pocket->Spend(Charge(2), &word)) << t;
        pocket->Leave();
      }
      ++turn;
      while (turn.load() < kThreads) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Credit(), 1000u - 3 * kThreads);
  EXPECT_EQ(Launches(), 2u * kThreads);
}

// A pocket that is not abandoned stays its thread's, however many pockets there are.
TEST_F(PurseTest, WhoHasNotLeftIsNotTakenFrom) {
  constexpr int kThreads = 70;
  std::vector<std::thread> threads;
  std::vector<Pocket*> got(kThreads);
  std::atomic<int> turn{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      while (turn.load() < t) std::this_thread::yield();
      {
        const base::MutexLock lock(&mutex_);
        purse_.Share();
      }
      got[static_cast<size_t>(t)] = GetPocket();
      ++turn;
      while (turn.load() < kThreads) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<Pocket*>(got.begin(), got.begin() + 64).size(), 64u);
  EXPECT_EQ(std::set<Pocket*>(got.begin() + 64, got.end()), std::set<Pocket*>{nullptr});
}

// Threads start, spend and end while another adds and takes credit: nothing is lost or counted twice.
TEST_F(PurseTest, NothingIsLostWithAThread) {
  std::atomic<bool> done{false};
  std::atomic<uint64_t> spent{0}, launches{0}, by_pocket{0};
  std::thread owners([&] {
    for (uint32_t n = 0; !done; ++n) {
      std::thread([&, n] {
        std::mt19937 random(n);
        Pocket* pocket = &no_pocket;
        uint64_t mine = 0, spent_here = 0, launched_here = 0;
        for (uint64_t left = 1 + random() % 5000; left > launched_here && !done;) {
          const uint64_t ns = 1 + random() % 4;
          uint64_t word;
          if (pocket->Spend(Charge(ns), &word)) {
            ++mine;
          } else if (!page_.SpendCharge(Charge(ns), &word)) {
            Pocket* const asked = Asked();
            if (asked != nullptr) {
              pocket = asked;
            } else {
              const base::MutexLock lock(&mutex_);
              purse_.Share();
            }
            continue;
          }
          spent_here += ns;
          ++launched_here;
        }
        spent += spent_here;
        launches += launched_here;
        by_pocket += mine;
        if (pocket != &no_pocket) pocket->Leave();
      }).join();
    }
  });
  uint64_t added = 0, taken = 0;
  std::mt19937 random(2);
  for (int i = 0; (i < 3000 || by_pocket < 20'000) && i < 1'000'000; ++i) {
    {
      const base::MutexLock lock(&mutex_);
      if (random() % 8 == 0) {
        taken += purse_.TakeAll();
      } else if (Credit() < 50'000) {
        const uint64_t ns = random() % 20'000;
        purse_.Add(ns);
        added += ns;
      }
    }
    std::this_thread::yield();
  }
  done = true;
  owners.join();
  EXPECT_GT(by_pocket, 1000u);
  EXPECT_EQ(spent + taken + Credit(), added);
  EXPECT_EQ(Launches(), launches & TenantPage::kLaunchMask);
}

}  // namespace
}  // namespace gpushare::gate
