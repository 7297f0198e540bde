// SPDX-License-Identifier: Apache-2.0
#include "quota/pointer_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

// The table's arrays are allocated here. With `no_memory` set, allocation fails.
static std::atomic<bool> no_memory{false};

void* operator new[](std::size_t bytes, std::align_val_t alignment,
                     const std::nothrow_t&) noexcept {
  return no_memory.load() ? nullptr : std::aligned_alloc(static_cast<size_t>(alignment), bytes);
}
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
// clang 14 declares this one only with -fsized-deallocation.
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept;
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace gpushare::quota {
namespace {

using InsertResult = PointerTable::InsertResult;

class PointerTableTest : public ::testing::Test {
 protected:
  std::unique_ptr<Account> a_ = *Account::Create(kUnlimited);
  std::unique_ptr<Account> b_ = *Account::Create(kUnlimited);
  PointerTable table_;
};

TEST_F(PointerTableTest, KeepsWhatWasInserted) {
  EXPECT_EQ(
      table_.Insert(0x1000, {.bytes = 7, .account = a_.get(), .kind = Kind::kArray, .device = 3}),
      InsertResult::kInserted);
  Allocation found;
  ASSERT_TRUE(table_.Find(0x1000, &found));
  EXPECT_EQ(found.bytes, 7u);
  EXPECT_EQ(found.account, a_.get());
  EXPECT_EQ(found.kind, Kind::kArray);
  EXPECT_EQ(found.device, 3u);
  EXPECT_EQ(table_.size(), 1u);
}

TEST_F(PointerTableTest, AFreeCreditsWhoAllocated) {
  ASSERT_TRUE(a_->Reserve(100));
  a_->Commit(100);
  ASSERT_EQ(table_.Insert(0x1000, {.bytes = 100, .account = a_.get()}), InsertResult::kInserted);
  Allocation taken;
  ASSERT_TRUE(table_.Take(0x1000, &taken));  // any thread may take it
  taken.account->Release(taken.bytes);
  EXPECT_EQ(a_->charged(), 0u);
  EXPECT_EQ(b_->charged(), 0u);
}

TEST_F(PointerTableTest, ForeignPointersAreUnknown) {
  Allocation allocation;
  EXPECT_FALSE(table_.Take(0x1000, &allocation));  // still has no slots
  EXPECT_FALSE(table_.Find(0x1000, &allocation));
  ASSERT_EQ(table_.Insert(0x1000, {.bytes = 1, .account = a_.get()}), InsertResult::kInserted);
  EXPECT_FALSE(
      table_.Take(0x1001, &allocation));  // a pointer inside an allocation is not its start
  EXPECT_FALSE(table_.Take(0, &allocation));
  EXPECT_EQ(table_.size(), 1u);
}

TEST_F(PointerTableTest, OfADoubleFreeOnlyTheFirstFindsIt) {
  ASSERT_EQ(table_.Insert(0x1000, {.bytes = 1, .account = a_.get()}), InsertResult::kInserted);
  Allocation allocation;
  EXPECT_TRUE(table_.Take(0x1000, &allocation));
  EXPECT_FALSE(table_.Take(0x1000, &allocation));
}

TEST_F(PointerTableTest, HandsBackWhatAnInsertReplaces) {
  ASSERT_EQ(table_.Insert(0x1000, {.bytes = 1, .account = a_.get()}), InsertResult::kInserted);
  Allocation replaced;
  EXPECT_EQ(table_.Insert(0x1000, {.bytes = 2, .account = b_.get()}, &replaced),
            InsertResult::kReplaced);
  EXPECT_EQ(replaced.bytes, 1u);
  EXPECT_EQ(replaced.account, a_.get());
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_EQ(table_.BytesOf(b_.get()), 2u);
}

TEST_F(PointerTableTest, TakesAllThatIsOneAccounts) {
  for (uint64_t i = 1; i <= 10'000; ++i) {
    ASSERT_EQ(table_.Insert(i << 21, {.bytes = i, .account = i % 3 == 0 ? a_.get() : b_.get()}),
              InsertResult::kInserted);
  }
  const auto taken = table_.TakeAllOf(a_.get());
  EXPECT_EQ(taken.size(), 3333u);
  for (const auto& [pointer, allocation] : taken) {
    EXPECT_EQ(pointer, allocation.bytes << 21);
    EXPECT_EQ(allocation.account, a_.get());
  }
  EXPECT_EQ(table_.size(), 6667u);
  EXPECT_EQ(table_.BytesOf(a_.get()), 0u);
  EXPECT_TRUE(table_.CheckInvariants().ok());
}

// Compares with a map, with addresses as drivers return them and with unrealistic ones.
TEST_F(PointerTableTest, AgreesWithAMapOverRandomOperations) {
  for (const uint64_t stride :
       {uint64_t{1}, uint64_t{256}, uint64_t{2} << 20, uint64_t{1} << 32, uint64_t{1} << 52}) {
    PointerTable table;
    std::map<uint64_t, uint64_t> model;
    std::mt19937_64 random(stride);
    for (uint64_t step = 1; step <= 40'000; ++step) {
      const uint64_t pointer = (1 + random() % 4000) * stride;
      Allocation allocation;
      if (random() % 2 == 0) {
        const auto expected =
            model.contains(pointer) ? InsertResult::kReplaced : InsertResult::kInserted;
        ASSERT_EQ(table.Insert(pointer, {.bytes = step, .account = a_.get()}, &allocation),
                  expected);
        if (expected == InsertResult::kReplaced) {
          ASSERT_EQ(allocation.bytes, model[pointer]);
        }
        model[pointer] = step;
      } else {
        ASSERT_EQ(table.Take(pointer, &allocation), model.contains(pointer));
        if (model.contains(pointer)) {
          ASSERT_EQ(allocation.bytes, model[pointer]);
        }
        model.erase(pointer);
      }
    }
    ASSERT_EQ(table.size(), model.size());
    for (const auto& [pointer, bytes] : model) {
      Allocation allocation;
      ASSERT_TRUE(table.Find(pointer, &allocation));
      ASSERT_EQ(allocation.bytes, bytes);
    }
    const absl::Status invariants = table.CheckInvariants();
    ASSERT_TRUE(invariants.ok()) << invariants;
  }
}

// Pointers of shard 0 that all hash to the last line of its first array, so that the overflow wraps around to the
// first line. It inverts the table's hash for the first of a run of neighbours.
uint64_t OfOneLine(uint64_t i) {
  constexpr uint64_t kNeighbours = uint64_t{15} << 21;
  uint64_t inverse = 1;
  for (int k = 0; k < 6; ++k) inverse *= 2 - 0x9e3779b97f4a7c15u * inverse;
  for (uint64_t low = 0;; ++low) {
    const uint64_t folded = ((uint64_t{7} << 32) | low) * inverse;
    const uint64_t pointer = folded ^ (folded >> 32);
    if ((pointer & kNeighbours) == 0 && i-- == 0) return pointer;
  }
}

TEST_F(PointerTableTest, EntriesOfOneLineAreFoundWhicheverGoesFirst) {
  constexpr uint64_t kEntries = 8;  // in 16 slots: the array does not grow
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<uint64_t> order(kEntries);
    for (uint64_t i = 0; i < kEntries; ++i) order[i] = i;
    for (const uint64_t i : order) {
      ASSERT_EQ(table_.Insert(OfOneLine(i), {.bytes = i, .account = a_.get()}),
                InsertResult::kInserted);
    }
    Allocation allocation;
    EXPECT_FALSE(table_.Find(OfOneLine(kEntries), &allocation));
    std::shuffle(order.begin(), order.end(), random);
    for (size_t gone = 0; gone < order.size(); ++gone) {
      ASSERT_TRUE(table_.Take(OfOneLine(order[gone]), &allocation));
      EXPECT_EQ(allocation.bytes, order[gone]);
      for (size_t i = 0; i < order.size(); ++i) {
        ASSERT_EQ(table_.Find(OfOneLine(order[i]), &allocation), i > gone);
      }
      const absl::Status invariants = table_.CheckInvariants();
      ASSERT_TRUE(invariants.ok()) << invariants;
    }
  }
}

// Fresh memory comes in steps of 2 MiB, so pointers that were allocated together are found together.
TEST_F(PointerTableTest, RunsOfNeighboursThatMeetAreAllFound) {
  std::vector<uint64_t> pointers;
  for (uint64_t run = 0; run < 64; ++run) {
    for (uint64_t i = 0; i < 32; ++i) {
      pointers.push_back((uint64_t{0x7f} << 40) + (run << 30) + (i << 21));
    }
  }
  std::shuffle(pointers.begin(), pointers.end(), std::mt19937_64(2));
  for (uint64_t p : pointers) {
    ASSERT_EQ(table_.Insert(p, {.bytes = p, .account = a_.get()}), InsertResult::kInserted);
  }
  EXPECT_TRUE(table_.CheckInvariants().ok());
  for (size_t i = 0; i < pointers.size(); ++i) {
    Allocation allocation;
    ASSERT_TRUE(table_.Take(pointers[i], &allocation));
    ASSERT_EQ(allocation.bytes, pointers[i]);
    if (i % 256 == 0) {
      ASSERT_TRUE(table_.CheckInvariants().ok());
    }
  }
  EXPECT_EQ(table_.size(), 0u);
}

// Whatever the addresses, an array that is about to grow holds each entry near where it belongs.
TEST_F(PointerTableTest, EntriesLieNearWhereTheyBelong) {
  for (const uint64_t stride : {uint64_t{512}, uint64_t{4096}, uint64_t{2} << 20}) {
    PointerTable table;
    for (uint64_t i = 0; i < 130'000; ++i) {
      ASSERT_EQ(
          table.Insert((uint64_t{0x7f} << 40) + i * stride, {.bytes = 1, .account = a_.get()}),
          InsertResult::kInserted);
    }
    EXPECT_LE(table.LongestWay(), 8u) << stride;
    EXPECT_TRUE(table.CheckInvariants().ok());
  }
}

TEST_F(PointerTableTest, WithoutMemoryToGrowItFillsUpAndThenSaysSo) {
  ASSERT_EQ(table_.Insert(OfOneLine(0), {.bytes = 0, .account = a_.get()}),
            InsertResult::kInserted);
  no_memory.store(true);
  uint64_t inserted = 1;
  while (table_.Insert(OfOneLine(inserted), {.bytes = inserted, .account = a_.get()}) ==
         InsertResult::kInserted) {
    ++inserted;
  }
  EXPECT_EQ(inserted, 16u);  // uses every slot
  // All lines are full and had overflows: looking up an absent pointer still ends.
  Allocation allocation;
  EXPECT_FALSE(table_.Find(OfOneLine(inserted), &allocation));
  EXPECT_FALSE(table_.Take(OfOneLine(inserted), &allocation));
  ASSERT_TRUE(table_.Take(OfOneLine(3), &allocation));
  EXPECT_EQ(allocation.bytes, 3u);
  EXPECT_EQ(table_.Insert(OfOneLine(3), {.bytes = 3, .account = a_.get()}),
            InsertResult::kInserted);
  EXPECT_EQ(table_.Insert(OfOneLine(5), {.bytes = 55, .account = a_.get()}, &allocation),
            InsertResult::kReplaced);
  EXPECT_EQ(table_.size(), inserted);
  EXPECT_TRUE(table_.CheckInvariants().ok());
  EXPECT_EQ(PointerTable().Insert(1, {}), InsertResult::kNoMemory);

  no_memory.store(false);
  EXPECT_EQ(table_.Insert(OfOneLine(inserted), {.bytes = inserted, .account = a_.get()}),
            InsertResult::kInserted);
  for (uint64_t i = 0; i <= inserted; ++i) {
    ASSERT_TRUE(table_.Take(OfOneLine(i), &allocation));
    EXPECT_EQ(allocation.bytes, i == 5 ? 55 : i);
  }
  EXPECT_TRUE(table_.CheckInvariants().ok());
}

TEST_F(PointerTableTest, FetchingAheadChangesNothing) {
  table_.Prefetch(0x1000);  // still has no lines
  ASSERT_EQ(table_.Insert(0x1000, {.bytes = 1, .account = a_.get()}), InsertResult::kInserted);
  table_.Prefetch(0x1000);
  table_.Prefetch(0x2000);
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_TRUE(table_.CheckInvariants().ok());
}

TEST_F(PointerTableTest, GrowsUnderLoad) {
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 1; i <= 10'000; ++i) {
        const uint64_t pointer = (i * 4 + t) << 9;
        table_.Prefetch(pointer);
        ASSERT_EQ(table_.Insert(pointer, {.bytes = pointer, .account = a_.get()}),
                  InsertResult::kInserted);
        Allocation allocation;
        ASSERT_TRUE(table_.Find(pointer, &allocation));
        ASSERT_EQ(allocation.bytes, pointer);
        if (i % 2 == 0) {
          ASSERT_TRUE(table_.Take(pointer, &allocation));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(table_.size(), 20'000u);
  EXPECT_TRUE(table_.CheckInvariants().ok());
}

}  // namespace
}  // namespace gpushare::quota
