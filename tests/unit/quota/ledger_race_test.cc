// SPDX-License-Identifier: Apache-2.0
// The races of a limiter, each with dedicated threads.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "quota/ledger.h"

namespace gpushare::quota {
namespace {

constexpr int kRounds = 20'000;

void InParallel(int count, const std::function<void(int)>& body) {
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      ready.fetch_add(1);
      while (ready.load() < count) std::this_thread::yield();
      body(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A limiter that adds first and subtracts again if the sum is too large would refuse the fitting request here.
TEST(LedgerRace, AnOverLimitRequestNeverMakesAFittingOneFail) {
  auto account = *Account::Create(1000);
  std::atomic<bool> done{false};
  std::atomic<int> fitting_refused{0};
  std::atomic<int> over_granted{0};
  InParallel(3, [&](int thread) {
    if (thread == 0) {
      for (int i = 0; i < kRounds; ++i) {
        if (!account->Reserve(1000)) {
          fitting_refused.fetch_add(1);
          continue;
        }
        account->Commit(1000);
        account->Release(1000);
      }
      done.store(true);
    } else {
      while (!done.load()) {
        if (account->Reserve(1001)) over_granted.fetch_add(1);
      }
    }
  });
  EXPECT_EQ(fitting_refused.load(), 0);
  EXPECT_EQ(over_granted.load(), 0);
  EXPECT_EQ(account->charged(), 0u);
  EXPECT_EQ(account->Usage().peak, 1000u);
}

// The same through a parent: b's requests fit b but not the parent, and a's always fit both.
TEST(LedgerRace, ARefusalByTheParentNeverMakesASiblingFail) {
  auto parent = *Account::Create(1000);
  auto a = *Account::Create(600, parent.get());
  auto b = *Account::Create(kUnlimited, parent.get());
  ASSERT_TRUE(b->Reserve(400));
  std::atomic<bool> done{false};
  std::atomic<int> fitting_refused{0};
  std::atomic<int> over_granted{0};
  InParallel(3, [&](int thread) {
    if (thread == 0) {
      for (int i = 0; i < kRounds; ++i) {
        if (a->Reserve(600)) {
          a->Cancel(600);
        } else {
          fitting_refused.fetch_add(1);
        }
      }
      done.store(true);
    } else {
      while (!done.load()) {
        if (b->Reserve(601)) over_granted.fetch_add(1);
      }
    }
  });
  EXPECT_EQ(fitting_refused.load(), 0);
  EXPECT_EQ(over_granted.load(), 0);
  EXPECT_EQ(parent->charged(), 400u);
}

// The same within one child: a request that fits the child but not the parent is in flight while another request fits
// both.
TEST(LedgerRace, ARefusalByTheParentNeverMakesTheSameChildFail) {
  auto parent = *Account::Create(1000);
  auto child = *Account::Create(1200, parent.get());
  std::atomic<bool> done{false};
  std::atomic<int> fitting_refused{0};
  InParallel(3, [&](int thread) {
    if (thread == 0) {
      for (int i = 0; i < kRounds; ++i) {
        if (child->Reserve(1000)) {
          child->Cancel(1000);
        } else {
          fitting_refused.fetch_add(1);
        }
      }
      done.store(true);
    } else {
      while (!done.load()) {
        if (child->Reserve(1100)) ADD_FAILURE() << "over the parent's limit";
      }
    }
  });
  EXPECT_EQ(fitting_refused.load(), 0);
  EXPECT_EQ(child->charged(), 0u);
  EXPECT_EQ(parent->charged(), 0u);
}

class LedgerSum : public ::testing::TestWithParam<bool> {};

TEST_P(LedgerSum, NeverExceedsTheLimit) {
  constexpr uint64_t kLimit = 1000;
  auto parent = *Account::Create(kUnlimited);
  auto account = *Account::Create(kLimit, GetParam() ? parent.get() : nullptr);
  std::atomic<uint64_t> held{0};  // counted independently of the account
  std::atomic<int> over{0};
  InParallel(4, [&](int thread) {
    const uint64_t bytes = 250 + static_cast<uint64_t>(thread) * 97;
    for (int i = 0; i < 10 * kRounds; ++i) {
      if (!account->Reserve(bytes)) continue;
      if (held.fetch_add(bytes) + bytes > kLimit) over.fetch_add(1);
      account->Commit(bytes);
      held.fetch_sub(bytes);
      account->Release(bytes);
    }
  });
  EXPECT_EQ(over.load(), 0);
  EXPECT_EQ(account->charged(), 0u);
  EXPECT_LE(account->Usage().peak, kLimit);
  EXPECT_TRUE(account->CheckInvariants().ok());
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutParent, LedgerSum, ::testing::Bool());

TEST(LedgerRace, LimitsChangeUnderLoad) {
  auto parent = *Account::Create(4000);
  auto account = *Account::Create(1000, parent.get());
  std::atomic<bool> done{false};
  std::atomic<int> over{0};
  InParallel(4, [&](int thread) {
    if (thread == 0) {
      for (int i = 0; i < kRounds / 4; ++i) account->SetLimit(i % 2 == 0 ? 300 : 1000);
      done.store(true);
      return;
    }
    while (!done.load()) {
      if (!account->Reserve(250)) continue;
      if (account->charged() > 1000) over.fetch_add(1);
      account->Commit(250);
      account->Release(250);
    }
  });
  EXPECT_EQ(over.load(), 0);
  EXPECT_EQ(account->charged(), 0u);
  EXPECT_EQ(parent->charged(), 0u);
}

}  // namespace
}  // namespace gpushare::quota
