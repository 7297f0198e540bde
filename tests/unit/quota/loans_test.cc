// SPDX-License-Identifier: Apache-2.0
// Lent memory: how much may be borrowed, what an owner gets back, and limits that change meanwhile; then random
// tenants against a model, and threads.
#include "quota/loans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <iterator>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace gpushare::quota {
namespace {

using Owned = std::unique_ptr<Account>;

Owned Make(LoanBook& book, uint64_t guarantee, std::optional<uint64_t> most = std::nullopt) {
  Owned account = *Account::Create(guarantee, most, book);
  book.Join(*account);
  return account;
}

// A device of 100 units: 10 unassigned, an owner of 60, and a borrower of 30 that may have 100.
class LoansTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(book_.CheckInvariants().ok()) << book_.CheckInvariants(); }
  uint64_t Held() const { return nobodys_->own() + owner_->own() + borrower_->own(); }

  LoanBook book_;
  Owned nobodys_ = Make(book_, 10), owner_ = Make(book_, 60), borrower_ = Make(book_, 30, 100);
};

TEST_F(LoansTest, WhatIsUnusedIsLent) {
  const Grant grant = borrower_->Reserve(90);
  EXPECT_TRUE(grant);
  EXPECT_EQ(borrower_->loan(), 60u);
  EXPECT_EQ(nobodys_->lent(), 10u);  // unassigned memory is lent first
  EXPECT_EQ(owner_->lent(), 50u);
  EXPECT_EQ(owner_->own(), 0u);
  const Grant refused = borrower_->Reserve(11);
  EXPECT_FALSE(refused);
  EXPECT_EQ(refused.left, 10u);
  EXPECT_EQ(borrower_->Usage().denied, 1u);
  EXPECT_TRUE(borrower_->Reserve(10));
  EXPECT_FALSE(borrower_->Reserve(1));
  EXPECT_EQ(Held(), 100u);
}

TEST_F(LoansTest, WhatABorrowerHoldsPastEveryLimitIsNoLoan) {
  EXPECT_TRUE(borrower_->Reserve(100));
  borrower_->Commit(100);
  EXPECT_FALSE(borrower_->IsOverdrawn());
  borrower_->Overdraw(20);
  EXPECT_TRUE(borrower_->IsOverdrawn());
  EXPECT_EQ(borrower_->loan(), 70u);
  EXPECT_FALSE(borrower_->Reserve(1));
  borrower_->Release(20);
  EXPECT_FALSE(borrower_->IsOverdrawn());
  EXPECT_EQ(borrower_->loan(), 70u);
  borrower_->Release(100);
  EXPECT_EQ(borrower_->loan(), 0u);
}

TEST_F(LoansTest, WhatIsFreedRepaysTheLoanFirst) {
  EXPECT_TRUE(borrower_->Reserve(50));
  borrower_->Commit(50);
  borrower_->Release(15);
  EXPECT_EQ(borrower_->loan(), 5u);
  EXPECT_EQ(owner_->lent() + nobodys_->lent(), 5u);
  EXPECT_EQ(owner_->lent(), 0u);  // a tenant with a guarantee gets its memory back first
  borrower_->Release(35);
  EXPECT_EQ(borrower_->loan(), 0u);
  EXPECT_EQ(borrower_->Usage().peak, 50u);
}

// The parent borrows, and repays when its child frees.
TEST_F(LoansTest, AChildBorrowsAndRepaysThroughItsParent) {
  const Owned child = *Account::Create(kUnlimited, borrower_.get());
  EXPECT_TRUE(child->Reserve(90));
  child->Commit(90);
  EXPECT_EQ(borrower_->loan(), 60u);
  EXPECT_EQ(borrower_->own(), 90u);
  const Grant refused = child->Reserve(11);
  EXPECT_FALSE(refused);
  EXPECT_EQ(refused.left, 10u);
  child->Release(50);
  EXPECT_EQ(borrower_->loan(), 10u);
  EXPECT_EQ(owner_->lent() + nobodys_->lent(), 10u);
  EXPECT_TRUE(child->CheckInvariants().ok()) << child->CheckInvariants();
  child->Release(40);
  EXPECT_EQ(borrower_->loan(), 0u);
  EXPECT_EQ(borrower_->charged(), 0u);
}

