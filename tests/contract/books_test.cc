// SPDX-License-Identifier: Apache-2.0
// The contract of the books, over every family: the charge equals the driver's count.
#include <algorithm>
#include <memory>
#include <new>
#include <set>
#include <string>

#include "tests/contract/books_bed.h"
#include "tests/contract/books_families.h"
#include "tests/contract/failing_memory.h"

namespace gpushare::books {
namespace {

// A family on a device that hands out memory to the byte, or in pages.
struct Case : Family {
  uint64_t page;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name << " in " << one.page; }

class BooksContract : public BooksTest, public ::testing::WithParamInterface<Case> {
 protected:
  BooksContract() : BooksTest("virtual", 1, kGranule, GetParam().page) {}
  Answer Take(uint64_t bytes, uint64_t* thing) {
    return GetParam().take(*books_, payer(), bytes, stream_, thing);
  }
  CUresult Give(uint64_t thing) { return GetParam().give(*books_, thing, stream_); }
  void GiveAll(std::vector<uint64_t>* things) {
    for (const uint64_t thing : *things) EXPECT_CU(Give(thing));
    things->clear();
    EXPECT_CU(cu_->StreamSynchronize(stream_));
  }
  void ExpectRight() { ExpectExact(GetParam().slack); }
};

TEST_P(BooksContract, ChargesWhatTheDriverTakes) {
  std::vector<uint64_t> things;
  for (const uint64_t bytes :
       {uint64_t{1}, uint64_t{511}, uint64_t{4096}, uint64_t{100'000}, 3 * kMiB}) {
    things.emplace_back();
    ASSERT_TRUE(Take(bytes, &things.back()).ok());
    ExpectRight();
    EXPECT_GE(account_->charged(), bytes);
  }
  while (!things.empty()) {
    EXPECT_CU(Give(things.back()));
    things.pop_back();
    EXPECT_CU(cu_->StreamSynchronize(stream_));
    ExpectRight();
  }
  EXPECT_EQ(account_->charged(), 0u);
  EXPECT_EQ(Used(), 0u);
  EXPECT_EQ(credited_[1], account_->Usage().peak);
}

// Host memory runs out, not device memory. The shim handles the exception.
TEST_P(BooksContract, WithoutMemoryOfTheHostNothingRemains) {
  const std::set<std::string> pointer_families = {"direct", "pitched",  "managed",
                                                  "array",  "array_3d", "mipmapped"};
  // Each try has new books, since tables that have room do not allocate.
  for (int nth = 1; nth <= 24; ++nth) {
    SCOPED_TRACE(nth);
    books_ = std::make_unique<Books>(*cu_, nullptr, Books::Options{.page = page_});
    std::vector<uint64_t> things;
    things.reserve(64);
    const int failed = work::FailingMemory::failed();
    {
      const work::FailingMemory none(nth);
      for (int i = 0; i < 40; ++i) {
        uint64_t thing = 0;
        try {
          if (Take(1000, &thing).ok()) things.push_back(thing);
        } catch (const std::bad_alloc&) {
        }
      }
    }
    // The table of pointers does not allocate by operator new.
    const bool in_table = pointer_families.contains(GetParam().name);
    EXPECT_TRUE(nth > 1 || in_table || work::FailingMemory::failed() > failed);
    ExpectRight();
    GiveAll(&things);
    ExpectRight();
    EXPECT_EQ(account_->charged(), 0u);
    EXPECT_EQ(Used(), 0u);
  }
}

TEST_P(BooksContract, AtTheQuotaItIsOutOfMemoryAndNeverMoreThanTheLimit) {
  std::vector<uint64_t> things;
  for (;;) {
    uint64_t thing = 0;
    const Answer answer = Take(5 * kMiB, &thing);
    ASSERT_LE(account_->charged(), kLimit);
    ASSERT_LE(Used(), kLimit);
    if (!answer.ok()) {
      EXPECT_EQ(answer.result, CUDA_ERROR_OUT_OF_MEMORY);
      EXPECT_TRUE(answer.at_quota);
      EXPECT_LT(answer.left, 5 * kMiB + kGranule);
      EXPECT_EQ(thing, 0u);
      break;
    }
    things.push_back(thing);
  }
  // At most one granule for each allocation was refused needlessly.
  EXPECT_GE(things.size(), kLimit / (5 * kMiB + kGranule));
  EXPECT_EQ(account_->Usage().denied, 1u);
  ExpectRight();
  EXPECT_CU(Give(things.back()));
  EXPECT_CU(cu_->StreamSynchronize(stream_));
  EXPECT_TRUE(Take(5 * kMiB, &things.back()).ok());
  GiveAll(&things);
  ExpectRight();
  EXPECT_EQ(account_->charged(), 0u);
}

TEST_P(BooksContract, OddSizes) {
  uint64_t thing = 0, raw = 0;
  EXPECT_EQ(Take(0, &thing).result, GetParam().raw_take(*cu_, 0, stream_, &raw));
  EXPECT_FALSE(Take(0, &thing).at_quota);
  const Answer huge = Take(uint64_t{1} << 63, &thing);
  EXPECT_EQ(huge.result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(huge.at_quota, !GetParam().sized_before);
  EXPECT_EQ(huge.left, huge.at_quota ? kLimit : 0);
  account_->SetLimit(quota::kUnlimited);
  const Answer unlimited = Take(uint64_t{1} << 63, &thing);
  EXPECT_EQ(unlimited.result, GetParam().raw_take(*cu_, uint64_t{1} << 63, stream_, &raw));
  ExpectRight();
  EXPECT_EQ(account_->charged(), 0u);
}

TEST_P(BooksContract, AWaiterIsAskedOnlyWhenTheQuotaRefuses) {
  int asked = 0;
  std::vector<uint64_t> things(2);
  const auto wait = [&](quota::Account& account, uint64_t bytes) {
    ++asked;
    account.SetLimit(2 * kLimit);
    return account.Reserve(bytes);
  };
  RoomBy waits(wait);
  Payer payer = this->payer();
  payer.room = &waits;
  EXPECT_TRUE(GetParam().take(*books_, payer, kLimit - 8 * kMiB, stream_, &things[0]).ok());
  EXPECT_EQ(asked, 0);
  EXPECT_TRUE(GetParam().take(*books_, payer, 10 * kMiB, stream_, &things[1]).ok());
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(account_->Usage().denied, 0u);
  GiveAll(&things);
  ExpectRight();
}

TEST_P(BooksContract, OutOfMemoryAtEveryCallInTurnLeavesNothing) {
  for (int after = 0;; ++after) {
    Inject("oom after=" + std::to_string(after));
    std::vector<uint64_t> things;
    bool refused = false;
    for (int i = 1; i <= 6; ++i) {
      uint64_t thing = 0;
      const Answer answer = Take(static_cast<uint64_t>(i) * 700'000, &thing);
      if (answer.ok()) {
        things.push_back(thing);
      } else {
        EXPECT_EQ(answer.result, CUDA_ERROR_OUT_OF_MEMORY);
        EXPECT_FALSE(answer.at_quota);
        refused = true;
      }
      ExpectRight();
    }
    Inject("clear");
    GiveAll(&things);
    ExpectRight();
    ASSERT_EQ(account_->charged(), 0u) << "after " << after;
    if (!refused) break;
    ASSERT_LT(after, 20);
  }
}

TEST_P(BooksContract, GivenBackTwiceTheDriverAnswersAndTheBooksStay) {
  uint64_t thing = 0, other = 0, raw = 0;
  ASSERT_TRUE(Take(kMiB, &other).ok());
  ASSERT_TRUE(Take(kMiB, &thing).ok());
  EXPECT_CU(Give(thing));
  EXPECT_CU(cu_->StreamSynchronize(stream_));
  ExpectRight();
  EXPECT_EQ(Give(thing), GetParam().raw_give(*cu_, thing, stream_));
  EXPECT_NE(Give(thing), CUDA_SUCCESS);
  ExpectRight();
  // Memory that the books do not know is forwarded to the driver.
  const uint64_t charged = account_->charged();
  ASSERT_CU(GetParam().raw_take(*cu_, kMiB, stream_, &raw));
  EXPECT_CU(Give(raw));
  EXPECT_CU(cu_->StreamSynchronize(stream_));
  EXPECT_EQ(account_->charged(), charged);
  EXPECT_CU(Give(other));
  EXPECT_CU(cu_->StreamSynchronize(stream_));
  ExpectRight();
  EXPECT_EQ(account_->charged(), 0u);
}

TEST_P(BooksContract, TwoTenantsAreCreditedWithTheirOwn) {
  const auto second = NewAccount(kLimit);
  uint64_t mine = 0, theirs = 0;
  ASSERT_TRUE(Take(3 * kMiB, &mine).ok());
  ASSERT_TRUE(GetParam()
                  .take(*books_, {.account = second.get(), .owner = 2}, 7 * kMiB, stream_, &theirs)
                  .ok());
  const uint64_t first_charge = account_->charged();
  EXPECT_GE(second->charged(), 7 * kMiB);
  EXPECT_CU(Give(theirs));
  EXPECT_CU(cu_->StreamSynchronize(stream_));
  books_->Settle();
  EXPECT_EQ(second->charged(), 0u);
  EXPECT_GE(credited_[2], 7 * kMiB);
  EXPECT_EQ(account_->charged(), first_charge);
  EXPECT_CU(Give(mine));
  EXPECT_CU(cu_->StreamSynchronize(stream_));
  ExpectRight();
}

std::vector<Case> Cases(uint64_t page) {
  std::vector<Case> cases;
  for (const Family& family : Families()) cases.push_back({family, page});
  return cases;
}
std::string NameOf(const ::testing::TestParamInfo<Case>& one) { return one.param.name; }

INSTANTIATE_TEST_SUITE_P(Families, BooksContract, ::testing::ValuesIn(Cases(0)), NameOf);
INSTANTIATE_TEST_SUITE_P(FamiliesInPages, BooksContract, ::testing::ValuesIn(Cases(kCardPage)),
                         NameOf);

}  // namespace
}  // namespace gpushare::books
