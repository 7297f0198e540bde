// SPDX-License-Identifier: Apache-2.0
// The ledger and the pointer table together, with a driver that reuses addresses at once.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "quota/ledger.h"
#include "quota/pointer_table.h"

namespace gpushare::quota {
namespace {

using InsertResult = PointerTable::InsertResult;

// Returns the address that was freed last, and knows which addresses are live.
class RecyclingDriver {
 public:
  uint64_t Alloc() {
    const std::lock_guard lock(mutex_);
    uint64_t pointer;
    if (free_.empty()) {
      pointer = (next_++) << 21;
    } else {
      pointer = free_.back();
      free_.pop_back();
    }
    live_.insert(pointer);
    return pointer;
  }
  bool Free(uint64_t pointer) {
    const std::lock_guard lock(mutex_);
    if (live_.erase(pointer) == 0) return false;
    free_.push_back(pointer);
    return true;
  }
  size_t live() {
    const std::lock_guard lock(mutex_);
    return live_.size();
  }

 private:
  std::mutex mutex_;
  uint64_t next_ = 1;
  std::vector<uint64_t> free_;
  std::set<uint64_t> live_;
};

class Accounting {
 public:
  // Returns 0 when over quota.
  uint64_t Alloc(Account* account, uint64_t bytes) {
    if (!account->Reserve(bytes)) return 0;
    const uint64_t pointer = driver_.Alloc();
    account->Commit(bytes);
    if (table_.Insert(pointer, {.bytes = bytes, .account = account}) != InsertResult::kInserted) {
      replaced_.fetch_add(1);
    }
    return pointer;
  }
  bool Free(uint64_t pointer) {
    Allocation allocation;
    if (!table_.Take(pointer, &allocation)) return driver_.Free(pointer);
    if (!driver_.Free(pointer)) {
      const InsertResult put_back = table_.Insert(pointer, allocation);
      EXPECT_EQ(put_back, InsertResult::kInserted);
      return false;
    }
    allocation.account->Release(allocation.bytes);
    return true;
  }

  RecyclingDriver driver_;
  PointerTable table_;
  std::atomic<int> replaced_{0};
};

// The race for a reused address: one thread frees it while another allocates it.
TEST(Accounting, ARecycledAddressIsNeverLostNorReplaced) {
  Accounting accounting;
  auto account = *Account::Create(kUnlimited);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) {
        const uint64_t pointer = accounting.Alloc(account.get(), 10);
        ASSERT_NE(pointer, 0u);
        ASSERT_TRUE(accounting.Free(pointer));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(accounting.replaced_.load(), 0);
  EXPECT_EQ(accounting.table_.size(), 0u);
  EXPECT_EQ(accounting.driver_.live(), 0u);
  EXPECT_EQ(account->charged(), 0u);
}

// Random tenants, sizes and lifetimes. Whichever tenant frees, the allocating tenant is credited.
TEST(Accounting, BooksAgreeWithTheTableAndTheDriver) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    Accounting accounting;
    auto parent = *Account::Create(6000);
    std::vector<std::unique_ptr<Account>> accounts;
    accounts.push_back(*Account::Create(3000));
    accounts.push_back(*Account::Create(5000, parent.get()));
    accounts.push_back(*Account::Create(5000, parent.get()));
    std::mutex mutex;
    std::vector<uint64_t> live;
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(seed * 100 + t);
        for (int i = 0; i < 4'000; ++i) {
          Account* account = accounts[random() % accounts.size()].get();
          if (random() % 2 == 0) {
            const uint64_t pointer = accounting.Alloc(account, 1 + random() % 700);
            if (pointer == 0) continue;
            const std::lock_guard lock(mutex);
            live.push_back(pointer);
          } else {
            uint64_t pointer = 0;
            {
              const std::lock_guard lock(mutex);
              if (live.empty()) continue;
              std::swap(live[random() % live.size()], live.back());
              pointer = live.back();
              live.pop_back();
            }
            ASSERT_TRUE(accounting.Free(pointer));
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();

    uint64_t children = 0;
    for (const auto& account : accounts) {
      const absl::Status invariants = account->CheckInvariants();
      EXPECT_TRUE(invariants.ok()) << invariants;
      EXPECT_EQ(account->Usage().reserved, 0u);
      EXPECT_EQ(account->Usage().committed, accounting.table_.BytesOf(account.get()));
      EXPECT_LE(account->Usage().peak, account->limit());
      EXPECT_GT(account->Usage().denied,
                0u);  // otherwise the limits were not reached and nothing was tested
      if (account->parent() != nullptr) children += account->charged();
    }
    EXPECT_EQ(parent->charged(), children);
    EXPECT_LE(parent->Usage().peak, 6000u);
    EXPECT_EQ(accounting.table_.size(), live.size());
    EXPECT_EQ(accounting.driver_.live(), live.size());
    EXPECT_TRUE(accounting.table_.CheckInvariants().ok());

    for (const uint64_t pointer : live) EXPECT_TRUE(accounting.Free(pointer));
    for (const auto& account : accounts) EXPECT_EQ(account->charged(), 0u);
    EXPECT_EQ(parent->charged(), 0u);
    EXPECT_FALSE(accounting.Free(1 << 21));  // a double free reaches the driver, which refuses it
  }
}

}  // namespace
}  // namespace gpushare::quota