TEST_F(LoansTest, AnOwnerGetsItBackWhenTheBorrowerFrees) {
  EXPECT_TRUE(borrower_->Reserve(80));
  borrower_->Commit(80);
  EXPECT_TRUE(owner_->Reserve(20));
  const Grant refused = owner_->TryReserve(30);
  EXPECT_FALSE(refused);
  {
    const Demand demand(*owner_);
    EXPECT_FALSE(borrower_->Reserve(1));
    borrower_->Release(30);
    EXPECT_FALSE(borrower_->Reserve(11));  // it would be taken from the owner's memory
    EXPECT_TRUE(owner_->Reserve(30));
  }
  EXPECT_TRUE(owner_->Reserve(owner_->Room()));
  EXPECT_EQ(Held(), 100u);
}

TEST_F(LoansTest, WhatIsLentIsMovedToOthersBeforeAnybodyIsAsked) {
  const Owned other = Make(book_, 40);
  EXPECT_TRUE(owner_->Reserve(60));
  EXPECT_TRUE(nobodys_->Reserve(10));
  EXPECT_TRUE(borrower_->Reserve(70));
  EXPECT_EQ(other->lent(), 40u);
  owner_->Cancel(60);
  EXPECT_TRUE(other->Reserve(40));  // the owner can lend in its place now
  EXPECT_EQ(other->lent(), 0u);
  EXPECT_EQ(owner_->lent(), 40u);
  EXPECT_EQ(borrower_->loan(), 40u);
  book_.Retire(*other, *nobodys_);
}

TEST_F(LoansTest, WhoMayBorrowLendsToo) {
  const Owned second = Make(book_, 20, 60);
  EXPECT_TRUE(second->Reserve(60));
  EXPECT_EQ(second->loan(), 40u);
  EXPECT_TRUE(owner_->Reserve(60));
  EXPECT_EQ(borrower_->lent(), 30u);
  EXPECT_FALSE(borrower_->Reserve(1));  // within its guarantee, but all of it is lent
  second->Cancel(15);
  EXPECT_TRUE(borrower_->Reserve(15));
  EXPECT_EQ(borrower_->loan(), 0u);
  EXPECT_EQ(borrower_->lent(), 15u);
  book_.Retire(*second, *nobodys_);
}

TEST_F(LoansTest, LimitsChangeWhileMemoryIsLent) {
  EXPECT_TRUE(borrower_->Reserve(100));
  // When a guarantee shrinks, the loan moves with the memory.
  EXPECT_TRUE(book_.SetLimits(*owner_, 20, 20, *nobodys_));
  EXPECT_EQ(owner_->lent(), 20u);
  EXPECT_EQ(nobodys_->lent(), 50u);
  EXPECT_EQ(nobodys_->limit(), 50u);
  EXPECT_TRUE(book_.SetLimits(*owner_, 30, 30, *nobodys_));
  EXPECT_EQ(owner_->lent(), 30u);
  EXPECT_EQ(nobodys_->lent(), 40u);
  EXPECT_TRUE(book_.SetLimits(*borrower_, 70, 100, *nobodys_));
  EXPECT_EQ(borrower_->loan(), 30u);
  EXPECT_EQ(nobodys_->limit(), 0u);
  EXPECT_EQ(nobodys_->Over() + owner_->Over(), 0u);
  EXPECT_TRUE(book_.SetLimits(*borrower_, 70, 80, *nobodys_));  // nothing is taken away
  EXPECT_FALSE(borrower_->Reserve(1));
  borrower_->Cancel(30);
  EXPECT_EQ(borrower_->loan(), 0u);
  EXPECT_TRUE(borrower_->Reserve(10));
  EXPECT_FALSE(borrower_->Reserve(1));
  // The memory that it holds beyond a lowered guarantee counts as borrowed.
  EXPECT_TRUE(book_.SetLimits(*borrower_, 50, 80, *nobodys_));
  EXPECT_EQ(borrower_->loan(), 30u);
  EXPECT_EQ(nobodys_->limit(), 20u);
}

TEST_F(LoansTest, WhoMayNotBorrowHoldsWhatItHoldsWhenItsGuaranteeShrinks) {
  EXPECT_TRUE(owner_->Reserve(40));
  EXPECT_TRUE(borrower_->Reserve(60));
  EXPECT_TRUE(book_.SetLimits(*owner_, 20, 20, *nobodys_));
  EXPECT_EQ(owner_->lent(), 0u);
  EXPECT_EQ(owner_->Over(), 20u);
  EXPECT_EQ(nobodys_->limit(), 30u);  // 20 after the owner's excess is freed
  EXPECT_EQ(nobodys_->lent(), 30u);
  EXPECT_TRUE(book_.SetLimits(*owner_, 35, 35, *nobodys_));
  EXPECT_EQ(owner_->Over(), 5u);
  EXPECT_EQ(nobodys_->limit(), 30u);
  owner_->Cancel(40);
  nobodys_->SetLimit(35);
}

TEST_F(LoansTest, AGuaranteeIsOfWhatNobodyHolds) {
  EXPECT_TRUE(nobodys_->Reserve(4));
  EXPECT_TRUE(borrower_->Reserve(30));
  EXPECT_FALSE(book_.SetLimits(*owner_, 67, 67, *nobodys_));
  EXPECT_EQ(owner_->limit(), 60u);
  EXPECT_EQ(nobodys_->limit(), 10u);
  EXPECT_FALSE(book_.SetLimits(*owner_, 71, 71, *nobodys_));
  EXPECT_TRUE(book_.SetLimits(*owner_, 66, 66, *nobodys_));
  const Owned late = *Account::Create(1, std::nullopt, book_);
  EXPECT_FALSE(book_.Join(*late, *nobodys_));
  EXPECT_EQ(late->guarantee(), 1u);
  nobodys_->Cancel(1);
  EXPECT_TRUE(book_.Join(*late, *nobodys_));
  EXPECT_EQ(nobodys_->limit(), 3u);
  book_.Retire(*late, *nobodys_);
}

TEST_F(LoansTest, WhoRetiresLeavesItsLoansToTheHeir) {
  EXPECT_TRUE(borrower_->Reserve(100));
  nobodys_->SetLimit(70);  // takes over the owner's guarantee
  book_.Retire(*owner_, *nobodys_);
  EXPECT_EQ(owner_->charged(), 0u);
  EXPECT_EQ(nobodys_->lent(), 70u);
  // A borrower that retires while it holds memory repays as that is freed.
  book_.Retire(*borrower_, *nobodys_);
  borrower_->Cancel(80);
  EXPECT_EQ(borrower_->loan(), 0u);
  EXPECT_EQ(nobodys_->lent(), 0u);
}

TEST_F(LoansTest, LessAtMostThanGuaranteedIsRefused) {
  EXPECT_EQ(Account::Create(10, 9, book_).status().code(), absl::StatusCode::kInvalidArgument);
}

// ---- Random tenants ----

struct TenantModel {
  Owned account, child;
  Account* door = nullptr;  // the account for its calls: its own or its child's
  uint64_t guarantee = 0, most = 0, held = 0;
  bool gives = false;  // gives memory back when asked

  uint64_t borrowed() const { return held > guarantee ? held - guarantee : 0; }
};

// What a caller does for an owner: it asks only the tenants that borrow.
bool ReserveAsking(std::vector<TenantModel>& tenants, TenantModel& owner, uint64_t bytes,
                   bool* all_give) {
  if (owner.door->TryReserve(bytes)) return true;
  if (owner.held + bytes > owner.guarantee) return false;
  const Demand demand(*owner.account);
  *all_give = true;
  for (TenantModel& tenant : tenants) {
    if (&tenant == &owner || tenant.account->loan() == 0) continue;
    EXPECT_GT(tenant.held, tenant.guarantee) << "asked within its guarantee";
    if (!tenant.gives) {
      *all_give = false;
      continue;
    }
    const uint64_t back = tenant.account->loan();
    tenant.door->Release(back);
    tenant.held -= back;
    if (owner.door->TryReserve(bytes)) return true;
  }
  return static_cast<bool>(owner.door->TryReserve(bytes));
}

struct Seen {
  int borrowed = 0, asked_and_served = 0, refused_owners = 0;
};

// With `through_children`, a child makes all the calls of each tenant.
void RunRandomTenants(unsigned seed, bool through_children, Seen* seen) {
  std::mt19937 random(seed);
  const auto upto = [&](uint64_t n) { return random() % (n + 1); };
  constexpr uint64_t kDevice = 10'000;
  LoanBook book;
  const Owned nobodys = Make(book, 0);
  std::vector<TenantModel> tenants;
  uint64_t promised = 0;
  for (int i = 0; i < 6; ++i) {
    TenantModel tenant;
    tenant.guarantee = 1 + upto(2 * kDevice / 10);
    tenant.most = random() % 2 ? std::min(kDevice, tenant.guarantee + upto(kDevice)) : 0;
    if (promised + tenant.guarantee > kDevice) break;
    promised += tenant.guarantee;
    tenant.account =
        Make(book, tenant.guarantee, tenant.most != 0 ? std::optional(tenant.most) : std::nullopt);
    if (through_children) tenant.child = *Account::Create(kUnlimited, tenant.account.get());
    tenant.door = through_children ? tenant.child.get() : tenant.account.get();
    tenants.push_back(std::move(tenant));
  }
  nobodys->SetLimit(kDevice - promised);
  uint64_t nobodys_held = 0;
  for (int step = 0; step < 4000; ++step) {
    TenantModel& tenant = tenants[random() % tenants.size()];
    tenant.gives = random() % 4 != 0;
    switch (random() % 8) {
      case 0: {  // memory without a quota
        const uint64_t bytes = upto(kDevice / 10);
        if (nobodys_held != 0 && random() % 2) {
          nobodys->Cancel(nobodys_held);
          nobodys_held = 0;
        } else if (nobodys->TryReserve(bytes)) {
          nobodys_held += bytes;
        }
        break;
      }
      case 1:
      case 2:
      case 3: {
        const uint64_t back = upto(tenant.held);
        tenant.door->Release(back);
        tenant.held -= back;
        break;
      }
      default: {
        const uint64_t bytes = upto(std::max(tenant.guarantee, tenant.most) / 3);
        uint64_t held = nobodys_held;
        for (const TenantModel& other : tenants) held += other.held;
        bool all_give = true;
        const bool owner = tenant.held + bytes <= tenant.guarantee;
        const uint64_t before = tenant.account->loan();
        const bool at_once = static_cast<bool>(tenant.door->TryReserve(bytes));
        if (at_once || ReserveAsking(tenants, tenant, bytes, &all_give)) {
          tenant.door->Commit(bytes);
          tenant.held += bytes;
          ASSERT_LE(tenant.held, std::max(tenant.guarantee, tenant.most));
          if (!at_once) ++seen->asked_and_served;
          if (tenant.account->loan() > before) ++seen->borrowed;
        } else {
          // No request is refused if there is room, and no owner if the borrowers gave their loans back.
          ASSERT_FALSE(owner && all_give) << "step " << step;
          if (owner) ++seen->refused_owners;
          if (tenant.held + bytes <= std::max(tenant.guarantee, tenant.most)) {
            ASSERT_TRUE(tenant.most == 0 || held + bytes > kDevice) << "step " << step;
          }
        }
      }
    }
    uint64_t sum = nobodys_held, loans = 0, lent = nobodys->lent();
    for (const TenantModel& each : tenants) {
      sum += each.held;
      ASSERT_EQ(each.account->own(), each.held);
      ASSERT_EQ(each.account->loan(), each.borrowed());
      loans += each.account->loan();
      lent += each.account->lent();
    }
    ASSERT_LE(sum, kDevice);
    ASSERT_EQ(loans, lent);
    ASSERT_TRUE(book.CheckInvariants().ok()) << book.CheckInvariants();
  }
}

TEST(RandomLoans, TheSumHoldsAndOwnersGetTheirs) {
  for (const bool through_children : {false, true}) {
    SCOPED_TRACE(through_children);
    Seen seen;
    for (unsigned seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(seed);
      ASSERT_NO_FATAL_FAILURE(RunRandomTenants(seed, through_children, &seen));
    }
    // The cases that this test is about have occurred.
    EXPECT_GT(seen.borrowed, 100);
    EXPECT_GT(seen.asked_and_served, 100);
    EXPECT_GT(seen.refused_owners, 50);
  }
}

TEST(LoansThreads, TheSumNeverExceedsTheDevice) {
  constexpr uint64_t kDevice = 3000;
  LoanBook book;
  const Owned a = Make(book, 1000), b = Make(book, 1000, 3000), c = Make(book, 1000, 2500);
  std::atomic<uint64_t> held{0};
  std::atomic<int> above{0}, refused{0};
  std::vector<std::thread> threads;
  for (Account* account : {a.get(), a.get(), b.get(), c.get()}) {
    threads.emplace_back([&, account, seed = threads.size()] {
      std::mt19937 random(static_cast<unsigned>(seed));
      for (int i = 0; i < 3000; ++i) {
        const uint64_t bytes = 1 + random() % 800;
        if (!account->TryReserve(bytes)) {
          ++refused;
          continue;
        }
        if (held.fetch_add(bytes) + bytes > kDevice) ++above;
        account->Commit(bytes);
        held.fetch_sub(bytes);
        account->Release(bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(above, 0);
  EXPECT_EQ(a->charged() + b->charged() + c->charged(), 0u);
  EXPECT_TRUE(book.CheckInvariants().ok()) << book.CheckInvariants();
}

// Guarantees move between accounts that reserve, lend and borrow meanwhile.
TEST(LoansThreads, NoByteIsHeldTwiceWhileGuaranteesMove) {
  constexpr uint64_t kDevice = 3000;
  LoanBook book;
  const Owned rest = Make(book, 1500), a = Make(book, 500), b = Make(book, 500, 2500),
              c = Make(book, 500, 1500);
  std::atomic<uint64_t> held{0};
  std::atomic<int> above{0}, moved{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (Account* account : {rest.get(), a.get(), a.get(), b.get(), c.get()}) {
    threads.emplace_back([&, account, seed = threads.size()] {
      std::mt19937 random(static_cast<unsigned>(seed));
      // Runs until the other thread has changed some limits.
      for (int i = 0; i < 500 || moved <= 10; ++i) {
        const uint64_t bytes = 1 + random() % 700;
        if (!account->TryReserve(bytes)) continue;
        if (held.fetch_add(bytes) + bytes > kDevice) ++above;
        account->Commit(bytes);
        if (random() % 4 == 0) std::this_thread::yield();
        held.fetch_sub(bytes);
        account->Release(bytes);
      }
    });
  }
  std::thread moves([&] {
    std::mt19937 random(99);
    while (!over) {
      std::this_thread::yield();
      Account& account = *std::array{a.get(), b.get(), c.get()}[random() % 3];
      const uint64_t guarantee = random() % 900;
      const uint64_t most =
          account.borrows() ? std::max<uint64_t>(guarantee, random() % 3000) : guarantee;
      // When a quota is lowered below its use, the caller has to keep the excess from the rest until it is freed.
      if (book.SetLimits(account, guarantee, most, *rest)) ++moved;
      if (!account.borrows()) {
        while (book.Over(account) != 0) std::this_thread::yield();
        const uint64_t others = a->guarantee() + b->guarantee() + c->guarantee();
        rest->SetLimit(kDevice - others);
      }
    }
  });
  for (std::thread& thread : threads) thread.join();
  over = true;
  moves.join();
  EXPECT_EQ(above, 0);
  EXPECT_GT(moved, 10);
  EXPECT_EQ(rest->charged() + a->charged() + b->charged() + c->charged(), 0u);
  EXPECT_EQ(rest->guarantee() + a->guarantee() + b->guarantee() + c->guarantee(), kDevice);
  EXPECT_TRUE(book.CheckInvariants().ok()) << book.CheckInvariants();
}

// ---- Waiting ----

void WaitUntil(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::yield();
}

TEST_F(LoansTest, AnOwnerThatWaitsIsServedByTheBorrowersFree) {
  ASSERT_TRUE(borrower_->Reserve(100));
  std::thread owner([&] { EXPECT_TRUE(owner_->ReserveBefore(40, base::RealClock(), kNever)); });
  WaitUntil([&] { return owner_->has_waiters(); });
  borrower_->Cancel(30);
  EXPECT_TRUE(owner_->has_waiters());
  borrower_->Cancel(10);
  owner.join();
  owner_->Cancel(40);
  borrower_->Cancel(60);
}

TEST_F(LoansTest, WhoWaitsForABorrowersChildIsServedByIt) {
  const Owned lent = *Account::Create(kUnlimited, borrower_.get());
  const Owned waits = *Account::Create(kUnlimited, owner_.get());
  ASSERT_TRUE(lent->Reserve(100));
  std::thread waiter([&] { EXPECT_TRUE(waits->ReserveBefore(40, base::RealClock(), kNever)); });
  WaitUntil([&] { return waits->has_waiters(); });
  EXPECT_TRUE(lent->is_awaited());
  lent->Cancel(30);
  EXPECT_TRUE(waits->has_waiters());
  lent->Cancel(10);
  waiter.join();
  waits->Cancel(40);
  lent->Cancel(60);
}

TEST_F(LoansTest, AnOwnerThatWaitedInVainHasNotLeftWhatIsLent) {
  ASSERT_TRUE(borrower_->Reserve(90));  // 50 of this belong to the owner
  ASSERT_EQ(owner_->lent(), 50u);
  const Grant refused = owner_->ReserveBefore(40, base::RealClock(), Time());
  EXPECT_FALSE(refused);
  EXPECT_EQ(refused.left, 10u);
  borrower_->Cancel(90);
  const Grant granted = owner_->ReserveBefore(40, base::RealClock(), Time());
  EXPECT_TRUE(granted);
  EXPECT_EQ(granted.left, 20u);
  owner_->Cancel(40);
}

TEST_F(LoansTest, ABorrowerThatWaitsIsServedByAnybodysFree) {
  ASSERT_TRUE(owner_->Reserve(60));
  std::thread borrower(
      [&] { EXPECT_TRUE(borrower_->ReserveBefore(90, base::RealClock(), kNever)); });
  WaitUntil([&] { return borrower_->has_waiters(); });
  owner_->Cancel(40);
  EXPECT_TRUE(borrower_->has_waiters());
  owner_->Cancel(20);
  borrower.join();
  borrower_->Cancel(90);
}

// Whichever is asked first, and whichever frees.
TEST(LoansThreads, ThoseWhoWaitInSeveralAccountsAreServedInTheOrderOfArrival) {
  LoanBook book;
  const Owned nobodys = Make(book, 100), a = Make(book, 0, 100), b = Make(book, 0, 100),
              c = Make(book, 0, 100);
  ASSERT_TRUE(c->Reserve(100));
  struct Wait {
    Account* account;
    uint64_t bytes;
  };
  // The first waits for 60 do not fit together; the small ones fit afterwards.
  const Wait waits[] = {{b.get(), 60}, {a.get(), 60}, {b.get(), 60}, {a.get(), 30},
                        {b.get(), 30}, {c.get(), 30}, {a.get(), 30}, {b.get(), 70}};
  std::array<std::atomic<bool>, std::size(waits)> served{};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < std::size(waits); ++i) {
    threads.emplace_back([&, i] {
      EXPECT_TRUE(waits[i].account->ReserveBefore(waits[i].bytes, base::RealClock(), kNever));
      served[i] = true;
    });
    WaitUntil(
        [&] { return a->Usage().waiting + b->Usage().waiting + c->Usage().waiting == i + 1; });
  }
  const auto waiting = [&] { return a->Usage().waiting + b->Usage().waiting + c->Usage().waiting; };
  // Expects that `next` is served next and that `left` are left waiting.
  const auto expect = [&](size_t next, size_t left) {
    EXPECT_EQ(waiting(), left);
    WaitUntil([&] { return waiting() > left || served[next].load(); });
    EXPECT_TRUE(served[next]) << next;
  };
  c->Cancel(100);  // c's own wait for 30 fits too
  expect(0, 6);
  EXPECT_FALSE(served[1]);
  WaitUntil([&] { return served[5].load(); });
  b->Cancel(60);  // b waits again, but a came earlier
  expect(1, 5);
  EXPECT_FALSE(served[2]);
  a->Cancel(60);
  expect(2, 4);
  EXPECT_FALSE(served[3]);
  b->Cancel(60);
  expect(3, 2);  // 4 is served too, since there is room for it
  WaitUntil([&] { return served[4].load(); });
  c->Cancel(30);
  expect(6, 1);
  a->Cancel(60);
  expect(7, 0);
  b->Cancel(100);
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(book.CheckInvariants().ok()) << book.CheckInvariants();
}

// If neither lent, both would wait for ever while the whole device is free.
TEST(LoansThreads, TwoThatWaitForMoreThanIsTheirsDoNotWaitForEachOther) {
  LoanBook book;
  const Owned nobodys = Make(book, 10), a = Make(book, 45, 100), b = Make(book, 45, 100);
  ASSERT_TRUE(nobodys->Reserve(10));
  std::vector<std::thread> waits;
  for (Account* account : {a.get(), b.get()}) {
    waits.emplace_back([account] {
      EXPECT_TRUE(account->ReserveBefore(95, base::RealClock(), kNever));
      account->Cancel(95);
    });
  }
  WaitUntil([&] { return a->has_waiters() && b->has_waiters(); });
  nobodys->Cancel(10);
  for (std::thread& thread : waits) thread.join();
}

// A waiter does not poll, so every release that makes room has to serve it.
TEST(LoansThreads, NobodyWhoWaitsIsForgotten) {
  LoanBook book;
  const Owned rest = Make(book, 1000), a = Make(book, 1000), b = Make(book, 500, 3000),
              c = Make(book, 500, 2500);
  std::vector<std::thread> threads;
  for (Account* account : {a.get(), a.get(), b.get(), b.get(), c.get(), c.get()}) {
    threads.emplace_back([&, account, seed = threads.size()] {
      std::mt19937 random(static_cast<unsigned>(seed));
      for (int i = 0; i < 300; ++i) {
        const uint64_t bytes = 1 + random() % account->limit();
        ASSERT_TRUE(account->ReserveBefore(bytes, base::RealClock(), kNever));
        account->Commit(bytes);
        if (random() % 4 == 0) std::this_thread::yield();
        account->Release(bytes);
      }
    });
  }
  // Accounts are created, wait, and are destroyed while others serve them.
  threads.emplace_back([&] {
    for (int i = 0; i < 300; ++i) {
      const Owned guest = Make(book, 1, 400);
      ASSERT_TRUE(guest->ReserveBefore(400, base::RealClock(), kNever));
      guest->Cancel(400);
      book.Retire(*guest, *rest);
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(rest->charged() + a->charged() + b->charged() + c->charged(), 0u);
  EXPECT_TRUE(book.CheckInvariants().ok()) << book.CheckInvariants();
}

}  // namespace
}  // namespace gpushare::quota
